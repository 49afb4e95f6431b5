//! The micro-batches of the sources of a worker that may be restored alone.
//!
//! The ends of a source's micro-batches follow the clock, so they are no function of its input. The
//! consumers in other processes retain them, with the records that they belong to. A restored
//! process gets them back, and its sources end the same micro-batches after the same records.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Epoch, Error, ErrorCode, MicroBatch, Result, Timestamp, Watermark};

/// The length of an encoded end, in bytes.
const END_BYTES: usize = 41;

/// An instance of a source: the index of its vertex in the graph, and its own.
pub(crate) type SourceInstance = (u32, u32);

/// The end of a micro-batch of an instance of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceBatchEnd {
    /// The index of the vertex and of the instance.
    pub source: (u32, u32),
    /// The last epoch that the source had ended before; zero if there is none.
    pub after: Epoch,
    /// The number of the micro-batch.
    pub batch: MicroBatch,
    /// The number of its records.
    pub records: u64,
    /// The watermark that the source sent at the end; [`Watermark::NONE`] without one.
    pub watermark: Watermark,
    /// True if the source declared itself idle at the end.
    pub is_idle: bool,
}

impl SourceBatchEnd {
    /// Appends the encoded end.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.source.0.to_le_bytes());
        out.extend(self.source.1.to_le_bytes());
        for number in [self.after.0, self.batch.0, self.records] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.watermark.0.as_micros().to_le_bytes());
        out.push(self.is_idle.into());
    }

    /// Decodes the ends of `bytes`.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the last end is incomplete.
    pub fn decode(bytes: &[u8]) -> Result<Vec<SourceBatchEnd>> {
        let (ends, rest) = bytes.as_chunks::<END_BYTES>();
        if !rest.is_empty() {
            let what = "the ends of a source's micro-batches cannot be decoded";
            return Err(Error::new(ErrorCode::Network, what)
                .hint("run the same version of ardea on all workers"));
        }
        let number = |end: &[u8; END_BYTES], at: usize, length: usize| {
            let bytes = end[at..at + length].iter().rev();
            bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let decode = |end: &[u8; END_BYTES]| SourceBatchEnd {
            source: (number(end, 0, 4) as u32, number(end, 4, 4) as u32),
            after: Epoch(number(end, 8, 8)),
            batch: MicroBatch(number(end, 16, 8)),
            records: number(end, 24, 8),
            watermark: Watermark(Timestamp::from_micros(number(end, 32, 8) as i64)),
            is_idle: end[40] != 0,
        };
        Ok(ends.iter().map(decode).collect())
    }
}

/// The ends of the micro-batches of all sources of a process.
#[derive(Debug)]
pub struct SourceLog {
    /// The epoch from which the process was restored; zero without one.
    from: Epoch,
    /// True if the process was restored alone.
    is_restored_alone: bool,
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    /// The position of the first entry.
    first: u64,
    entries: VecDeque<SourceBatchEnd>,
    /// The readers, by number: the position of the next entry of each.
    readers: BTreeMap<u64, u64>,
    next_reader: u64,
    /// True if all readers have been created.
    is_open: bool,
    /// The readers whose peers have not reported what they have got.
    awaited: BTreeSet<u64>,
    /// The reported ends, by source.
    reported: BTreeMap<SourceInstance, Vec<SourceBatchEnd>>,
}

impl SourceLog {
    /// Creates the log of a process that was restored from `from`, alone or with all others.
    pub fn new(from: Option<Epoch>, is_restored_alone: bool) -> Self {
        SourceLog {
            from: from.unwrap_or_default(),
            is_restored_alone,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the epoch from which the process was restored.
    pub(crate) fn from(&self) -> Epoch {
        self.from
    }

    /// Returns the micro-batches that a source must end again; `None` while a consumer has not
    /// reported them.
    pub(crate) fn ends_to_repeat(
        &self,
        source: SourceInstance,
    ) -> Option<VecDeque<SourceBatchEnd>> {
        if !self.is_restored_alone {
            return Some(VecDeque::new());
        }
        let state = self.state();
        if !state.is_open || !state.awaited.is_empty() {
            return None;
        }
        let ends = state.reported.get(&source);
        Some(ends.cloned().unwrap_or_default().into())
    }

    /// Notes that the streams to all consumers have been created.
    pub fn open(&self) {
        self.state().is_open = true;
    }

    /// Adds the end of a micro-batch, before its marker is sent.
    pub(crate) fn add(&self, end: SourceBatchEnd) {
        let mut state = self.state();
        if !state.readers.is_empty() {
            state.entries.push_back(end);
        }
    }
}

/// A stream to a consumer in another process, which gets all ends of the log.
#[derive(Debug)]
pub struct SourceLogReader {
    log: Arc<SourceLog>,
    number: u64,
}

impl SourceLogReader {
    /// Creates a reader. A process that was restored alone waits for the [report](Self::report) of
    /// its consumer.
    pub fn new(log: Arc<SourceLog>) -> Self {
        let mut state = log.state();
        let number = state.next_reader;
        state.next_reader += 1;
        let end = state.first + state.entries.len() as u64;
        state.readers.insert(number, end);
        if log.is_restored_alone {
            state.awaited.insert(number);
        }
        drop(state);
        SourceLogReader { log, number }
    }

    /// Appends the encoded ends that were added since the last call.
    pub fn take_new(&mut self, out: &mut Vec<u8>) {
        let mut state = self.log.state();
        let LogState {
            first,
            entries,
            readers,
            ..
        } = &mut *state;
        let end = *first + entries.len() as u64;
        let Some(next) = readers.get_mut(&self.number) else {
            return;
        };
        let new = entries.iter().skip((*next - *first) as usize);
        new.for_each(|entry| entry.put(out));
        *next = end;
        state.trim();
    }

    /// Handles the ends that the consumer has got from the predecessor of this process.
    ///
    /// # Errors
    /// If the ends cannot be decoded, or contradict those of another consumer.
    pub fn report(&mut self, ends: &[u8]) -> Result<()> {
        let from = self.log.from;
        let mut state = self.log.state();
        if !state.awaited.remove(&self.number) {
            return Ok(());
        }
        let mut of_source: BTreeMap<SourceInstance, Vec<SourceBatchEnd>> = BTreeMap::new();
        for end in SourceBatchEnd::decode(ends)? {
            if end.after == from {
                of_source.entry(end.source).or_default().push(end);
            }
        }
        for (source, ends) in of_source {
            let known = state.reported.entry(source).or_default();
            let shared = known.len().min(ends.len());
            if known[..shared] != ends[..shared] {
                let what = "two containers have got different micro-batches of a source";
                return Err(Error::new(ErrorCode::PeerLost, what).hint(
                    "no action is required: the job restores the latest committed checkpoint",
                ));
            }
            if ends.len() > known.len() {
                *known = ends;
            }
        }
        Ok(())
    }
}

impl Drop for SourceLogReader {
    fn drop(&mut self) {
        let mut state = self.log.state();
        state.readers.remove(&self.number);
        state.awaited.remove(&self.number);
        state.trim();
    }
}

impl LogState {
    /// Drops the entries that all readers have got.
    fn trim(&mut self) {
        let end = self.first + self.entries.len() as u64;
        let needed = self.readers.values().min().copied().unwrap_or(end);
        let dropped = (needed - self.first) as usize;
        self.entries.drain(..dropped.min(self.entries.len()));
        self.first = needed;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn end(batch: u64, records: u64) -> SourceBatchEnd {
        SourceBatchEnd {
            source: (3, 1),
            after: Epoch(7),
            batch: MicroBatch(batch),
            records,
            watermark: Watermark(Timestamp::from_secs(batch as i64 - 2)),
            is_idle: batch == 2,
        }
    }

    fn encoded(ends: &[SourceBatchEnd]) -> Vec<u8> {
        let mut bytes = Vec::new();
        ends.iter().for_each(|end| end.put(&mut bytes));
        bytes
    }

    #[test]
    fn each_reader_gets_each_end_once_and_nothing_is_retained() {
        let log = Arc::new(SourceLog::new(Some(Epoch(7)), false));
        let mut readers = [(); 2].map(|()| SourceLogReader::new(Arc::clone(&log)));
        log.add(end(1, 10));
        let mut first = Vec::new();
        readers[0].take_new(&mut first);
        log.add(end(2, 0));
        readers[0].take_new(&mut first);
        let mut second = Vec::new();
        readers[1].take_new(&mut second);
        let expected = [end(1, 10), end(2, 0)];
        assert_eq!(SourceBatchEnd::decode(&first).unwrap(), expected);
        assert_eq!(first, second);
        assert!(log.state().entries.is_empty());
        assert!(SourceBatchEnd::decode(&first[1..]).is_err());
    }

    #[test]
    fn a_source_repeats_the_most_that_a_consumer_has_got_since_the_checkpoint() {
        let log = Arc::new(SourceLog::new(Some(Epoch(7)), true));
        let mut readers = [(); 2].map(|()| SourceLogReader::new(Arc::clone(&log)));
        let before = SourceBatchEnd {
            after: Epoch(6),
            ..end(1, 4)
        };
        let known = encoded(&[before, end(2, 5), end(4, 0)]);
        readers[0].report(&known).unwrap();
        log.open();
        assert_eq!(log.ends_to_repeat((3, 1)), None);
        readers[1].report(&encoded(&[end(2, 5)])).unwrap();
        let repeated = log.ends_to_repeat((3, 1)).unwrap();
        assert_eq!(repeated, [end(2, 5), end(4, 0)]);
        assert_eq!(log.ends_to_repeat((3, 0)), Some(VecDeque::new()));
    }

    #[test]
    fn different_reports_are_an_error_and_a_dropped_stream_is_not_awaited() {
        let log = Arc::new(SourceLog::new(Some(Epoch(7)), true));
        let [mut one, mut other, third] = [(); 3].map(|()| SourceLogReader::new(Arc::clone(&log)));
        one.report(&encoded(&[end(2, 5)])).unwrap();
        assert!(other.report(&encoded(&[end(2, 6)])).is_err());
        assert_eq!(log.ends_to_repeat((3, 1)), None);
        drop(third);
        assert_eq!(log.ends_to_repeat((3, 1)), None, "more may be created");
        log.open();
        assert!(log.ends_to_repeat((3, 1)).is_some());
    }
}
