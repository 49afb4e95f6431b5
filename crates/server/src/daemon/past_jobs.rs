//! Conversion of ended jobs for the REST interface.

use crate::leader::PastJob;
use ardea_rest::{JobEnding, PastJobDescription, PastJobSummary};

use crate::daemon::describe::{notes, problems};

/// Returns the one-line summary of an ended job.
pub(crate) fn summary(past: &PastJob) -> PastJobSummary {
    let problems = problems(&past.problems, &past.failures);
    PastJobSummary {
        name: past.job.name.clone(),
        submission: format!("{:x}", past.job.submission),
        ending: match (past.followed, past.rolled_back, past.finished) {
            (true, false, _) => JobEnding::Followed,
            (true, true, _) => JobEnding::RolledBack,
            (false, _, true) => JobEnding::Finished,
            (false, _, false) => JobEnding::Killed,
        },
        has_run: past.started,
        submitted_ms: past.submitted_ms,
        ended_ms: past.ended_ms,
        container_count: past.containers,
        instance_count: past.instances,
        version: past.version.clone(),
        last_problem: problems.into_iter().next(),
    }
}

/// Returns the description of an ended job.
pub(crate) fn description(past: &PastJob) -> PastJobDescription {
    PastJobDescription {
        summary: summary(past),
        packing: past.packing.clone(),
        scheduler: past.scheduler.clone(),
        machines: past.machines.clone(),
        problems: problems(&past.problems, &past.failures),
        notes: notes(&past.notes),
    }
}
