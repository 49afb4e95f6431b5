//! Errors as the interface tells them: a status, and a body that says what, why and what to do next.

use ardea_core::settings::nearest;
use ardea_core::{Error, ErrorCode};
use ardea_packing::ContainerId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most containers whose numbers are listed in a message: those of large jobs fill no screen.
pub const MOST_NUMBERS: usize = 20;

/// What failed, as the interface tells it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// The stable code, such as `ARD-604`.
    pub code: String,
    /// What failed, on what, and why.
    pub message: String,
    /// What to do next, if that is known.
    pub hint: Option<String>,
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Self {
        Fault {
            code: error.code().as_str().to_string(),
            message: error.message(),
            hint: error.what_next().map(str::to_string),
        }
    }
}

impl From<Fault> for Error {
    /// A code that this version doesn't know becomes part of the message.
    fn from(fault: Fault) -> Error {
        let error = match ErrorCode::named(&fault.code) {
            Some(code) => Error::new(code, fault.message),
            None => Error::new(
                ErrorCode::BadAnswer,
                format!("{}: {}", fault.code, fault.message),
            ),
        };
        match fault.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

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
    fn an_error_comes_out_of_its_fault_as_it_went_in() {
        let error = Error::new(ErrorCode::NameTaken, "cannot submit")
            .because(std::io::Error::other("there is one"))
            .hint("choose another name");
        let fault = Fault::from(&error);
        assert_eq!(fault.code, "ARD-603");
        assert_eq!(fault.message, "cannot submit: there is one");
        assert_eq!(Error::from(fault).to_string(), error.to_string());
    }

    #[test]
    fn a_code_of_a_later_version_is_still_told() {
        let fault = Fault {
            code: "ARD-999".into(),
            message: "something new".into(),
            hint: None,
        };
        let error = Error::from(fault);
        assert_eq!(error.code(), ErrorCode::BadAnswer);
        assert!(error.to_string().contains("ARD-999: something new"));
    }

    #[test]
    fn a_misspelt_job_is_told_the_nearest_one() {
        let error = no_such_job("wordcuont", ["wordcount", "bids"].into_iter());
        assert_eq!(error.what_next(), Some("did you mean wordcount?"));
    }
}
