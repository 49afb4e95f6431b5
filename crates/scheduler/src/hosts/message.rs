//! What a scheduler and the runner of a host say to each other.

use std::collections::BTreeMap;

use ardea_coordination::control::{ContainerRequest, Order};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::runner::Held;
use crate::{ContainerEvent, LaunchPlan, LogPiece, LogRequest, RunningContainer};

/// From a scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum ToRunner {
    /// The job that this connection is about; the first message.
    Begin(Box<LaunchPlan>),
    /// A question, with a number that its answer bears.
    Ask(u64, Question),
    /// Say something, so that both know that the other is there.
    Ping,
}

/// What a scheduler asks of the runner of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// Have exactly these containers there.
    Have {
        order: Order,
        wanted: Vec<ContainerRequest>,
        floor: u64,
    },
    /// Start this container again, or there from now on.
    Restart {
        order: Order,
        request: ContainerRequest,
        floor: u64,
    },
    /// Give up this container, which was started elsewhere.
    Release { id: ContainerId, up_to: u64 },
    /// Stop everything.
    Kill { order: Order },
    /// What there is.
    Stock,
    /// What runs.
    Containers,
    /// What a container has written.
    Logs {
        id: ContainerId,
        request: LogRequest,
    },
}

/// From the runner of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum FromRunner {
    /// Something has happened to a container.
    Event(ContainerEvent),
    /// The answer to the question of that number.
    Answer(u64, Result<Answer, Failure>),
    /// It can't take up the job.
    Refused(Failure),
    /// It is there.
    Pong,
}

/// What the runner of a host answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    Restarted(u64),
    Stock(Stock),
    Containers(Vec<RunningContainer>),
    Logs(LogPiece),
}

/// What there is on a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Stock {
    /// The job's containers.
    pub(super) held: Vec<Held>,
    /// What all containers may use together.
    pub(super) total: Resources,
    /// What those of all jobs need.
    pub(super) used: Resources,
    /// What is known of the host.
    pub(super) attributes: BTreeMap<String, String>,
}

/// Why something was not done, as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    code: String,
    text: String,
}

/// The codes that mean something to whoever asked; all others are told as the host's trouble.
const CODES: [ErrorCode; 7] = [
    ErrorCode::NoRoom,
    ErrorCode::Superseded,
    ErrorCode::StartFailed,
    ErrorCode::NoSuchContainer,
    ErrorCode::ReadFailed,
    ErrorCode::WriteFailed,
    ErrorCode::SchedulerUnavailable,
];

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = error.code().as_str();
        let text = error.to_string();
        let text = text
            .strip_prefix(code)
            .and_then(|text| text.strip_prefix(": "));
        Failure {
            code: code.to_string(),
            text: text.unwrap_or_default().to_string(),
        }
    }
}

impl Failure {
    /// The error, as one that has happened on that host.
    pub(super) fn on(self, host: &str) -> Error {
        let code = CODES.into_iter().find(|code| code.as_str() == self.code);
        let text: String = self
            .text
            .chars()
            .filter(|letter| !letter.is_control())
            .collect();
        match code {
            Some(code) => Error::new(code, format!("on host {host}: {text}")),
            None => Error::new(
                ErrorCode::SchedulerUnavailable,
                format!("on host {host}: {} {text}", self.code),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_code_and_words_on_its_way() {
        let error = Error::new(ErrorCode::StartFailed, "no program").hint("pack it");
        let told = Failure::from(error).on("h1");
        assert_eq!(told.to_string(), "ARD-621: on host h1: no program; pack it");
        let error = Error::new(ErrorCode::Internal, "a runner panicked");
        let told = Failure::from(error).on("h1");
        assert_eq!(told.code(), ErrorCode::SchedulerUnavailable);
        assert!(told.to_string().contains("ARD-900"));
    }
}
