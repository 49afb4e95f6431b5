//! The messages between a scheduler and the runner of a host.

use std::collections::BTreeMap;

use ardea_coordination::control::{ContainerRequest, Order};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::runner::ContainerEntry;
use crate::{ContainerEvent, LaunchPlan, LogPiece, LogRequest, RunningContainer};

/// A message of a scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum ToRunner {
    /// The first message, with the job that this connection is for.
    Begin(Box<LaunchPlan>),
    /// A request, with a number that the answer repeats.
    Ask(u64, RunnerRequest),
    /// A ping, answered by [`FromRunner::Pong`].
    Ping,
}

/// A request of a scheduler to the runner of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum RunnerRequest {
    /// Run exactly these containers of the job on the host.
    Have {
        order: Order,
        wanted: Vec<ContainerRequest>,
        floor: u64,
    },
    /// Restart this container on the host, or start it there.
    Restart {
        order: Order,
        request: ContainerRequest,
        floor: u64,
    },
    /// Stop the incarnations of this container up to `up_to`, because another host has started a
    /// later one.
    Release { id: ContainerId, up_to: u64 },
    /// Stop all containers of the job on the host.
    Kill { order: Order },
    /// Return the host's inventory.
    Stock,
    /// Return the running containers of the job.
    Containers,
    /// Return a piece of a container's output.
    Logs {
        id: ContainerId,
        request: LogRequest,
    },
}

/// A message of the runner of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum FromRunner {
    /// An event of a container.
    Event(ContainerEvent),
    /// The answer to the request of that number.
    Answer(u64, Result<RunnerResponse, TransferredError>),
    /// The runner can't accept the job.
    Refused(TransferredError),
    /// The answer to a ping.
    Pong,
}

/// An answer of the runner of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum RunnerResponse {
    Done,
    Restarted(u64),
    Stock(HostInventory),
    Containers(Vec<RunningContainer>),
    Logs(LogPiece),
}

/// The inventory of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct HostInventory {
    /// The job's containers on the host.
    pub(super) held: Vec<ContainerEntry>,
    /// The resources of the host for all containers together.
    pub(super) total: Resources,
    /// The resources reserved by containers of all jobs.
    pub(super) used: Resources,
    /// The attributes of the host.
    pub(super) attributes: BTreeMap<String, String>,
}

/// An error in a form that can be sent between processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TransferredError {
    code: String,
    text: String,
}

/// The error codes that are passed on to the caller; all others are replaced by the code of an
/// unavailable host.
const CODES: [ErrorCode; 7] = [
    ErrorCode::NoRoom,
    ErrorCode::Superseded,
    ErrorCode::StartFailed,
    ErrorCode::NoSuchContainer,
    ErrorCode::ReadFailed,
    ErrorCode::WriteFailed,
    ErrorCode::SchedulerUnavailable,
];

impl From<Error> for TransferredError {
    fn from(error: Error) -> Self {
        let code = error.code().as_str();
        let text = error.to_string();
        let text = text
            .strip_prefix(code)
            .and_then(|text| text.strip_prefix(": "));
        TransferredError {
            code: code.to_string(),
            text: text.unwrap_or_default().to_string(),
        }
    }
}

impl TransferredError {
    /// Converts this to an error that names the host on which it happened.
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
        let told = TransferredError::from(error).on("h1");
        assert_eq!(told.to_string(), "ARD-621: on host h1: no program; pack it");
        let error = Error::new(ErrorCode::Internal, "a runner panicked");
        let told = TransferredError::from(error).on("h1");
        assert_eq!(told.code(), ErrorCode::SchedulerUnavailable);
        assert!(told.to_string().contains("ARD-900"));
    }
}
