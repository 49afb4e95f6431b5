//! HTTP statuses of errors, and "not found" errors that suggest existing names.

use ardea_config::nearest;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};

/// Maximum number of containers listed in an error message.
pub const MAX_LISTED_CONTAINERS: usize = 20;

/// Returns the HTTP status for an error code: 4xx if the caller can fix the error, 503 if a retry
/// may help.
pub fn status_of(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::InvalidJob | ErrorCode::InvalidConfig | ErrorCode::BadRequest => 400,
        ErrorCode::Unauthorized => 401,
        ErrorCode::Forbidden => 403,
        ErrorCode::NoSuchJob
        | ErrorCode::NoSuchContainer
        | ErrorCode::NoSuchHost
        | ErrorCode::NoSuchEntry => 404,
        ErrorCode::NameTaken
        | ErrorCode::WrongState
        | ErrorCode::WrongCluster
        | ErrorCode::VersionMismatch
        | ErrorCode::MetastoreConflict => 409,
        ErrorCode::ResourcesImpossible | ErrorCode::BrokenPlan => 422,
        ErrorCode::StateUnavailable
        | ErrorCode::OutcomeUnknown
        | ErrorCode::SessionEnded
        | ErrorCode::Superseded
        | ErrorCode::Network
        | ErrorCode::NoRoom
        | ErrorCode::SchedulerUnavailable
        | ErrorCode::LimitReached => 503,
        _ => 500,
    }
}

/// Creates the error for an unknown job; `jobs` are the names of the known jobs.
pub fn no_such_job<'a>(name: &str, jobs: impl Iterator<Item = &'a str>) -> Error {
    let hint = match nearest(name, jobs) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`ardea list --all` shows the jobs that are known".to_string(),
    };
    Error::new(ErrorCode::NoSuchJob, format!("there is no job {name:?}")).hint(hint)
}

/// Creates the error for an unknown host; `hosts` are the names of the known hosts.
pub fn no_such_host<'a>(name: &str, hosts: impl Iterator<Item = &'a str>) -> Error {
    let hint = match nearest(name, hosts) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`ardea cluster status` lists the hosts".to_string(),
    };
    let what = format!("there is no host {name:?} that is up");
    Error::new(ErrorCode::NoSuchHost, what).hint(hint)
}

/// Creates the error for a container that is not in a job's plan; `known` are the containers of the
/// plan.
pub fn no_such_container(job: &str, container: ContainerId, known: &[ContainerId]) -> Error {
    let what = format!("job {job:?} has no container {container}");
    let numbers: Vec<String> = known.iter().map(ToString::to_string).collect();
    Error::new(ErrorCode::NoSuchContainer, what).hint(match &numbers[..] {
        [] => "it has none yet".to_string(),
        [only] => format!("it has one: {only}"),
        [first, .., last] if numbers.len() > MAX_LISTED_CONTAINERS => {
            format!("it has {}, from {first} to {last}", numbers.len())
        }
        all => format!("it has: {}", all.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_job_is_told_the_nearest_one() {
        let error = no_such_job("wordcuont", ["wordcount", "bids"].into_iter());
        assert_eq!(error.hint_text(), Some("did you mean wordcount?"));
    }
}
