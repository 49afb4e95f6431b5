//! The messages between the processes of a run.

use std::fmt;
use std::sync::Arc;

use ardea_core::Result;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::binary::BytesVisitor;
use crate::reduction::Subtree;

/// Encoded updates. Copies share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct ExchangePayload(Arc<[u8]>);

impl ExchangePayload {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for ExchangePayload {
    fn from(bytes: Vec<u8>) -> Self {
        ExchangePayload(bytes.into())
    }
}

impl fmt::Debug for ExchangePayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for ExchangePayload {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for ExchangePayload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Ok(from.deserialize_byte_buf(BytesVisitor)?.into())
    }
}

/// A message from one process of a run to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ExchangeMessage {
    /// The sender begins. All processes must begin in the same way.
    Start {
        /// The sender.
        process: u32,
        /// The number of iterations that its values contain.
        iterations: u64,
        /// The number of partitions of its dataset.
        partitions: u32,
        /// The names of its variables.
        variables: Vec<String>,
    },
    /// The merged updates of some partitions, for the process that merges the node's parent.
    Subtree {
        /// The iteration.
        iteration: u64,
        /// The node of the reduction tree.
        node: Subtree,
        /// The updates of all variables.
        updates: ExchangePayload,
    },
    /// The merged updates of all partitions.
    Merged {
        /// The iteration.
        iteration: u64,
        /// The updates of all variables.
        updates: ExchangePayload,
    },
    /// The sender's run has failed; so does the receiver's.
    Failed {
        /// The sender.
        process: u32,
        /// The stable code of the error.
        code: String,
        /// The error as text.
        error: String,
    },
    /// The sender has all updates of the run, and sends no further message.
    Finished {
        /// The sender.
        process: u32,
    },
}

impl ExchangeMessage {
    /// Returns the number of bytes of updates.
    pub fn update_bytes(&self) -> usize {
        match self {
            ExchangeMessage::Subtree { updates, .. } | ExchangeMessage::Merged { updates, .. } => {
                updates.bytes().len()
            }
            _ => 0,
        }
    }
}

/// The connections of one process of a run to the others.
///
/// Messages may arrive in any order, and repeatedly. A lost message blocks the run: an
/// implementation returns an error when it has lost a peer that has not [finished](
/// ExchangeMessage::Finished).
pub trait Exchange: fmt::Debug + Send + Sync {
    /// Returns the number of this process, from zero.
    fn process(&self) -> u32;

    /// Returns the number of processes.
    fn processes(&self) -> u32;

    /// Sends a message to another process, without waiting for it.
    ///
    /// # Errors
    /// [`ErrorCode::PeerLost`](ardea_core::ErrorCode::PeerLost) if the connection is lost;
    /// [`ErrorCode::LimitReached`](ardea_core::ErrorCode::LimitReached) if the message is too long.
    fn send(&self, to: u32, message: ExchangeMessage) -> Result<()>;

    /// Waits for the next message. Returns `None` after [`close`](Self::close).
    ///
    /// # Errors
    /// [`ErrorCode::PeerLost`](ardea_core::ErrorCode::PeerLost) if a peer was lost before it has
    /// finished.
    fn receive(&self) -> Result<Option<ExchangeMessage>>;

    /// Closes the connections after all sent messages.
    fn close(&self);
}

/// Returns the processes to which a process forwards a message that process 0 sends to all: a
/// binomial tree, so that no process sends more than `log2(processes)` copies.
pub(crate) fn forwards(process: u32, processes: u32) -> impl Iterator<Item = u32> {
    let first = 32 - process.leading_zeros();
    (first..32)
        .map_while(move |bit| process.checked_add(1 << bit))
        .take_while(move |to| *to < processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broadcast_reaches_each_process_once() {
        for processes in 1..40 {
            let mut reached = vec![0];
            let mut at = 0;
            while let Some(process) = reached.get(at).copied() {
                reached.extend(forwards(process, processes));
                at += 1;
            }
            reached.sort_unstable();
            assert_eq!(reached, (0..processes).collect::<Vec<_>>());
        }
    }
}
