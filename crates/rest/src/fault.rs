//! The status of an error in the REST interface, and errors that name what is there.

use ardea_config::nearest;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};

/// The most containers whose numbers are listed in a message: those of large jobs fill no screen.
pub const MOST_NUMBERS: usize = 20;

/// The HTTP status of an error: 4xx if whoever asked can mend it, 503 if trying again may help.
pub fn status_of(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::InvalidJob | ErrorCode::InvalidConfig | ErrorCode::BadRequest => 400,
        ErrorCode::Unauthorized => 401,
        ErrorCode::NoSuchJob
        | ErrorCode::NoSuchContainer
        | ErrorCode::NoSuchHost
        | ErrorCode::NoSuchEntry => 404,
        ErrorCode::NameTaken
        | ErrorCode::WrongState
        | ErrorCode::WrongCluster
        | ErrorCode::VersionMismatch
        | ErrorCode::StateConflict => 409,
        ErrorCode::ResourcesImpossible | ErrorCode::BrokenPlan => 422,
        ErrorCode::StateUnavailable
        | ErrorCode::StateUnknown
        | ErrorCode::SessionEnded
        | ErrorCode::Superseded
        | ErrorCode::Network
        | ErrorCode::NoRoom
        | ErrorCode::SchedulerUnavailable
        | ErrorCode::LimitReached => 503,
        _ => 500,
    }
}

/// The error for a job that the cluster hasn't; `jobs` are those that it has.
pub fn no_such_job<'a>(name: &str, jobs: impl Iterator<Item = &'a str>) -> Error {
    let hint = match nearest(name, jobs) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`ardea list --all` shows the jobs that are known".to_string(),
    };
    Error::new(ErrorCode::NoSuchJob, format!("there is no job {name:?}")).hint(hint)
}

/// The error for a host that the cluster hasn't; `hosts` are those that it has.
pub fn no_such_host<'a>(name: &str, hosts: impl Iterator<Item = &'a str>) -> Error {
    let hint = match nearest(name, hosts) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`ardea cluster status` shows its hosts".to_string(),
    };
    let what = format!("there is no host {name:?} that is up");
    Error::new(ErrorCode::NoSuchHost, what).hint(hint)
}

/// The error for a container that a job hasn't by its plan, which has these.
pub fn no_such_container(job: &str, container: ContainerId, known: &[ContainerId]) -> Error {
    let what = format!("job {job:?} has no container {container}");
    let numbers: Vec<String> = known.iter().map(ToString::to_string).collect();
    Error::new(ErrorCode::NoSuchContainer, what).hint(match &numbers[..] {
        [] => "it has none yet".to_string(),
        [only] => format!("it has one: {only}"),
        [first, .., last] if numbers.len() > MOST_NUMBERS => {
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
        assert_eq!(error.what_next(), Some("did you mean wordcount?"));
    }
}
