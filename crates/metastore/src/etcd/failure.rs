//! The classification of etcd's errors.

use crate::StatePath;
use crate::etcd::connection::EtcdConnection;
use ardea_core::Error;
use etcd_client::Error as EtcdError;
use std::error::Error as StdError;
use std::io::ErrorKind;

/// The gRPC status codes that are distinguished here.
mod status {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// The reaction to an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RetryAction {
    /// Nothing was sent: retry.
    RetryAny,
    /// The response was lost: only read-only requests may be retried.
    RetryReads,
    /// The lease has ended.
    LeaseOver,
    /// Fail: a retry would fail as well.
    None,
}

/// Classifies an error.
pub(crate) fn retry_action(error: &EtcdError) -> RetryAction {
    match error {
        EtcdError::GRpcStatus(status) => match i32::from(status.code()) {
            status::NOT_FOUND => RetryAction::LeaseOver,
            status::INVALID_ARGUMENT
            | status::PERMISSION_DENIED
            | status::FAILED_PRECONDITION
            | status::OUT_OF_RANGE
            | status::UNAUTHENTICATED => RetryAction::None,
            // The store is full, which it reports before it writes.
            status::RESOURCE_EXHAUSTED => RetryAction::None,
            _ if was_not_sent(status) => RetryAction::RetryAny,
            _ => RetryAction::RetryReads,
        },
        EtcdError::InvalidArgs(_)
        | EtcdError::InvalidUri(_)
        | EtcdError::InvalidMetadataValue(_)
        | EtcdError::EndpointsNotManaged => RetryAction::None,
        // The client's error for a renewal that returns no time to live.
        EtcdError::LeaseKeepAliveError(_) => RetryAction::LeaseOver,
        _ => RetryAction::RetryReads,
    }
}

/// Returns true if no connection could be made.
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

/// Returns the text of an error without the response metadata.
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

impl EtcdConnection {
    /// Creates an error that can't be fixed by a retry.
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
