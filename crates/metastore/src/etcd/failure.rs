//! What etcd's errors mean for whoever asked.

use crate::StatePath;
use crate::etcd::link::Link;
use ardea_core::Error;
use etcd_client::Error as EtcdError;
use std::error::Error as StdError;
use std::io::ErrorKind;

/// gRPC's numbers of the statuses that are told apart here.
mod status {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// What can be done about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remedy {
    /// Nothing was sent: try again.
    Again,
    /// The answer was lost: what only reads may be tried again.
    Lost,
    /// The lease is over.
    LeaseOver,
    /// None: it would fail again.
    None,
}

/// What can be done about it.
pub(crate) fn remedy(error: &EtcdError) -> Remedy {
    match error {
        EtcdError::GRpcStatus(status) => match i32::from(status.code()) {
            status::NOT_FOUND => Remedy::LeaseOver,
            status::INVALID_ARGUMENT
            | status::PERMISSION_DENIED
            | status::FAILED_PRECONDITION
            | status::OUT_OF_RANGE
            | status::UNAUTHENTICATED => Remedy::None,
            // The store is full, and says so before it writes.
            status::RESOURCE_EXHAUSTED => Remedy::None,
            _ if was_not_sent(status) => Remedy::Again,
            _ => Remedy::Lost,
        },
        EtcdError::InvalidArgs(_)
        | EtcdError::InvalidUri(_)
        | EtcdError::InvalidMetadataValue(_)
        | EtcdError::EndpointsNotManaged => Remedy::None,
        // How the client words that a renewal came back without time to live.
        EtcdError::LeaseKeepAliveError(_) => Remedy::LeaseOver,
        _ => Remedy::Lost,
    }
}

/// Whether no connection could be made in the first place.
fn was_not_sent(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return matches!(
                io.kind(),
                ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::NetworkDown
            );
        }
        cause = error.source();
    }
    false
}

/// An error's text without the whole of the answer that it came in.
pub(crate) fn reason(error: EtcdError) -> String {
    match error {
        EtcdError::GRpcStatus(status) => {
            let mut text = status.message().to_string();
            let mut cause = StdError::source(&status);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            text
        }
        error => error.to_string(),
    }
}

impl Link {
    /// An error that trying again does not mend.
    pub(crate) fn failed(&self, path: &StatePath, error: EtcdError) -> Error {
        let place = self.place();
        let code = match &error {
            EtcdError::GRpcStatus(status) => i32::from(status.code()),
            _ => 0,
        };
        let why = reason(error);
        match code {
            status::PERMISSION_DENIED | status::UNAUTHENTICATED => place.denied(path, why),
            status::RESOURCE_EXHAUSTED => {
                let hint =
                    "if its space is used up: compact and defragment etcd, then clear its alarm";
                place.refused(path, why, hint)
            }
            _ => place.refused(path, why, "see the etcd server's log"),
        }
    }
}
