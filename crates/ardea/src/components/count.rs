//! A bolt that counts.

use std::collections::HashMap;
use std::time::Duration;

use ardea_config::parse_duration;
use ardea_core::{Error, ErrorCode, Result};
use ardea_topology::{Bolt, Collector, Outcome, Outputs, Settings, Tuple};
use serde::Deserialize;

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
#[derive(Default)]
struct WordCount {
    count: i64,
    has_changed: bool,
}

/// A bolt that counts words and emits changed counts at regular intervals and at the end.
pub(super) struct Count {
    field: String,
    every: Duration,
    counts: HashMap<String, WordCount>,
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
            counts: HashMap::new(),
        })
    }

    fn emit_changes(&mut self, out: &mut Collector<'_>) -> Outcome {
        for (word, counted) in &mut self.counts {
            if std::mem::take(&mut counted.has_changed) {
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

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        let word = tuple.str(&self.field)?;
        let counted = match self.counts.get_mut(word) {
            Some(counted) => counted,
            None => self.counts.entry(word.to_string()).or_default(),
        };
        counted.count += 1;
        counted.has_changed = true;
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
