//! What ZooKeeper's errors mean for whoever asked.

use crate::StatePath;
use crate::zookeeper::link::Link;
use ardea_core::Error;
use zookeeper_client::Error as ZkError;

/// Whether the answer was lost with the connection; what was asked may have been done.
pub(crate) fn is_lost(error: &ZkError) -> bool {
    matches!(
        error,
        ZkError::ConnectionLoss
            | ZkError::Timeout
            | ZkError::NoHosts
            | ZkError::SessionExpired
            | ZkError::SessionMoved
            | ZkError::ClientClosed
            | ZkError::Throttled
            | ZkError::UnexpectedError(_)
            | ZkError::UnmarshalError { .. }
            | ZkError::Custom(_)
    )
}

impl Link {
    /// An error that is neither a lost answer nor one that the operation expects.
    pub(crate) fn failed(&self, path: &StatePath, error: ZkError) -> Error {
        let place = self.place();
        match error {
            ZkError::NoAuth | ZkError::AuthFailed | ZkError::InvalidAcl => {
                place.denied(path, error)
            }
            ZkError::NotEmpty => place.not_empty(path),
            ZkError::NoChildrenForEphemerals => place.below_ephemeral(path),
            ZkError::QuotaExceeded => {
                place.refused(path, error, "raise the quota of the root in ZooKeeper")
            }
            ZkError::NotReadOnly => place.unavailable(format!("change {path}"), error),
            error if is_lost(&error) => place.unknown(path, error),
            error => place.refused(path, error, "see the ZooKeeper server's log"),
        }
    }
}
