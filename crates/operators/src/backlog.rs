//! Outputs that found no room yet.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Lane, Ordinal, Outbox, Progress, Result, Timestamp};

/// Outputs of one record, or one timer, beyond what its lane had room for.
///
/// User code that may emit any number of records at a time can't stop in the middle. What doesn't fit waits here, and goes
/// first when there is room. A processor with a backlog therefore
///
/// 1. opens it with [`open`](Backlog::open) whenever it writes, and reads no further record once the [`Output`] is full;
/// 2. settles it with [`settle`](Backlog::settle) before it is done with any other callback, so that no watermark or
///    marker overtakes a record;
/// 3. so holds the outputs of one record at most.
///
/// ```
/// use ardea_core::{Chunk, Ordinal, Outbox, Progress, Timestamp};
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
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Moves what waits to the lane, as far as it has room, and opens the lane for more.
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

    /// Moves what waits to the lane: done when nothing waits any more. Else asks to be woken when the lane has room again.
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

    /// Asks to be called again at once if something waits; without input no other callback might come.
    pub fn wake_if_waiting(&self, outbox: &mut Outbox) {
        if !self.is_empty() {
            outbox.wake_at(Duration::ZERO);
        }
    }
}

/// A lane that never refuses: what has no room waits in the [`Backlog`].
#[derive(Debug)]
pub struct Output<'a, U> {
    lane: Lane<'a, U>,
    waiting: &'a mut VecDeque<(U, Timestamp)>,
}

impl<U> Output<'_, U> {
    /// Writes a record.
    #[inline]
    pub fn emit(&mut self, value: U, time: Timestamp) {
        // A full lane stays full while it is open, so that order is kept.
        if self.lane.is_full() {
            self.waiting.push_back((value, time));
        } else {
            self.lane.push(value, time);
        }
    }

    /// Whether the next record would have to wait: read no further.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.lane.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Chunk, Rows};

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
