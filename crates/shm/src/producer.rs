//! The producer: writes messages into the ring.

mod polled;

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use crate::counters::ProducerCounters;
use crate::layout::{Position, Status, UNIT};
use crate::memory::Memory;
use crate::message::{HEAD_BYTES, Head, LENGTH_BYTES, MessageHead};
use crate::peer_process::PeerProcess;
use crate::reservation::{Attempt, SlotWriter};
use crate::sync::{Futex, Ordering, fence};

/// The number of looks at a full ring before the producer sleeps.
const SPINS: u32 = if cfg!(loom) { 0 } else { 200 };
/// The time after which a sleeping producer checks that the consumer lives.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A message that is being written.
#[derive(Debug)]
struct OpenMessage {
    start: Position,
    units: u64,
    /// The bytes written into this slot, and the number that it is to have.
    written: usize,
    length: usize,
    /// The bytes that follow in later slots.
    left: usize,
    total: u32,
    is_first: bool,
    is_batch: bool,
    head: MessageHead,
}

/// One of the writing ends of a ring. Its messages reach the consumer in their order.
///
/// Dropping it closes it: the consumer learns that no more messages come.
#[derive(Debug)]
pub struct RingProducer {
    memory: Arc<Memory>,
    slots: SlotWriter,
    /// The process of the consumer; `None` if it is this one.
    consumer: Option<PeerProcess>,
    sequence: u64,
    open: Option<OpenMessage>,
    counters: ProducerCounters,
    /// True if the owner wakes the consumer, and not a futex.
    is_polled: bool,
    /// True if the owner has to wake the consumer.
    owes_wake: bool,
}

impl RingProducer {
    pub(crate) fn new(memory: Arc<Memory>, number: u8, consumer: Option<PeerProcess>) -> Self {
        RingProducer {
            slots: SlotWriter::new(&memory, number),
            memory,
            consumer,
            sequence: 0,
            open: None,
            counters: ProducerCounters::default(),
            is_polled: false,
            owes_wake: false,
        }
    }

    /// Returns the number by which the consumer knows this producer.
    pub fn number(&self) -> u8 {
        self.slots.number
    }

    /// Returns what this producer has done so far.
    pub fn counters(&self) -> ProducerCounters {
        self.counters
    }

    /// Returns the longest message that takes one slot, in bytes; a longer one is sent in parts.
    pub fn max_unsplit(&self) -> usize {
        self.memory.geometry().max_slot() as usize * UNIT - HEAD_BYTES
    }

    /// Sends a message; waits while the ring is full. After it returns, the message reaches the
    /// consumer even if this process dies.
    ///
    /// # Errors
    /// [`ErrorCode::PeerLost`] if the consumer is gone; [`ErrorCode::BadMessage`] if a process has
    /// damaged the ring; [`ErrorCode::LimitReached`] if the message has more than 4 GiB.
    pub fn send(&mut self, head: MessageHead, bytes: &[u8]) -> Result<()> {
        let mut writer = self.begin(head, bytes.len())?;
        writer.write(bytes)?;
        writer.commit()
    }

    /// Sends a message unless the ring is full; returns true if it was sent.
    ///
    /// # Errors
    /// As for [`send`](Self::send); [`ErrorCode::LimitReached`] if the message is longer than
    /// [`max_unsplit`](Self::max_unsplit).
    pub fn try_send(&mut self, head: MessageHead, bytes: &[u8]) -> Result<bool> {
        let Some(mut writer) = self.try_begin(head, bytes.len())? else {
            return Ok(false);
        };
        writer.write(bytes)?;
        writer.commit()?;
        Ok(true)
    }

    /// Starts a message of `length` bytes unless the ring is full; `None` if it is full.
    ///
    /// # Errors
    /// As for [`try_send`](Self::try_send).
    pub fn try_begin(
        &mut self,
        head: MessageHead,
        length: usize,
    ) -> Result<Option<MessageWriter<'_>>> {
        if length > self.max_unsplit() {
            let what = format!("cannot send {length} bytes without waiting");
            return Err(Error::new(ErrorCode::LimitReached, what)
                .hint("create a larger ring, or send with waiting"));
        }
        let is_open = self.open(head, length, false, false)?;
        Ok(is_open.then_some(MessageWriter { producer: self }))
    }

    /// Sends messages as one batch, which costs as much as one message; waits while the ring is
    /// full.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_batch(&mut self, head: MessageHead, messages: &[&[u8]]) -> Result<()> {
        let length = |bytes: &&[u8]| LENGTH_BYTES + bytes.len();
        self.open(head, messages.iter().map(length).sum(), true, true)?;
        let mut writer = MessageWriter { producer: self };
        for message in messages {
            // No overflow: the batch is shorter than 4 GiB.
            writer.write(&(message.len() as u32).to_ne_bytes())?;
            writer.write(message)?;
        }
        writer.commit()
    }

    /// Starts a message of `length` bytes, which is then written piece by piece into the ring;
    /// waits while the ring is full.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn begin(&mut self, head: MessageHead, length: usize) -> Result<MessageWriter<'_>> {
        self.open(head, length, false, true)?;
        Ok(MessageWriter { producer: self })
    }

    /// Reserves the first slot of a message. Returns false if the ring is full.
    fn open(
        &mut self,
        head: MessageHead,
        length: usize,
        is_batch: bool,
        waits: bool,
    ) -> Result<bool> {
        // A writer that was leaked has left its message open.
        self.abandon();
        let Ok(total) = u32::try_from(length) else {
            let what = format!("cannot send a message of {length} bytes: the limit is 4 GiB");
            return Err(Error::new(ErrorCode::LimitReached, what).hint("split it"));
        };
        let first = length.min(self.max_unsplit());
        let Some((start, units)) = self.reserve(first, waits)? else {
            return Ok(false);
        };
        self.open = Some(OpenMessage {
            start,
            units,
            written: 0,
            length: first,
            left: length - first,
            total,
            is_first: true,
            is_batch,
            head,
        });
        Ok(true)
    }

    /// Reserves a slot for so many bytes; `None` if the ring is full.
    #[inline]
    fn reserve(&mut self, length: usize, waits: bool) -> Result<Option<(Position, u64)>> {
        let units = (HEAD_BYTES + length).div_ceil(UNIT) as u64;
        loop {
            match self.slots.try_once(&self.memory, units) {
                Attempt::Reserved(start) => return Ok(Some((start, units))),
                Attempt::Wrapped(start, rest) => {
                    self.slots.mark(&self.memory, start, rest, Status::Wrap);
                }
                Attempt::Outrun => {
                    #[cfg(loom)]
                    loom::thread::yield_now();
                }
                Attempt::Full(_) if !waits => return self.check_consumer().map(|()| None),
                Attempt::Full(head) => self.wait_for_room(head)?,
                Attempt::Corrupt => {
                    let what = "cannot write into a ring: another process has damaged it";
                    return Err(Error::new(ErrorCode::BadMessage, what)
                        .hint("restart the processes that share the ring"));
                }
            }
        }
    }

    /// Waits until the consumer has moved its head from `seen`.
    #[cold]
    fn wait_for_room(&mut self, seen: Position) -> Result<()> {
        let memory = &self.memory;
        let is_full = || memory.head().load(Ordering::Acquire) == seen.get();
        for _ in 0..SPINS {
            if !is_full() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        while is_full() {
            self.check_consumer()?;
            memory.waiting().store(1, Ordering::Relaxed);
            // Acquire: a count after a release makes that release's head visible.
            let releases = memory.futex(Futex::Releases).load(Ordering::Acquire);
            // Either the consumer sees the flag after it has moved the head, or this sees the head.
            fence(Ordering::SeqCst);
            if is_full() && memory.consumer_gone().load(Ordering::Relaxed) == 0 {
                self.counters.sleeps += 1;
                memory.sleep(Futex::Releases, releases, Some(CHECK_INTERVAL));
            }
        }
        Ok(())
    }

    /// Fails if the consumer is gone.
    fn check_consumer(&self) -> Result<()> {
        let is_closed = self.memory.consumer_gone().load(Ordering::Acquire) != 0;
        if is_closed || self.consumer.as_ref().is_some_and(PeerProcess::has_ended) {
            let what = "cannot send through a ring: its consumer is gone";
            return Err(Error::new(ErrorCode::PeerLost, what));
        }
        Ok(())
    }

    /// Completes the slot of the open message, and wakes the consumer if it sleeps.
    #[inline]
    fn publish(&mut self, open: &OpenMessage) {
        let head = Head {
            length: open.length as u32,
            target: open.head.target,
            epoch: open.head.epoch,
            sequence: self.sequence,
            total: open.total,
            is_first: open.is_first,
            is_last: open.left == 0,
            is_batch: open.is_batch,
        };
        self.sequence += 1;
        let memory = &*self.memory;
        memory.write(open.start, 0, &head.to_bytes());
        self.slots
            .mark(memory, open.start, open.units, Status::Ready);
        self.wake();
    }

    /// Wakes the consumer if it sleeps.
    #[inline]
    fn wake(&mut self) {
        // Either the consumer sees the mark before it sleeps, or this sees its flag.
        fence(Ordering::SeqCst);
        if self.memory.sleeping().load(Ordering::Relaxed) != 0 {
            self.slots.step();
            self.counters.wakes += 1;
            match self.is_polled {
                true => self.owe_wake(),
                false => self.memory.wake(Futex::Arrivals),
            }
        }
    }

    /// Gives up the open message, if there is one.
    fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            let status = Status::Abandoned;
            self.slots
                .mark(&self.memory, open.start, open.units, status);
            self.wake();
        }
    }

    fn is_killed(&self) -> bool {
        #[cfg(test)]
        return self.slots.death.has_come();
        #[cfg(not(test))]
        false
    }

    #[cfg(test)]
    pub(crate) fn die_after(&self, steps: Option<u32>) {
        self.slots.death.after(steps);
    }
}

impl Drop for RingProducer {
    fn drop(&mut self) {
        if self.is_killed() {
            return;
        }
        self.abandon();
        // Release: all slots of this producer have their marks before.
        let number = self.slots.number;
        self.memory.closed(number).store(1, Ordering::Release);
        self.memory.closures().fetch_add(1, Ordering::AcqRel);
        self.wake();
    }
}

/// Writes one message piece by piece: see [`RingProducer::begin`].
///
/// A message that is dropped without [`commit`](Self::commit) is not delivered.
#[derive(Debug)]
pub struct MessageWriter<'a> {
    producer: &'a mut RingProducer,
}

impl MessageWriter<'_> {
    /// Appends bytes to the message. Waits while the ring is full, if the message is in parts.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if the message becomes longer than announced; otherwise as for
    /// [`RingProducer::send`].
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let producer = &mut *self.producer;
        while !bytes.is_empty() {
            let Some(mut open) = producer.open.take() else {
                return Err(wrong_length());
            };
            let count = bytes.len().min(open.length - open.written);
            let (now, rest) = bytes.split_at(count);
            producer
                .memory
                .write(open.start, HEAD_BYTES + open.written, now);
            open.written += count;
            bytes = rest;
            if bytes.is_empty() {
                producer.open = Some(open);
            } else if open.left > 0 {
                producer.publish(&open);
                let length = open.left.min(producer.max_unsplit());
                let Some((start, units)) = producer.reserve(length, true)? else {
                    return Err(wrong_length());
                };
                producer.open = Some(OpenMessage {
                    start,
                    units,
                    written: 0,
                    length,
                    left: open.left - length,
                    is_first: false,
                    ..open
                });
            } else {
                producer.open = Some(open);
                return Err(wrong_length());
            }
        }
        Ok(())
    }

    /// Sends the message.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if the message is shorter than announced; it is then not sent.
    /// [`ErrorCode::PeerLost`] if the consumer is gone.
    pub fn commit(self) -> Result<()> {
        let producer = &mut *self.producer;
        match producer.open.take() {
            Some(open) if open.written == open.length && open.left == 0 => {
                producer.publish(&open);
                producer.counters.messages += 1;
                producer.counters.bytes += u64::from(open.total);
                // The word shares its cache line with one that was just read.
                if producer.memory.consumer_gone().load(Ordering::Relaxed) != 0 {
                    return producer.check_consumer();
                }
                Ok(())
            }
            open => {
                producer.open = open;
                Err(wrong_length())
            }
        }
    }
}

impl Drop for MessageWriter<'_> {
    fn drop(&mut self) {
        if !self.producer.is_killed() {
            self.producer.abandon();
        }
    }
}

fn wrong_length() -> Error {
    let what = "cannot write a message: it has another length than announced";
    Error::new(ErrorCode::Internal, what)
}
