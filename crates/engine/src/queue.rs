//! The queue between two tasklets: chunks one way, emptied chunks back.

use std::sync::Arc;

use ardea_core::{Chunk, FarNews, Marker};
use ardea_spsc::{Capacity, Consumer, Producer, PushError, ring};

use crate::coming::Coming;
use crate::panics::quietly;
use crate::shim::{AtomicBool, Ordering, fence};
use crate::worker::TaskletWaker;

/// What travels through a queue.
#[derive(Debug)]
pub(crate) enum Message {
    Chunk(Chunk),
    Marker(Marker),
    /// From an edge that comes from another process.
    News(FarNews),
    /// From an edge that comes from another process, to one that is joined to it later: what is known of those who come there.
    Coming(Coming),
}

/// What both ends see. Written by the sender (true) and by the receiver (false, when it wakes the sender).
#[derive(Debug)]
struct Shared {
    sender_waits: AtomicBool,
}

/// The producing tasklet's end.
#[derive(Debug)]
pub(crate) struct QueueSender {
    messages: Producer<Message>,
    empties: Consumer<Chunk>,
    shared: Arc<Shared>,
    receiver: TaskletWaker,
    /// How many records were sent when the receiver was gone.
    swallowed: u64,
}

/// The consuming tasklet's end.
#[derive(Debug)]
pub(crate) struct QueueReceiver {
    messages: Consumer<Message>,
    empties: Producer<Chunk>,
    shared: Arc<Shared>,
    sender: TaskletWaker,
}

/// A queue of `capacity` messages between the two tasklets that the wakers wake.
pub(crate) fn queue(
    capacity: Capacity,
    sender: TaskletWaker,
    receiver: TaskletWaker,
) -> (QueueSender, QueueReceiver) {
    let (messages_in, messages_out) = ring(capacity);
    let (empties_in, empties_out) = ring(capacity);
    let shared = Arc::new(Shared {
        sender_waits: AtomicBool::new(false),
    });
    (
        QueueSender {
            messages: messages_in,
            empties: empties_out,
            shared: Arc::clone(&shared),
            receiver,
            swallowed: 0,
        },
        QueueReceiver {
            messages: messages_out,
            empties: empties_in,
            shared,
            sender,
        },
    )
}

impl QueueSender {
    /// Whether a message can be sent now. If not, the sending tasklet is woken when one can.
    pub(crate) fn has_room(&mut self) -> bool {
        if !self.messages.is_full() {
            return true;
        }
        self.shared.sender_waits.store(true, Ordering::SeqCst);
        // Pairs with the fence in `pop`: either the receiver sees the flag, or we see its progress here.
        fence(Ordering::SeqCst);
        // A consumer that has ended takes no more, but holds nobody back; the one that ends wakes us after it is gone.
        !self.messages.is_full() || self.messages.consumer_is_gone()
    }

    /// Sends a message; the caller has seen that there is room. A receiver that is gone swallows it: its job is ending, or it has ended.
    pub(crate) fn send(&mut self, message: Message) {
        match self.messages.push(message) {
            Ok(()) => {}
            Err(PushError::Gone(Message::Chunk(chunk))) => self.swallowed += chunk.len() as u64,
            Err(PushError::Gone(_)) => {}
            Err(PushError::Full(_)) => debug_assert!(false, "sent without asking for room"),
        }
        self.receiver.wake();
    }

    /// How many records a receiver that is gone has swallowed; since the last look.
    pub(crate) fn take_swallowed(&mut self) -> u64 {
        std::mem::take(&mut self.swallowed)
    }

    /// An emptied chunk that came back, or an unallocated one.
    pub(crate) fn spare(&mut self) -> Chunk {
        self.empties.pop().unwrap_or_default()
    }
}

impl QueueReceiver {
    /// The next message.
    pub(crate) fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop()?;
        // Pairs with the fence in `has_room`.
        fence(Ordering::SeqCst);
        if self.shared.sender_waits.load(Ordering::Relaxed) {
            self.shared.sender_waits.store(false, Ordering::SeqCst);
            self.sender.wake();
        }
        Some(message)
    }

    /// How many messages wait, of how many that may.
    pub(crate) fn fill(&mut self) -> (usize, usize) {
        (self.messages.len(), self.messages.capacity())
    }

    /// Whether the sender has ended and all that it sent has been taken.
    pub(crate) fn is_finished(&mut self) -> bool {
        self.messages.is_finished()
    }

    /// Drops this end with all that is in it, and lets the sender know if it waits for room.
    pub(crate) fn close(self) {
        let sender = self.sender.clone();
        // What is in it is the user's, and so are the destructors.
        quietly(|| drop(self));
        sender.wake();
    }

    /// Gives an emptied chunk back to the sender; it is freed if there are enough already.
    pub(crate) fn give_back(&mut self, chunk: Chunk) {
        let _ = self.empties.push(chunk);
    }
}
