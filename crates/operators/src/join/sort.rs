//! A sort of a bounded stream.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Error, ErrorCode, Inbox, Instance, InstanceContext, Ordinal, Outbox, PartitionId,
    Processor, Progress, Result, Timestamp, Watermark,
};
use ardea_state::{KeyedState, StateCodecs};

/// The number of records sorted at a time.
const RUN_RECORDS: usize = 1024;
/// The maximum number of runs prepared for merging per call.
const HEADS_PER_CALL: u32 = 1024;

/// Records with their event times.
type Records<T> = Vec<(T, Timestamp)>;

/// Emits all records at the end of the input, sorted by `key(record)`. Records with equal keys keep
/// the order of arrival.
///
/// For bounded streams. For a total order over the whole stream, set the parallelism to one.
/// Watermarks are not forwarded, as the results at the end would be late.
///
/// Records are sorted in short runs as they arrive, and the runs are merged at the end ("The Art of
/// Computer Programming", volume 3, section 5.4.1), so that each call is short. Memory: all
/// records. Cost: O(n log n).
///
/// Runs can be [checkpointed](SortP::with_codecs); an increment contains the new runs. Nothing is
/// emitted while a snapshot is being written.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::SortP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("to", Timestamp::MIN), ("be", Timestamp::MIN)])));
/// let mut outbox = Outbox::new(1, 16);
///
/// let mut sort = SortP::new(Arc::new(|word: &&'static str| *word));
/// sort.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert!(sort.complete(&mut outbox)?.done);
/// assert_eq!(outbox.lane::<&str>(Ordinal::FIRST)?.rows().values(), ["be", "to"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct SortP<T, K, F> {
    key: Arc<F>,
    /// The runs by ascending number, each sorted, except the open one and those of `restored`.
    runs: KeyedState<u64, Records<T>>,
    /// The slot of the open run, which is not full.
    open: Option<u32>,
    /// The number of leading slots with restored runs. The last of them may have been open when the
    /// snapshot was taken.
    restored: u32,
    /// A lower bound for the number of the next run. `None` before the first one.
    next: Option<u64>,
    instance: Instance,
    /// The merge, after the end of the input.
    merge: Option<Merge<T, K>>,
}

/// The merge of the runs.
struct Merge<T, K> {
    /// The number of slots whose runs were moved to the merge.
    readied: u32,
    runs: Vec<std::vec::IntoIter<(T, Timestamp)>>,
    /// Per unfinished run, its first key, number and index. Of equal keys, the older run is first.
    heads: BinaryHeap<Reverse<(K, u64, usize)>>,
}

impl<T, K, F> SortP<T, K, F>
where
    K: Ord,
    F: Fn(&T) -> K,
{
    /// Creates a sort by `key`, which instances share.
    pub fn new(key: Arc<F>) -> Self {
        SortP {
            key,
            runs: KeyedState::default(),
            open: None,
            restored: 0,
            next: None,
            instance: Instance::ONLY,
            merge: None,
        }
    }

    /// Sets the serializers of runs and their numbers, so that the state is checkpointed.
    pub fn with_codecs(mut self, codecs: StateCodecs<u64, Records<T>>) -> Self {
        self.runs.set_codecs(codecs);
        self
    }

    /// Starts a run and returns its slot. The run's number belongs to a partition of this instance,
    /// as a key would. The number is therefore unique, and the instance that restores the run knows
    /// which numbers are taken.
    fn begin_run(&mut self) -> Result<u32> {
        let Instance { index, parallelism } = self.instance;
        let mut next = self.next.unwrap_or_else(|| self.count_restored());
        while PartitionId::of(&next).owner(parallelism) != index {
            next += 1;
        }
        self.next = Some(next + 1);
        self.runs.slot(Cow::Owned(next), Vec::new)
    }

    /// Counts the restored runs, and returns the number after the last one.
    fn count_restored(&mut self) -> u64 {
        self.restored = self.runs.slots();
        let numbers = (0..self.restored).filter_map(|slot| self.runs.key(slot));
        numbers.max().map_or(0, |last| last.saturating_add(1))
    }

    /// Closes the open run.
    fn end_run(&mut self) {
        let Some(slot) = self.open.take() else {
            return;
        };
        if let Some((_, run)) = self.runs.update(slot) {
            run.sort_by_cached_key(|(record, _)| (self.key)(record));
        }
    }

    /// Moves runs from the state to the merge. Returns true if all have been moved.
    fn ready_some(&mut self) -> bool {
        let mut merge = self.merge.take().unwrap_or_else(|| {
            self.end_run();
            if self.next.is_none() {
                self.next = Some(self.count_restored());
            }
            Merge {
                readied: 0,
                runs: Vec::new(),
                heads: BinaryHeap::new(),
            }
        });
        let slots = self.runs.slots();
        let to = slots.min(merge.readied + HEADS_PER_CALL);
        for slot in merge.readied..to {
            let number = self.runs.key(slot).copied();
            if let (Some(number), Some(mut run)) = (number, self.runs.remove(slot)) {
                if slot < self.restored {
                    run.sort_by_cached_key(|(record, _)| (self.key)(record));
                }
                merge.runs.push(run.into_iter());
                merge.push_head(merge.runs.len() - 1, number, &*self.key);
            }
        }
        merge.readied = to;
        self.merge = Some(merge);
        to == slots
    }
}

impl<T, K: Ord> Merge<T, K> {
    fn push_head(&mut self, run: usize, number: u64, key: &impl Fn(&T) -> K) {
        if let Some((record, _)) = self.runs[run].as_slice().first() {
            self.heads.push(Reverse((key(record), number, run)));
        }
    }
}

impl<T, K, F> Processor for SortP<T, K, F>
where
    T: Send + 'static,
    K: Ord + Send + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.instance = context.instance;
        self.runs.open(context)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let slot = match self.open {
            Some(slot) => slot,
            None => self.begin_run()?,
        };
        self.open = Some(slot);
        let Some((_, run)) = self.runs.update(slot) else {
            return Err(Error::new(ErrorCode::Internal, "a run is not there"));
        };
        run.extend(inbox.rows::<T>()?.drain_front(usize::MAX));
        if run.len() >= RUN_RECORDS {
            self.end_run();
        }
        Ok(())
    }

    fn on_watermark(&mut self, _: Watermark, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.merge.is_none() && self.runs.is_writing_snapshot() {
            // The runs belong to the snapshot in progress. Setting all of them aside would double
            // the memory.
            return Ok(Progress::NONE);
        }
        let all_readied = self.ready_some();
        let Some(merge) = self.merge.as_mut().filter(|_| all_readied) else {
            return Ok(Progress::MADE);
        };
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        let made = !lane.is_full();
        while !lane.is_full() {
            let Some(Reverse((_, number, run))) = merge.heads.pop() else {
                break;
            };
            if let Some((record, time)) = merge.runs[run].next() {
                lane.push(record, time);
            }
            merge.push_head(run, number, &*self.key);
        }
        Ok(Progress {
            made,
            done: merge.heads.is_empty(),
        })
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.runs.unsaved_state()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.runs)
    }
}

impl<T, K, F> fmt::Debug for SortP<T, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SortP({} runs)", self.runs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, LaneOutput, at};
    use proptest::prelude::*;

    #[test]
    fn watermarks_do_not_make_the_sorted_records_late() {
        Drive::every_schedule(|drive| {
            let seen = drive
                .records((0..20i64).rev().map(|n| (n, at(n))))
                .watermark(at(99))
                .watermark(Timestamp::MAX)
                .run::<i64>(&mut SortP::new(Arc::new(|n: &i64| *n)));
            assert_eq!(
                seen.events(),
                (0..20)
                    .map(|n| LaneOutput::Record(n, at(n)))
                    .collect::<Vec<_>>()
            );
        });
    }

    proptest! {
        #[test]
        fn it_is_a_stable_sort(keys in prop::collection::vec(0u8..50, 0..5000), room in 1usize..2000) {
            let records: Vec<_> = keys.into_iter().enumerate().map(|(index, key)| (key, index)).collect();
            let drive = Drive::with_room(room).records(records.iter().map(|record| (*record, Timestamp::MIN)));
            let seen = drive.run::<(u8, usize)>(&mut SortP::new(Arc::new(|record: &(u8, usize)| record.0)));
            let mut expected = records;
            expected.sort_by_key(|record| record.0);
            prop_assert_eq!(seen.values(), expected);
        }
    }
}
