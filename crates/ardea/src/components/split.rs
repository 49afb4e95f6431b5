//! A bolt that splits texts into words.

use ardea_core::Result;
use ardea_topology::{Bolt, Collector, ComponentState, Outcome, Outputs, Settings, Tuple};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitSettings {
    #[serde(default = "line")]
    field: String,
}

fn line() -> String {
    "line".into()
}

/// A bolt that emits the words of a field in lowercase: letters and digits of any script.
pub(super) struct Split(String);

impl Split {
    pub(super) fn of(settings: &Settings) -> Result<Self> {
        let SplitSettings { field } = settings.parse()?;
        Ok(Split(field))
    }
}

impl Bolt for Split {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["word"])
    }

    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Stateless
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let words = tuple.str(&self.0)?.split(|c: char| !c.is_alphanumeric());
        for word in words.filter(|word| !word.is_empty()) {
            out.emit([word.to_lowercase()])?;
        }
        Ok(())
    }
}
