//! A queue for outputs that found no room in their lane.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Lane, Ordinal, Outbox, Progress, Result, Timestamp};

/// A queue for the outputs of one record or one timer that did not fit into their lane.
///
/// User code that emits any number of records in one call cannot be suspended. Outputs that do not
/// fit are queued here and are written first when there is room. A processor with a backlog
/// therefore
///
/// 1. opens it with [`open`](Backlog::open) to write, and reads no further record once the
///    [`Output`] is full;
/// 2. flushes it with [`settle`](Backlog::settle) before it completes any other callback, so that
///    no watermark or marker overtakes a record;
/// 3. thus holds the outputs of at most one record.
///
/// ```
/// use ardea_core::{Chunk, Ordinal, Outbox, OutboxRuntime, Progress, Timestamp};
/// use ardea_operators::Backlog;
///
/// let mut outbox = Outbox::new(1, 2);
/// let mut backlog = Backlog::default();
/// let mut output = backlog.open(&mut outbox, Ordinal::FIRST)?;
/// for number in 0..3u32 {
///     output.emit(number, Timestamp::MIN);
/// }
/// assert!(output.is_full());
/// assert_eq!(backlog.settle(&mut outbox, Ordinal::FIRST)?, Progress::NONE);
///
/// outbox.take_chunk(0, Chunk::default); // the engine moves the first two on
/// assert_eq!(backlog.settle(&mut outbox, Ordinal::FIRST)?, Progress::DONE);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Backlog<U> {
    waiting: VecDeque<(U, Timestamp)>,
}

impl<U> Default for Backlog<U> {
    fn default() -> Self {
        Backlog {
            waiting: VecDeque::new(),
        }
    }
}

impl<U: Send + 'static> Backlog<U> {
    /// Returns true if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Moves queued records to the lane while the lane has room, and opens the lane for writing.
    ///
    /// # Errors
    /// Those of [`Outbox::lane`].
    pub fn open<'a>(
        &'a mut self,
        outbox: &'a mut Outbox,
        ordinal: Ordinal,
    ) -> Result<Output<'a, U>> {
        let mut lane = outbox.lane::<U>(ordinal)?;
        if !self.waiting.is_empty() {
            let count = lane.room().min(self.waiting.len());
            lane.rows().extend(self.waiting.drain(..count));
        }
        Ok(Output {
            lane,
            waiting: &mut self.waiting,
        })
    }

    /// Moves queued records to the lane. Returns `DONE` once the queue is empty; otherwise the
    /// callback is repeated when the lane has room.
    ///
    /// # Errors
    /// Those of [`Outbox::lane`].
    pub fn settle(&mut self, outbox: &mut Outbox, ordinal: Ordinal) -> Result<Progress> {
        if self.is_empty() {
            return Ok(Progress::DONE);
        }
        let made = outbox.has_room(ordinal);
        self.open(outbox, ordinal)?;
        self.wake_if_waiting(outbox);
        Ok(Progress {
            made,
            done: self.is_empty(),
        })
    }

    /// Requests an immediate wake-up if records are queued, as no other callback may come without
    /// input.
    pub fn wake_if_waiting(&self, outbox: &mut Outbox) {
        if !self.is_empty() {
            outbox.wake_at(Duration::ZERO);
        }
    }
}

/// A lane that accepts every record: a record without room is queued in the [`Backlog`].
#[derive(Debug)]
pub struct Output<'a, U> {
    lane: Lane<'a, U>,
    waiting: &'a mut VecDeque<(U, Timestamp)>,
}

impl<U> Output<'_, U> {
    /// Writes a record.
    #[inline]
    pub fn emit(&mut self, value: U, time: Timestamp) {
        // A full lane stays full while it is open, which preserves the order.
        if self.lane.is_full() {
            self.waiting.push_back((value, time));
        } else {
            self.lane.push(value, time);
        }
    }

    /// Returns true if the next record would be queued. The processor must stop reading.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.lane.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Chunk, OutboxRuntime, Rows};

    #[test]
    fn what_waited_comes_out_first_and_in_order() {
        let mut outbox = Outbox::new(1, 3);
        let mut backlog = Backlog::default();
        let mut seen = Vec::new();
        for round in 0..3u32 {
            let mut output = backlog.open(&mut outbox, Ordinal::FIRST).unwrap();
            (0..4).for_each(|n| output.emit(round * 4 + n, Timestamp::MIN));
            let rows: Option<Chunk> = outbox.take_chunk(0, Chunk::default);
            seen.extend_from_slice(rows.unwrap().rows::<u32>().unwrap().values());
        }
        while backlog.settle(&mut outbox, Ordinal::FIRST).unwrap() != Progress::DONE
            || !outbox.is_empty()
        {
            let mut chunk = outbox
                .take_chunk(0, Chunk::default)
                .unwrap_or_else(|| Chunk::new(Rows::<u32>::default()));
            seen.extend_from_slice(chunk.rows::<u32>().unwrap().values());
        }
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn a_backlog_that_stays_asks_to_be_woken() {
        let mut outbox = Outbox::new(1, 1);
        let mut backlog = Backlog::default();
        let mut output = backlog.open(&mut outbox, Ordinal::FIRST).unwrap();
        (0..2u8).for_each(|n| output.emit(n, Timestamp::MIN));
        assert_eq!(
            backlog.settle(&mut outbox, Ordinal::FIRST).unwrap(),
            Progress::NONE
        );
        assert_eq!(outbox.take_wake_at(), Some(Duration::ZERO));
    }
}
