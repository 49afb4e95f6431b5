//! Commands to the driver of a member, and their queue.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::protocol::{MapId, MemberId, Operation, Recipient};
use ardea_core::{PartitionId, Result};
use ardea_network::exchange::NetworkWaker;
use ardea_network::rpc::DetachedConnection;

use crate::node::listeners::EventListener;
use crate::node::request_handle::Requester;

/// Capacity of the queue.
const WAITING: usize = 4 << 10;

/// Retry delay of an async task that finds the queue full.
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// A command to the driver.
pub(crate) enum DriverCommand {
    /// Runs an operation and reports its outcome.
    Ask(Box<OperationRequest>),
    /// Runs several operations.
    AskAll(Vec<OperationRequest>),
    /// Takes over an accepted connection.
    Accepted(Box<DetachedConnection>),
    /// Takes over the result of connecting to a member.
    Connected(Recipient, Result<Box<DetachedConnection>>),
    /// Registers a listener for a map, and reports when all partitions are watched.
    Listen(MapId, Arc<dyn EventListener>, Sender<()>),
    /// Reports that a member is known to be dead.
    Dead(MemberId),
    /// Leaves the grid once other members hold all data.
    Leave,
    /// Stops immediately.
    Stop,
}

/// An operation and its requester.
pub(crate) struct OperationRequest {
    pub partition: PartitionId,
    pub operation: Operation,
    pub asker: Requester,
}

/// Sending end of the command queue. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CommandQueue {
    queue: SyncSender<DriverCommand>,
    bell: NetworkWaker,
}

/// Error: the member has stopped and takes no commands.
pub(crate) struct Stopped;

impl CommandQueue {
    /// Creates a queue whose senders wake the poller through `bell`.
    pub fn new(bell: NetworkWaker) -> (Self, Receiver<DriverCommand>) {
        let (queue, waiting) = sync_channel(WAITING);
        (CommandQueue { queue, bell }, waiting)
    }

    /// Sends a command, waiting while the queue is full.
    pub fn send(&self, order: DriverCommand) -> Result<(), Stopped> {
        self.queue.send(order).map_err(|_| Stopped)?;
        self.bell.notify();
        Ok(())
    }

    /// Sends a command if the queue is not full.
    pub fn try_send(&self, order: DriverCommand) -> Result<(), TrySendError<DriverCommand>> {
        self.queue.try_send(order)?;
        self.bell.notify();
        Ok(())
    }

    /// Sends a command from an async task, waiting while the queue is full. Returns false if the
    /// member has stopped.
    pub async fn bring(&self, mut order: DriverCommand) -> bool {
        loop {
            match self.try_send(order) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(again)) => order = again,
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Wakes the poller.
    pub fn ring(&self) {
        self.bell.notify();
    }
}
