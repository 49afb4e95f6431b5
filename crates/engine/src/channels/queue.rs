//! The queue between two tasklets: chunks one way, emptied chunks back.

use std::sync::Arc;

use ardea_core::{Chunk, Marker};
use ardea_spsc::{Capacity, Consumer, Producer, PushError, ring};

use crate::channels::pending_producers::ProducerState;
use crate::executor::worker_shared::TaskletWaker;
use crate::pair_traffic::PairCounter;
use crate::panics::quietly;
use crate::remote::RemoteSignal;
use crate::shim::{AtomicBool, Ordering, fence};

/// A message of a queue.
#[derive(Debug)]
pub(crate) enum Message {
    Chunk(Chunk),
    Marker(Marker),
    /// A signal about remote producers, for an edge from another process.
    Signal(RemoteSignal),
    /// The state of expected producers, for a consumer added later to an edge from another process.
    Producers(ProducerState),
}

/// The flag shared by both ends: set by the sender, cleared by the receiver when it wakes the
/// sender.
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
    /// Number of records sent after the receiver was dropped.
    swallowed: u64,
    /// Counts the records sent, if the queue leads from one instance to another.
    sent: PairCounter,
}

/// The consuming tasklet's end.
#[derive(Debug)]
pub(crate) struct QueueReceiver {
    messages: Consumer<Message>,
    empties: Producer<Chunk>,
    shared: Arc<Shared>,
    sender: TaskletWaker,
}

/// Creates a queue of `capacity` messages between the tasklets that `sender` and `receiver` wake.
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
            sent: PairCounter::default(),
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
    /// Sets the counter of the records sent.
    pub(crate) fn counted(mut self, sent: PairCounter) -> Self {
        self.sent = sent;
        self
    }

    /// Returns true if a message can be sent now. Otherwise the sending tasklet is woken when one
    /// can.
    pub(crate) fn has_room(&mut self) -> bool {
        if !self.messages.is_full() {
            return true;
        }
        self.shared.sender_waits.store(true, Ordering::SeqCst);
        self.receiver.end_gathering();
        // Pairs with the fence in `pop`: either the receiver sees the flag, or its progress is seen
        // here.
        fence(Ordering::SeqCst);
        // A dropped receiver discards messages and must not block the sender; it wakes the sender
        // after it is dropped.
        !self.messages.is_full() || self.messages.consumer_is_gone()
    }

    /// Sends a message; the caller has checked that there is room. Discarded if the receiver was
    /// dropped: its tasklet or its job has ended.
    pub(crate) fn send(&mut self, message: Message) {
        if let Message::Chunk(chunk) = &message {
            self.sent.add(chunk.len());
        }
        match self.messages.push(message) {
            Ok(()) => {}
            Err(PushError::Gone(Message::Chunk(chunk))) => self.swallowed += chunk.len() as u64,
            Err(PushError::Gone(_)) => {}
            Err(PushError::Full(_)) => debug_assert!(false, "sent without asking for room"),
        }
        self.receiver.wake_for_data();
    }

    /// Returns the number of records sent after the receiver was dropped, since the last call.
    pub(crate) fn take_swallowed(&mut self) -> u64 {
        std::mem::take(&mut self.swallowed)
    }

    /// Returns an emptied chunk for reuse, or an unallocated one.
    pub(crate) fn spare(&mut self) -> Chunk {
        self.empties.pop().unwrap_or_default()
    }
}

impl QueueReceiver {
    /// Returns the next message.
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

    /// Returns the number of queued messages and the capacity.
    pub(crate) fn fill(&mut self) -> (usize, usize) {
        (self.messages.len(), self.messages.capacity())
    }

    /// Returns true if the sender waits for room.
    pub(crate) fn sender_waits(&self) -> bool {
        self.shared.sender_waits.load(Ordering::SeqCst)
    }

    /// Returns true if the sender has ended and all its messages have been taken.
    pub(crate) fn is_finished(&mut self) -> bool {
        self.messages.is_finished()
    }

    /// Drops this end with its content, and wakes a sender that waits for room.
    pub(crate) fn close(self) {
        let sender = self.sender.clone();
        // The content is user data, and so are its destructors.
        quietly(|| drop(self));
        sender.wake();
    }

    /// Returns an emptied chunk to the sender; it is freed if there are enough already.
    pub(crate) fn return_chunk(&mut self, chunk: Chunk) {
        let _ = self.empties.push(chunk);
    }
}
