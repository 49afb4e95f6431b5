//! The classification of ZooKeeper's errors.

use crate::StatePath;
use crate::zookeeper::connection::ZooKeeperConnection;
use ardea_core::Error;
use zookeeper_client::Error as ZkError;

/// Returns true if the response was lost with the connection; the request may have been executed.
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

impl ZooKeeperConnection {
    /// Creates an error from one that is neither a lost response nor expected by the operation.
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
