//! The conformance kit: plays the host against the command of an instance.

mod cases;
mod components;
mod host;

use std::fmt;
use std::time::Duration;

use crate::command::InstanceCommand;
use crate::protocol::{ComponentConfiguration, ComponentInput, ComponentOutput, InstanceRole};
pub(crate) use host::CheckHost;

/// The settings of a run of the kit.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    /// The command of the instance.
    pub command: InstanceCommand,
    /// Sample records, as JSON documents. The program should accept them.
    pub records: Vec<String>,
    /// The key of all sample records; `None` checks a step without keys.
    pub key: Option<String>,
    /// The time within which the process must answer.
    pub timeout: Duration,
    /// The role that is checked.
    pub role: InstanceRole,
    /// The streams that a spout or bolt declares.
    pub outputs: Vec<ComponentOutput>,
}

impl CheckSettings {
    /// Returns the part of CONFIGURE of a spout or bolt. A bolt has one input, whose tuples are the
    /// sample records.
    fn component(&self) -> ComponentConfiguration {
        let fields = self.records.first().and_then(|record| {
            let values: Vec<serde_json::Value> = serde_json::from_str(record).ok()?;
            Some((0..values.len()).map(|at| format!("field{at}")).collect())
        });
        let input = ComponentInput {
            component: "check".into(),
            stream: "default".into(),
            fields: fields.unwrap_or_default(),
        };
        ComponentConfiguration {
            role: self.role,
            inputs: match self.role {
                InstanceRole::Bolt => vec![input],
                _ => Vec::new(),
            },
            outputs: self.outputs.clone(),
            acks: self.role != InstanceRole::Step,
            ..ComponentConfiguration::default()
        }
    }

    /// Returns the records of a BATCH: of a bolt with the index of the input.
    fn rows(&self) -> Vec<String> {
        let records = self.records.iter();
        let rows = records.map(
            |record| match (self.role, record.trim().strip_prefix('[')) {
                (InstanceRole::Bolt, Some("]")) => "[0]".into(),
                (InstanceRole::Bolt, Some(values)) => format!("[0,{values}"),
                _ => record.clone(),
            },
        );
        rows.collect()
    }
}

/// The verdict of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckVerdict {
    /// The instance conforms; with a remark.
    Passed(String),
    /// The instance breaks the protocol; with the reason.
    Failed(String),
    /// The check does not apply; with the reason.
    Skipped(String),
}

/// A check and its verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckOutcome {
    /// The name of the check, such as `barrier`.
    pub name: &'static str,
    /// The verdict.
    pub verdict: CheckVerdict,
    /// The last lines of the process's standard error, if the check failed.
    pub last_lines: Vec<String>,
}

impl CheckOutcome {
    /// Returns true if the check failed.
    pub fn is_failed(&self) -> bool {
        matches!(self.verdict, CheckVerdict::Failed(_))
    }
}

impl fmt::Display for CheckOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match &self.verdict {
            CheckVerdict::Passed(text) => ("passed", text),
            CheckVerdict::Failed(text) => ("FAILED", text),
            CheckVerdict::Skipped(text) => ("skipped", text),
        };
        write!(f, "{word:<8} {:<16} {text}", self.name)?;
        for line in &self.last_lines {
            write!(f, "\n{:25} stderr: {}", "", line.escape_debug())?;
        }
        Ok(())
    }
}

/// Runs all checks, each against a process of its own, and calls `report` after each.
pub fn run(settings: &CheckSettings, report: &mut dyn FnMut(&CheckOutcome)) -> Vec<CheckOutcome> {
    let mut outcomes = Vec::new();
    for (name, case) in cases::of_role(settings.role) {
        let mut last_lines = Vec::new();
        let verdict = match case(settings, &mut last_lines) {
            Ok(verdict) => verdict,
            Err(reason) => CheckVerdict::Failed(reason),
        };
        if !matches!(verdict, CheckVerdict::Failed(_)) {
            last_lines.clear();
        }
        let outcome = CheckOutcome {
            name,
            verdict,
            last_lines,
        };
        report(&outcome);
        let must_end = name == "handshake" && outcome.is_failed();
        outcomes.push(outcome);
        if must_end {
            break;
        }
    }
    outcomes
}
