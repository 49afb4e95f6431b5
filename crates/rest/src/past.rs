//! Jobs that are gone, as they are remembered.

use ardea_core::{Error, ErrorCode, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NoteView, ProblemView};

/// How a job came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobEnding {
    /// By itself: all of its sources had ended.
    Finished,
    /// Another program has taken its place (`ardea upgrade`).
    Followed,
    /// It was to follow another program and did not come up: that one has come back.
    RolledBack,
    /// Somebody wanted it.
    Killed,
}

impl JobEnding {
    /// As it is written in JSON, and for people.
    pub fn as_str(self) -> &'static str {
        match self {
            JobEnding::Finished => "finished",
            JobEnding::Followed => "followed",
            JobEnding::RolledBack => "rolled back",
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

impl PastJobSummary {
    /// The error for whoever takes the job for one that is there: when and how it ended.
    pub fn ended(&self) -> Error {
        let name = &self.name;
        let micros = self.ended_ms / 1_000 * 1_000_000;
        let at = Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX));
        let how = match self.ending {
            JobEnding::Finished => "it had finished",
            JobEnding::Followed => "another program took its place",
            JobEnding::RolledBack => "it did not come up, and the program before came back",
            JobEnding::Killed => "it was killed",
        };
        let what = format!("job {name:?} ended at {at}: {how}");
        Error::new(ErrorCode::NoSuchJob, what).hint(format!(
            "`ardea describe {name}` tells what is remembered of it, `ardea logs {name}` shows what it wrote"
        ))
    }
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
    /// The machines that its containers ran on last, by the names or addresses by which others reach them; what they wrote is kept there
    /// for a day.
    pub machines: Vec<String>,
    /// What went wrong in instances and with containers, the latest first.
    pub problems: Vec<ProblemView>,
    /// What happened last, the latest last.
    pub notes: Vec<NoteView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_gone_is_said_to_have_ended_when_and_how() {
        let past = PastJobSummary {
            name: "relay".into(),
            submission: "2a".into(),
            ending: JobEnding::Finished,
            has_run: true,
            submitted_ms: 0,
            ended_ms: 1_357_034_400_250,
            container_count: 1,
            instance_count: 1,
            version: "0".into(),
            last_problem: None,
        };
        let error = past.ended();
        assert_eq!(error.code(), ErrorCode::NoSuchJob);
        let told = "job \"relay\" ended at 2013-01-01T10:00:00Z: it had finished";
        assert_eq!(error.message(), told);
    }
}
