//! The consumer: reads the messages of all producers.

#[cfg(not(loom))]
mod offer;
mod polled;

#[cfg(not(loom))]
pub use offer::{RemoteProducer, RingOffer};

use std::sync::Arc;
use std::time::Duration;
#[cfg(not(loom))]
use std::time::Instant;

use ardea_core::{AdaptiveSpin, Error, ErrorCode, Result};

use crate::counters::ConsumerCounters;
use crate::layout::{MAX_PRODUCERS, Mark, Position, Status, Tail, UNIT};
use crate::memory::Memory;
use crate::message::{HEAD_BYTES, Head, MessageHead, RingMessage, RingPayload};
use crate::peers::{Checked, Peer, ProducerEnd};
use crate::registry::Registry;
use crate::reservation::complete_last;
use crate::sync::{Futex, Ordering, fence, producers};

/// The number of messages after which the consumer checks for ended producers.
const END_INTERVAL: u64 = 256;

/// The settings of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingConfig {
    /// The size of the ring.
    pub size: crate::RingSize,
    /// The longest message that is accepted, in bytes.
    pub max_message: usize,
    /// The longest time that the consumer spins before it sleeps. It adapts below that: it is short
    /// if messages are rare.
    pub spin: Duration,
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig {
            size: crate::RingSize::default(),
            max_message: 64 << 20,
            spin: Duration::from_micros(20),
        }
    }
}

/// An event that the consumer finds in the ring.
#[derive(Debug)]
pub enum RingEvent<'a> {
    /// A message.
    Message(RingMessage<'a>),
    /// A producer has ended; all its messages were received before.
    Ended {
        /// The number of the producer.
        producer: u8,
        /// The reason.
        end: ProducerEnd,
    },
}

/// A slot that the consumer has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    start: Position,
    mark: Mark,
}

/// A message found in a slot, before it is borrowed.
enum PollOutcome {
    Message(Slot, Head, Checked),
    Ended(u8, ProducerEnd),
}

/// The reading end of a ring.
///
/// Dropping it closes the ring: producers get an error when they send.
#[derive(Debug)]
pub struct RingConsumer {
    memory: Arc<Memory>,
    registry: Arc<Registry>,
    peers: Vec<Option<Peer>>,
    /// The end of the window: slots before it were reached.
    cursor: Position,
    /// The head as the producers see it.
    released: Position,
    /// The slots of the window that are still being written, in order.
    pending: Vec<Slot>,
    /// The slot of the message that was returned last.
    current: Option<Slot>,
    /// The values of the registry's version and the ring's closures when they were last checked.
    seen: (u32, u32),
    /// True while a producer that has ended was not reported.
    is_ending: bool,
    max_message: usize,
    spin: AdaptiveSpin,
    counters: ConsumerCounters,
    polling: PolledState,
}

/// The state of an end whose owner sleeps and wakes by itself.
#[derive(Clone, Copy, Default, Debug)]
struct PolledState {
    /// True if the owner wakes the producer, and not a futex.
    is_on: bool,
    /// True while the producer believes that the owner sleeps.
    is_asleep: bool,
    /// True if the owner has to wake the producer.
    owes_wake: bool,
}

impl RingConsumer {
    /// Creates a ring.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if there is too little memory or too few file handles.
    #[cfg(not(loom))]
    pub fn new(config: RingConfig) -> Result<Self> {
        let memory = Memory::create(config.size.geometry(), Position::new(0))?;
        Ok(Self::with_memory(Arc::new(memory), config))
    }

    pub(crate) fn with_memory(memory: Arc<Memory>, config: RingConfig) -> Self {
        let head = Position::new(memory.head().load(Ordering::Acquire));
        RingConsumer {
            memory,
            registry: Arc::new(Registry::new()),
            peers: (0..MAX_PRODUCERS).map(|_| None).collect(),
            cursor: head,
            released: head,
            pending: Vec::new(),
            current: None,
            seen: (0, 0),
            is_ending: false,
            max_message: config.max_message,
            spin: AdaptiveSpin::up_to(config.spin),
            counters: ConsumerCounters::default(),
            polling: PolledState::default(),
        }
    }

    pub(crate) fn shared(&self) -> (&Arc<Memory>, &Arc<Registry>) {
        (&self.memory, &self.registry)
    }

    /// Returns the next message, or the end of a producer; `None` if there is none at the moment.
    /// Never waits.
    ///
    /// The bytes of a message are released by the next call. Messages of one producer come in their
    /// order. A message that is still being written does not hold back those of other producers.
    ///
    /// # Errors
    /// [`ErrorCode::BadMessage`] if the ring is damaged; it is then useless.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<RingEvent<'_>>> {
        Ok(match self.find()? {
            None => None,
            Some(PollOutcome::Ended(producer, end)) => Some(RingEvent::Ended { producer, end }),
            Some(PollOutcome::Message(slot, head, checked)) => {
                let payload = match (checked, &self.peers[usize::from(slot.mark.producer)]) {
                    (Checked::Assembled, Some(peer)) => RingPayload::assembled(peer.parts()),
                    _ => RingPayload::in_ring(&self.memory, slot.start, head.length as usize),
                };
                Some(RingEvent::Message(RingMessage {
                    head: MessageHead {
                        target: head.target,
                        epoch: head.epoch,
                    },
                    producer: slot.mark.producer,
                    sequence: head.sequence,
                    is_batch: head.is_batch,
                    payload,
                }))
            }
        })
    }

    fn find(&mut self) -> Result<Option<PollOutcome>> {
        self.current = None;
        self.awake();
        // Now and then also while the ring is never empty.
        if self.counters.messages.is_multiple_of(END_INTERVAL)
            && let Some(ended) = self.next_end()?
        {
            return Ok(Some(ended));
        }
        while let Some(slot) = self.next_slot()? {
            if let Some(found) = self.take(slot) {
                self.release(false);
                return Ok(Some(found));
            }
        }
        self.release(true);
        self.next_end()
    }

    /// Returns the next slot that has a message, and passes the empty ones.
    #[inline]
    fn next_slot(&mut self) -> Result<Option<Slot>> {
        if !self.pending.is_empty()
            && let Some(slot) = self.next_pending()
        {
            return Ok(Some(slot));
        }
        let geometry = self.memory.geometry();
        loop {
            let start = self.cursor;
            // Acquire: pairs with the producer's store of the mark.
            let word = self.memory.mark(start).load(Ordering::Acquire);
            if !Mark::is_of(word, geometry, start) {
                return Ok(None);
            }
            let Some(mark) = Mark::from_word(word, geometry, start) else {
                return Err(damaged("the mark of a slot is invalid"));
            };
            let end = start.plus(mark.units);
            if end.since(self.released) > geometry.units() {
                return Err(damaged("a slot overlaps one that was not released"));
            }
            if self.peer(mark.producer).is_none() {
                return Err(damaged("a slot belongs to no producer"));
            }
            self.cursor = end;
            match mark.status {
                Status::Ready if !self.has_pending(mark.producer) => {
                    return Ok(Some(self.pass(Slot { start, mark })));
                }
                // Behind an earlier slot of its producer, which is ready by now: the producer has
                // completed that slot before it reserved this one.
                Status::Ready | Status::Writing => {
                    self.pending.push(Slot { start, mark });
                    if let Some(slot) = self.next_pending() {
                        return Ok(Some(slot));
                    }
                }
                Status::Wrap => {}
                Status::Abandoned => self.counters.abandoned += 1,
                Status::Read => return Err(damaged("a slot was read already")),
            }
        }
    }

    fn has_pending(&self, producer: u8) -> bool {
        self.pending
            .iter()
            .any(|slot| slot.mark.producer == producer)
    }

    /// Marks a message as read if an earlier slot is still being written.
    #[inline]
    fn pass(&mut self, slot: Slot) -> Slot {
        if !self.pending.is_empty() {
            self.set_status(slot, Status::Read);
            self.counters.overtaking += 1;
        }
        slot
    }

    /// Changes the mark of a slot of which the consumer is the only owner.
    fn set_status(&self, slot: Slot, status: Status) {
        let mark = Mark {
            status,
            ..slot.mark
        };
        let word = mark.word(self.memory.geometry(), slot.start);
        self.memory.mark(slot.start).store(word, Ordering::Relaxed);
    }

    /// Returns the first pending slot that has become ready. Drops those without a message, among
    /// them those of dead producers.
    #[cold]
    fn next_pending(&mut self) -> Option<Slot> {
        let mut index = 0;
        while let Some(&slot) = self.pending.get(index) {
            match self.status(slot) {
                Status::Writing => {
                    index += 1;
                    continue;
                }
                Status::Ready => {
                    self.pending.remove(index);
                    return Some(slot);
                }
                Status::Wrap => {}
                Status::Read | Status::Abandoned => {
                    self.set_status(slot, Status::Abandoned);
                    self.counters.abandoned += 1;
                }
            }
            self.pending.remove(index);
        }
        None
    }

    /// Returns the present status of a pending slot. It is abandoned if its producer has ended, or
    /// if anything but the status has changed.
    fn status(&self, slot: Slot) -> Status {
        let peer = self.peers[usize::from(slot.mark.producer)].as_ref();
        // The mark is read after the flag: a producer may complete the slot and then end.
        let has_ended = peer.is_none_or(|peer| peer.has_ended(&self.memory, slot.mark.producer));
        let word = self.memory.mark(slot.start).load(Ordering::Acquire);
        let geometry = self.memory.geometry();
        let is_current = Mark::is_of(word, geometry, slot.start);
        match Mark::from_word(word, geometry, slot.start) {
            Some(Mark { status, .. }) if status == Status::Writing && has_ended => {
                Status::Abandoned
            }
            Some(Mark {
                status,
                producer,
                units,
            }) if is_current && (producer, units) == (slot.mark.producer, slot.mark.units) => {
                status
            }
            _ => Status::Abandoned,
        }
    }

    /// Returns the state of a producer; it may have been added since the last call.
    fn peer(&mut self, number: u8) -> Option<&mut Peer> {
        let peer = &mut self.peers[usize::from(number)];
        if peer.is_none() {
            *peer = self.registry.member(number).map(Peer::new);
        }
        peer.as_mut()
    }

    /// Takes the message of a slot; `None` if it is incomplete, or of a faulty producer.
    fn take(&mut self, slot: Slot) -> Option<PollOutcome> {
        let (memory, limit, number) = (&self.memory, self.max_message, slot.mark.producer);
        let peer = self.peers[usize::from(number)].as_mut()?;
        if peer.is_faulty {
            return None;
        }
        // Read once: the bytes may change.
        let mut bytes = [0; HEAD_BYTES];
        memory.read(slot.start, 0, &mut bytes);
        let checked = match Head::from_bytes(bytes, slot.mark.units) {
            None => {
                let what = "cannot read from a producer of a ring: its head is invalid";
                Err(Error::new(ErrorCode::BadMessage, what).hint("restart the producer's process"))
            }
            Some(head) => {
                let payload = RingPayload::in_ring(memory, slot.start, head.length as usize);
                peer.check(&head, limit, |parts| payload.append_to(parts))
                    .map(|checked| (head, checked))
            }
        };
        match checked {
            Ok((_, Checked::Part)) => None,
            Ok((head, checked)) => {
                self.counters.messages += 1;
                self.counters.bytes += u64::from(head.total);
                self.current = Some(slot);
                Some(PollOutcome::Message(slot, head, checked))
            }
            Err(error) => {
                peer.is_faulty = true;
                peer.drop_parts();
                Some(PollOutcome::Ended(number, ProducerEnd::Faulty(error)))
            }
        }
    }

    /// Releases the slots before the first one that is in use. Without `all`, only if they are an
    /// eighth of the ring, because each release takes a cache line from the producers.
    #[inline]
    fn release(&mut self, all: bool) {
        let mut free = self.cursor.since(self.released);
        for slot in self.pending.first().iter().copied().chain(&self.current) {
            free = free.min(slot.start.since(self.released));
        }
        if free == 0 || (!all && free < self.memory.geometry().units() / 8) {
            return;
        }
        self.released = self.released.plus(free);
        let memory = &self.memory;
        // Release: the slots were read before they are written again.
        memory.head().store(self.released.get(), Ordering::Release);
        // Either this sees that a producer waits, or the producer sees the head.
        fence(Ordering::SeqCst);
        if memory.waiting().load(Ordering::Relaxed) != 0 {
            memory.waiting().store(0, Ordering::Relaxed);
            match self.polling.is_on {
                true => self.polling.owes_wake = true,
                false => memory.wake(Futex::Releases),
            }
        }
    }

    /// Returns the end of a producer whose messages have all been received.
    fn next_end(&mut self) -> Result<Option<PollOutcome>> {
        let now = self.versions();
        if now == self.seen && !self.is_ending {
            return Ok(None);
        }
        if now.0 != self.seen.0 {
            for (peer, member) in self.peers.iter_mut().zip(self.registry.all()) {
                *peer = peer.take().or_else(|| member.map(Peer::new));
            }
        }
        self.seen = now;
        self.is_ending = false;
        let mut ended = None;
        for number in producers() {
            let is_pending = self.has_pending(number);
            let (memory, index) = (&self.memory, usize::from(number));
            let Some(peer) = &mut self.peers[index] else {
                continue;
            };
            if peer.until.is_none() && peer.has_ended(memory, number) {
                // Acquire, after the end was seen: all its slots are before this position.
                let tail = Tail::from_word(memory.tail().load(Ordering::Acquire));
                peer.until = Some(tail.position);
            }
            let Some(until) = peer.until else {
                continue;
            };
            let is_passed = self.cursor.is_at_or_after(until);
            if ended.is_some() || is_pending || !is_passed {
                self.is_ending = true;
                continue;
            }
            let (is_faulty, is_dead) = (peer.is_faulty, peer.is_dead());
            self.peers[index] = None;
            self.registry.remove(number);
            ended = match is_faulty {
                // Its end was reported when the fault was found.
                true => None,
                false if memory.closed(number).load(Ordering::Acquire) == 0 && is_dead => {
                    Some(PollOutcome::Ended(number, ProducerEnd::Lost))
                }
                false => Some(PollOutcome::Ended(number, ProducerEnd::Closed)),
            };
        }
        if self.is_ending && ended.is_none() {
            self.probe()?;
        }
        Ok(ended)
    }

    #[inline]
    fn versions(&self) -> (u32, u32) {
        let closures = self.memory.closures().load(Ordering::Acquire);
        (self.registry.version(), closures)
    }

    /// Makes a reserved slot at the cursor visible if its producer has not got so far. Returns true
    /// if there is a slot.
    fn probe(&self) -> Result<bool> {
        let memory = &self.memory;
        // Acquire: makes the marks of all but the last slot visible, and the claim of the last.
        let tail = Tail::from_word(memory.tail().load(Ordering::Acquire));
        if tail.position == self.cursor {
            return Ok(false);
        }
        complete_last(memory, tail);
        let word = memory.mark(self.cursor).load(Ordering::Acquire);
        match Mark::is_of(word, memory.geometry(), self.cursor) {
            true => Ok(true),
            false => Err(damaged("a reserved slot has no mark")),
        }
    }

    /// Returns true if [`poll`](Self::poll) would find or do something.
    fn has_work(&self) -> Result<bool> {
        let word = self.memory.mark(self.cursor).load(Ordering::Acquire);
        if Mark::is_of(word, self.memory.geometry(), self.cursor) || self.versions() != self.seen {
            return Ok(true);
        }
        for &slot in &self.pending {
            if self.status(slot) != Status::Writing {
                return Ok(true);
            }
        }
        self.probe()
    }

    /// Waits until [`poll`](Self::poll) has something to do, at most for `timeout`: spins for a
    /// short time and then sleeps, which costs nothing. May return early.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.current = None;
        self.release(true);
        if self.spin_for_work() {
            return Ok(());
        }
        let memory = &self.memory;
        let arrivals = memory.futex(Futex::Arrivals).load(Ordering::Acquire);
        memory.sleeping().store(1, Ordering::Relaxed);
        // Either this sees a new mark, or its producer sees the flag.
        fence(Ordering::SeqCst);
        let has_work = self.has_work();
        if matches!(has_work, Ok(false)) {
            self.counters.sleeps += 1;
            self.memory.sleep(Futex::Arrivals, arrivals, timeout);
        }
        self.memory.sleeping().store(0, Ordering::Relaxed);
        has_work.map(|_| ())
    }

    #[cfg(loom)]
    fn spin_for_work(&mut self) -> bool {
        false
    }

    /// Looks at the mark at the cursor for the time that has paid so far.
    #[cfg(not(loom))]
    fn spin_for_work(&mut self) -> bool {
        let spin = self.spin.next_spin();
        let (start, geometry) = (Instant::now(), self.memory.geometry());
        let mark = self.memory.mark(self.cursor);
        let mut has_work = false;
        while !has_work && start.elapsed() < spin {
            for _ in 0..32 {
                has_work |= Mark::is_of(mark.load(Ordering::Acquire), geometry, self.cursor);
                std::hint::spin_loop();
            }
        }
        if !spin.is_zero() {
            self.spin.learn(has_work);
        }
        has_work
    }

    /// Returns the number of producers whose end was not returned by [`poll`](Self::poll).
    pub fn producers(&self) -> usize {
        self.registry.all().iter().flatten().count()
    }

    /// Returns what this consumer has done so far.
    pub fn counters(&self) -> ConsumerCounters {
        let tail = Tail::from_word(self.memory.tail().load(Ordering::Acquire));
        let units = self.memory.geometry().units();
        ConsumerCounters {
            fill: tail.position.since(self.released).min(units) * UNIT as u64,
            capacity: units * UNIT as u64,
            ..self.counters
        }
    }
}

impl Drop for RingConsumer {
    fn drop(&mut self) {
        self.memory.consumer_gone().store(1, Ordering::Release);
        self.memory.wake(Futex::Releases);
    }
}

fn damaged(why: &str) -> Error {
    Error::new(
        ErrorCode::BadMessage,
        "cannot read a ring: a process has damaged it",
    )
    .because(why)
    .hint("restart the processes that share the ring")
}
