//! A bounded stream in order.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

use ardea_core::{
    Cut, CutWriter, Epoch, Error, ErrorCode, Inbox, Instance, InstanceContext, Ordinal, Outbox,
    PartitionId, Processor, Progress, RestoredState, Result, StateChunk, StateShape, Timestamp,
    Watermark,
};

use crate::keyed::{KeptAs, KeyedStates, STATE, unless_kept};

/// How many records are sorted at a time.
const RUN_RECORDS: usize = 1024;
/// How many runs a call readies for merging at most.
const HEADS_PER_CALL: usize = 1024;

/// Records with their event times.
type Records<T> = Vec<(T, Timestamp)>;

/// Emits all records at the end of the input, sorted by `key(record)`; equal keys stay in the order of their coming.
///
/// For bounded streams. For one order over the whole stream give the vertex one instance. Watermarks are swallowed: what
/// comes at the end would be late behind any of them.
///
/// Records are sorted in short runs as they come and the runs are merged at the end ("The Art of Computer Programming",
/// volume 3, section 5.4.1), so that no call takes long. Memory: all records. Cost: O(n log n).
///
/// They [survive](SortP::kept_as) run by run: an increment holds the runs that came since. Nothing is emitted while a cut is being written.
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
    /// What came, in runs by their numbers, which rise: sorted, but for the last if that is still open.
    runs: KeyedStates<u64, Records<T>>,
    /// The slot of the run that is open: it has fewer records than a whole one.
    open: Option<u32>,
    /// The number of the next run, or less.
    next: u64,
    instance: Instance,
    /// How runs are written where they have to survive it.
    kept: Option<KeptAs<u64, Records<T>>>,
    /// Once the input has ended.
    merge: Option<Merge<T, K>>,
}

/// Runs on their way out.
struct Merge<T, K> {
    /// How many slots have been looked at.
    readied: usize,
    runs: Vec<std::vec::IntoIter<(T, Timestamp)>>,
    /// Of each run that is not read out the first key, the run's number and its place; of equal keys the older run is first.
    heads: BinaryHeap<Reverse<(K, u64, usize)>>,
}

impl<T, K, F> SortP<T, K, F>
where
    K: Ord,
    F: Fn(&T) -> K,
{
    /// By `key`, which all instances share.
    pub fn new(key: Arc<F>) -> Self {
        SortP {
            key,
            runs: KeyedStates::default(),
            open: None,
            next: 0,
            instance: Instance::ONLY,
            kept: None,
            merge: None,
        }
    }

    /// Says how runs and their numbers are written, so that they survive it.
    pub fn kept_as(mut self, kept: KeptAs<u64, Records<T>>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Begins a run; its slot. Its number belongs to this instance as a key would: so no other has it, and whoever gets the run back knows
    /// which numbers are taken.
    fn begin_run(&mut self) -> u32 {
        let Instance { index, parallelism } = self.instance;
        while PartitionId::of(&self.next).owner(parallelism) != index {
            self.next += 1;
        }
        let slot = self.runs.slot_or_insert(Cow::Owned(self.next), Vec::new);
        self.next += 1;
        slot
    }

    /// A run is about to change.
    fn touch(&mut self, slot: u32) {
        let kept = &self.kept;
        self.runs
            .touch(slot, |chunk, number, run| write(kept, chunk, number, run));
    }

    /// No more comes into the open run.
    fn end_run(&mut self) {
        let Some(slot) = self.open.take() else {
            return;
        };
        self.touch(slot);
        if let Some((_, run)) = self.runs.get_mut(slot) {
            run.sort_by_cached_key(|(record, _)| (self.key)(record));
        }
    }

    /// Takes runs out of those that are kept; whether all have been.
    fn ready_some(&mut self) -> bool {
        let mut merge = self.merge.take().unwrap_or_else(|| {
            self.end_run();
            Merge {
                readied: 0,
                runs: Vec::new(),
                heads: BinaryHeap::new(),
            }
        });
        let slots = self.runs.slots();
        let to = slots.min(merge.readied + HEADS_PER_CALL);
        for slot in merge.readied as u32..to as u32 {
            self.touch(slot);
            let number = self.runs.get_mut(slot).map(|(number, _)| *number);
            if let (Some(number), Some(run)) = (number, self.runs.remove(slot)) {
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

/// Appends the entry of a run.
fn write<T>(
    kept: &Option<KeptAs<u64, Records<T>>>,
    chunk: &mut StateChunk,
    number: &u64,
    run: &Records<T>,
) -> Result<()> {
    match kept {
        Some(kept) => kept.write(chunk, number, run, |_| ()),
        None => Ok(()),
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
        if context.guarantee.keeps_state() {
            self.runs.keep_track();
        }
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let slot = match self.open {
            Some(slot) => slot,
            None => self.begin_run(),
        };
        self.open = Some(slot);
        self.touch(slot);
        let Some((_, run)) = self.runs.get_mut(slot) else {
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
        if self.merge.is_none() && self.runs.is_writing() {
            // The runs belong to the cut: to put them all aside would take as much memory again.
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

    fn forgets(&self) -> Option<&'static str> {
        unless_kept(self.kept.as_ref())
    }

    fn states(&self) -> Vec<StateShape> {
        self.kept.iter().map(|kept| kept.shape(STATE)).collect()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.runs.take_cut(cut)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let kept = &self.kept;
        self.runs.write_cut(writer, |chunk, number, _, run| {
            write(kept, chunk, number, run)
        })
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.runs.commit(epoch)
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.runs.give_up(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let Some(kept) = &self.kept else {
                return Err(RestoredState::unknown(&entry));
            };
            let (number, mut run, _) = kept.read(&entry)?;
            // The last one was open. It gets no more: its successor begins behind it.
            run.sort_by_cached_key(|(record, _)| (self.key)(record));
            self.next = self.next.max(number.saturating_add(1));
            self.runs.restore(number, run)?;
        }
        Ok(())
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
    use crate::drive::{Drive, Seen, at};
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
                (0..20).map(|n| Seen::Record(n, at(n))).collect::<Vec<_>>()
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
