//! JSON types of jobs that have ended.

use ardea_core::{Error, ErrorCode, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NoteView, ProblemView};

/// The way a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobEnding {
    /// All sources of the job had ended.
    Finished,
    /// Another program has replaced the job (`ardea upgrade`).
    Followed,
    /// The job was the new program of an upgrade and did not start, so the former program was
    /// restored.
    RolledBack,
    /// A user has killed the job.
    Killed,
}

impl JobEnding {
    /// Returns the name used in JSON and in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            JobEnding::Finished => "finished",
            JobEnding::Followed => "followed",
            JobEnding::RolledBack => "rolled back",
            JobEnding::Killed => "killed",
        }
    }
}

/// The summary of a job that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PastJobSummary {
    /// Name of the job; later jobs may have the same name.
    pub name: String,
    /// Number of the submission, in hexadecimal digits.
    pub submission: String,
    /// The way the job ended.
    pub ending: JobEnding,
    /// True if all containers of the job were running at some time.
    pub has_run: bool,
    /// Time of the submission, in milliseconds since 1970.
    pub submitted_ms: u64,
    /// Time of the end, in milliseconds since 1970.
    pub ended_ms: u64,
    /// Number of containers in the last plan.
    pub container_count: u32,
    /// Number of instances in the last plan.
    pub instance_count: u32,
    /// Version of Ardea that the job's program was built with.
    pub version: String,
    /// Latest problem of an instance or a container, as far as known to the last leader.
    pub last_problem: Option<ProblemView>,
}

impl PastJobSummary {
    /// Creates the error for a request that needs a running job. The error reports when and how
    /// this job ended.
    pub fn ended(&self) -> Error {
        let name = &self.name;
        let micros = self.ended_ms / 1_000 * 1_000_000;
        let at = Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX));
        let how = match self.ending {
            JobEnding::Finished => "it had finished",
            JobEnding::Followed => "another program replaced it",
            JobEnding::RolledBack => "it did not start, and the former program was restored",
            JobEnding::Killed => "it was killed",
        };
        let what = format!("job {name:?} ended at {at}: {how}");
        Error::new(ErrorCode::NoSuchJob, what).hint(format!(
            "`ardea describe {name}` shows its record, `ardea logs {name}` its output"
        ))
    }
}

/// The details of a job that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PastJobDescription {
    /// The summary.
    #[serde(flatten)]
    pub summary: PastJobSummary,
    /// Name of the packing policy.
    pub packing: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// Names or addresses of the machines on which the containers last ran. Their output is
    /// retained there for a day.
    pub machines: Vec<String>,
    /// Problems of instances and containers, the latest first.
    pub problems: Vec<ProblemView>,
    /// Last events of the job, the latest last.
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
