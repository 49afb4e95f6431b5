//! What whoever drives a member is to do, and where that waits.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::protocol::{MapId, MemberId, Operation, Recipient};
use ardea_core::{PartitionId, Result};
use ardea_network::exchange::Doorbell;
use ardea_network::rpc::Apart;

use crate::node::asker::Asker;
use crate::node::ears::Ear;

/// How many orders may wait.
const WAITING: usize = 4 << 10;

/// How long a task waits that finds no room, before it looks again.
const LOOKS: Duration = Duration::from_millis(1);

/// What whoever drives a member is to do.
pub(crate) enum Order {
    /// Have that done, and tell who asks.
    Ask(Box<Ask>),
    /// The same for many.
    AskAll(Vec<Ask>),
    /// Somebody has connected.
    Accepted(Box<Apart>),
    /// That is what came of connecting to a member.
    Connected(Recipient, Result<Box<Apart>>),
    /// Have that hear of a map, and say when it does.
    Listen(MapId, Arc<dyn Ear>, Sender<()>),
    /// Somebody is proven to be dead.
    Dead(MemberId),
    /// Go when all is elsewhere.
    Leave,
    /// Stop at once.
    Stop,
}

/// An operation, and who asks for it.
pub(crate) struct Ask {
    pub partition: PartitionId,
    pub operation: Operation,
    pub asker: Asker,
}

/// Where orders are handed in. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Orders {
    queue: SyncSender<Order>,
    bell: Doorbell,
}

/// An order that nobody takes: the member has stopped.
pub(crate) struct Stopped;

impl Orders {
    /// Where orders are handed in, with a bell that says so, and where they come out.
    pub fn new(bell: Doorbell) -> (Self, Receiver<Order>) {
        let (queue, waiting) = sync_channel(WAITING);
        (Orders { queue, bell }, waiting)
    }

    /// Hands one in; waits until there is room.
    pub fn send(&self, order: Order) -> Result<(), Stopped> {
        self.queue.send(order).map_err(|_| Stopped)?;
        self.bell.ring();
        Ok(())
    }

    /// Hands one in if there is room.
    pub fn try_send(&self, order: Order) -> Result<(), TrySendError<Order>> {
        self.queue.try_send(order)?;
        self.bell.ring();
        Ok(())
    }

    /// Hands one in, from a task; whether somebody takes it.
    pub async fn bring(&self, mut order: Order) -> bool {
        loop {
            match self.try_send(order) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(again)) => order = again,
            }
            tokio::time::sleep(LOOKS).await;
        }
    }

    /// There is something to do.
    pub fn ring(&self) {
        self.bell.ring();
    }
}
