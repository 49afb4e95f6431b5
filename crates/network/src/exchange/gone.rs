//! Why a peer is no longer there.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode};

use crate::exchange::header::FrameError;
use crate::exchange::ids::StreamId;

/// A connection has ended. What was on its way may have arrived or not; the sequence numbers tell.
#[derive(Clone, Debug)]
pub struct PeerGone {
    /// Who: the worker if it has said so, and its address.
    pub peer: String,
    /// Why.
    pub why: Why,
}

/// Why a connection ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Why {
    /// It could not be reached in the first place.
    Unreachable(Arc<io::Error>),
    /// It closed the connection between two frames.
    Closed,
    /// The connection was cut within a frame, or failed.
    CutOff(Arc<io::Error>),
    /// Nothing has been heard of it for this long.
    Silent(Duration),
    /// What it sends are no frames.
    NotFrames(FrameError),
    /// It refused this worker, and said why.
    RefusedUs(String),
    /// This worker refused it.
    WeRefused(String),
    /// It sent more than its window on this stream allowed.
    Overrun(StreamId),
    /// This side closed the connection.
    Dropped,
}

impl PeerGone {
    pub(crate) fn new(peer: impl Into<String>, why: Why) -> Self {
        PeerGone {
            peer: peer.into(),
            why,
        }
    }
}

impl fmt::Display for PeerGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = &self.peer;
        match &self.why {
            Why::Unreachable(error) => write!(f, "{peer} can't be reached: {error}"),
            Why::Closed => write!(f, "{peer} closed the connection"),
            Why::CutOff(error) => write!(f, "the connection to {peer} was cut: {error}"),
            Why::Silent(time) => {
                write!(
                    f,
                    "{peer} has not been heard of for {} ms",
                    time.as_millis()
                )
            }
            Why::NotFrames(error) => write!(f, "what {peer} sends can't be read: {error}"),
            Why::RefusedUs(reason) => write!(f, "{peer} refused the connection: {reason}"),
            Why::WeRefused(reason) => write!(f, "{peer} was refused: {reason}"),
            Why::Overrun(stream) => {
                write!(f, "{peer} sent more than it was allowed on {stream}")
            }
            Why::Dropped => write!(f, "the connection to {peer} was given up"),
        }
    }
}

impl std::error::Error for PeerGone {}

impl From<PeerGone> for Error {
    fn from(gone: PeerGone) -> Error {
        let hint = match gone.why {
            Why::Unreachable(_) => "is the worker running, and does it listen at this address?",
            Why::NotFrames(FrameError::Version { .. }) => {
                "run the same version of ardea on all workers"
            }
            Why::NotFrames(_) | Why::Overrun(_) => {
                "is something else than a worker connected to this port?"
            }
            Why::RefusedUs(_) | Why::WeRefused(_) => {
                "check the cluster's name, its token and the versions of both workers"
            }
            _ => "look at the log of that worker",
        };
        Error::new(ErrorCode::Network, gone.to_string()).hint(hint)
    }
}
