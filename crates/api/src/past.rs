//! Jobs that are gone, as they are remembered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NoteView, ProblemView};

/// How a job came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobEnding {
    /// By itself: all of its sources had ended.
    Finished,
    /// Somebody wanted it.
    Killed,
}

impl JobEnding {
    /// As it is written in JSON, and for people.
    pub fn as_str(self) -> &'static str {
        match self {
            JobEnding::Finished => "finished",
            JobEnding::Killed => "killed",
        }
    }
}

/// A job that is gone, in a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PastJobSummary {
    /// Its name; later jobs may have the same.
    pub name: String,
    /// Which submission of that name, in hexadecimal digits.
    pub submission: String,
    /// How it came to its end.
    pub ending: JobEnding,
    /// Whether it has ever run with all of its containers.
    pub has_run: bool,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// How many containers it had last.
    pub container_count: u32,
    /// How many instances it had last.
    pub instance_count: u32,
    /// The version of Ardea that its program was built with.
    pub version: String,
    /// What went wrong last in an instance or a container, as far as its last master knew.
    pub last_problem: Option<ProblemView>,
}

/// All that is remembered of a job that is gone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PastJobDescription {
    /// In a line.
    #[serde(flatten)]
    pub summary: PastJobSummary,
    /// The packing policy, by name.
    pub packing: String,
    /// The scheduler, by name.
    pub scheduler: String,
    /// What went wrong in instances and with containers, the latest first.
    pub problems: Vec<ProblemView>,
    /// What happened last, the latest last.
    pub notes: Vec<NoteView>,
}
