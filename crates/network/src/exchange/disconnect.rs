//! The reasons why a connection ended.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode};

use crate::exchange::header::FrameError;
use crate::exchange::ids::StreamId;

/// The error of a connection that has ended. Frames in flight may or may not have arrived; the
/// sequence numbers show which are unacknowledged.
#[derive(Clone, Debug)]
pub struct Disconnected {
    /// The peer: its worker number, if it completed the handshake, and its address.
    pub peer: String,
    /// The reason.
    pub reason: DisconnectReason,
}

/// The reason why a connection ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The peer could not be connected to.
    Unreachable(Arc<io::Error>),
    /// The peer closed the connection between two frames.
    Closed,
    /// The connection failed, or was closed within a frame.
    Broken(Arc<io::Error>),
    /// Nothing was received from the peer for the given time.
    TimedOut(Duration),
    /// The peer sent bytes that are not valid frames.
    InvalidFrame(FrameError),
    /// The peer refused this worker, with this reason.
    RefusedByPeer(String),
    /// This worker refused the peer, with this reason.
    PeerRefused(String),
    /// The peer sent more than its window on this stream allowed.
    Overrun(StreamId),
    /// The memory shared with the peer cannot be created or used, or is damaged.
    RingFailed(Error),
    /// This side closed the connection.
    ClosedLocally,
}

impl Disconnected {
    pub(crate) fn new(peer: impl Into<String>, why: DisconnectReason) -> Self {
        Disconnected {
            peer: peer.into(),
            reason: why,
        }
    }
}

impl fmt::Display for Disconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = &self.peer;
        match &self.reason {
            DisconnectReason::Unreachable(error) => write!(f, "{peer} can't be reached: {error}"),
            DisconnectReason::Closed => write!(f, "{peer} closed the connection"),
            DisconnectReason::Broken(error) => {
                write!(f, "the connection to {peer} was cut: {error}")
            }
            DisconnectReason::TimedOut(time) => {
                write!(
                    f,
                    "nothing was received from {peer} for {} ms",
                    time.as_millis()
                )
            }
            DisconnectReason::InvalidFrame(error) => {
                write!(f, "cannot decode frames from {peer}: {error}")
            }
            DisconnectReason::RefusedByPeer(reason) => {
                write!(f, "{peer} refused the connection: {reason}")
            }
            DisconnectReason::PeerRefused(reason) => write!(f, "{peer} was refused: {reason}"),
            DisconnectReason::Overrun(stream) => {
                write!(f, "{peer} sent more than it was allowed on {stream}")
            }
            DisconnectReason::RingFailed(error) => {
                write!(f, "the memory shared with {peer} failed: {error}")
            }
            DisconnectReason::ClosedLocally => {
                write!(f, "the connection to {peer} was closed by this worker")
            }
        }
    }
}

impl std::error::Error for Disconnected {}

impl From<Disconnected> for Error {
    fn from(gone: Disconnected) -> Error {
        let hint = match gone.reason {
            DisconnectReason::Unreachable(_) => {
                "is the worker running, and does it listen at this address?"
            }
            DisconnectReason::InvalidFrame(FrameError::Version { .. }) => {
                "run the same version of ardea on all workers"
            }
            DisconnectReason::InvalidFrame(_) | DisconnectReason::Overrun(_) => {
                "is something else than a worker connected to this port?"
            }
            DisconnectReason::RefusedByPeer(_) | DisconnectReason::PeerRefused(_) => {
                "check the cluster's name, its token and the versions of both workers"
            }
            DisconnectReason::RingFailed(_) => {
                "the connection is opened again; if it fails often, set worker.transport=tcp"
            }
            _ => "check the log of that worker",
        };
        Error::new(ErrorCode::Network, gone.to_string()).hint(hint)
    }
}
