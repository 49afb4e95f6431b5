//! A bolt that counts.

use std::borrow::Cow;
use std::time::Duration;

use ardea_config::parse_duration;
use ardea_core::{Error, ErrorCode, Result};
use ardea_state::KeyedState;
use ardea_topology::{
    Bolt, Collector, ComponentContext, ComponentState, Outcome, Outputs, Settings, Tuple,
};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountSettings {
    #[serde(default = "word")]
    field: String,
    #[serde(default = "a_second")]
    every: String,
}

fn word() -> String {
    "word".into()
}

fn a_second() -> String {
    "1s".into()
}

/// The count of a word, and whether it has changed since it was emitted.
#[derive(Clone, Default, Serialize, Deserialize)]
struct WordCount {
    count: i64,
    has_changed: bool,
}

/// A bolt that counts words and emits changed counts at regular intervals and at the end.
pub(super) struct Count {
    field: String,
    every: Duration,
    counts: KeyedState<String, WordCount>,
    /// The slots of words whose counts have changed since they were emitted, once each.
    changed: Vec<u32>,
    has_started: bool,
    /// The word of the latest tuple.
    word: String,
}

impl Count {
    pub(super) fn of(settings: &Settings) -> Result<Self> {
        let CountSettings { field, every } = settings.parse()?;
        let wrong = |why: String| {
            let what = format!("the setting every={every:?} of bolt count is invalid");
            Error::new(ErrorCode::InvalidConfig, what).because(why)
        };
        let every_parsed = parse_duration(&every).map_err(|why| wrong(why.to_string()))?;
        if every_parsed.is_zero() {
            return Err(wrong("it is not a duration".into()));
        }
        Ok(Count {
            field,
            every: every_parsed,
            counts: KeyedState::checkpointed("counts"),
            changed: Vec::new(),
            has_started: false,
            word: String::new(),
        })
    }

    /// Finds the changed words of a restored state, before its first use.
    fn start(&mut self) {
        if !std::mem::replace(&mut self.has_started, true) {
            let counts = &self.counts;
            let has_changed =
                |slot: &u32| counts.get(*slot).is_some_and(|counted| counted.has_changed);
            self.changed.extend((0..counts.slots()).filter(has_changed));
        }
    }

    fn emit_changes(&mut self, out: &mut Collector<'_>) -> Outcome {
        self.start();
        for slot in self.changed.drain(..) {
            if let Some((word, counted)) = self.counts.update(slot) {
                counted.has_changed = false;
                out.emit((word.as_str(), counted.count))?;
            }
        }
        Ok(())
    }
}

impl Bolt for Count {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["word", "count"])
    }

    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Checkpointed(&mut self.counts)
    }

    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        self.counts.open(context.instance_context())?;
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        let word = tuple.str(&self.field)?;
        self.start();
        self.word.clear();
        self.word.push_str(word);
        let key = Cow::Borrowed(&self.word);
        let (slot, counted) = self.counts.entry(key, WordCount::default)?;
        counted.count += 1;
        if !std::mem::replace(&mut counted.has_changed, true) {
            self.changed.push(slot);
        }
        Ok(())
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(self.every)
    }

    fn tick(&mut self, out: &mut Collector<'_>) -> Outcome {
        self.emit_changes(out)
    }

    fn finish(&mut self, out: &mut Collector<'_>) -> Outcome {
        self.emit_changes(out)
    }
}
