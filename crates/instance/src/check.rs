//! The conformance kit: plays the host against the command of an instance.

mod cases;
mod host;

use std::fmt;
use std::time::Duration;

use crate::command::InstanceCommand;
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
    for (name, case) in cases::ALL {
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
        let must_end = *name == "handshake" && outcome.is_failed();
        outcomes.push(outcome);
        if must_end {
            break;
        }
    }
    outcomes
}
