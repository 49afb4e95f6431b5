//! Numbers distributed over instances, each processed exactly once across restores and rescales.
//! They number the records of generators and collections.

use ardea_core::instance_state::{self as kept, PeerInstances};
use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Instance, Progress, RestoredEntry, RestoredState,
    Result, SmallSnapshot, SnapshotRequest, SnapshotWriter, SourceControl, StateChunk, StateShape,
    Timestamp,
};
use serde::{Deserialize, Serialize};

/// The name of the state.
const STATE: &str = "numbers";

/// Every n-th number from a first one on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Stride {
    next: u64,
    step: u64,
    /// The exclusive upper bound.
    end: u64,
}

impl Stride {
    fn len(self) -> u64 {
        self.end
            .saturating_sub(self.next)
            .div_ceil(self.step.max(1))
    }

    fn advance(&mut self, count: u64) {
        self.next = self.next.saturating_add(count.saturating_mul(self.step));
    }
}

/// A run of `count` numbers that begins with `first`, with the distance `step`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberRun {
    /// The first number.
    pub first: u64,
    /// The distance of two numbers.
    pub step: u64,
    /// The number of numbers, at least one.
    pub count: u64,
}

/// The snapshot of an instance.
#[derive(Debug, Serialize, Deserialize)]
struct SequenceState {
    /// The number of instances.
    instances: u32,
    /// The next number of the instance's regular share, which contains every n-th number.
    own: u64,
    /// The unprocessed rest of shares taken over from other instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<Stride>,
    /// The start time, if the source needs it after a restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began: Option<Timestamp>,
}

/// The numbers below a bound that an instance has not processed yet, in ascending order. Snapshots
/// contain the progress.
///
/// Each of n instances has every n-th number. After a rescale, the instances first process the gaps
/// left by slower instances, and then share the numbers above the highest processed number.
#[derive(Debug)]
pub struct SequenceSplits {
    instance: Instance,
    own: Stride,
    left: Vec<Stride>,
    /// The start time, for sources that need it after a restore.
    pub(crate) began: Option<Timestamp>,
    draft: SmallSnapshot,
    restored: PeerInstances<SequenceState>,
    has_restored: bool,
}

impl SequenceSplits {
    /// Returns an instance's share of the numbers below `end`.
    pub fn new(instance: Instance, end: u64) -> Self {
        let own = Stride {
            next: instance.index.into(),
            step: instance.parallelism.into(),
            end,
        };
        SequenceSplits {
            instance,
            own,
            left: Vec::new(),
            began: None,
            draft: SmallSnapshot::default(),
            restored: PeerInstances::default(),
            has_restored: false,
        }
    }

    /// Sets the bound of the numbers, before the first is processed or the state is
    /// [restored](Checkpointed::on_restored).
    pub fn set_end(&mut self, end: u64) {
        self.own.end = end;
    }

    /// Returns true if the number is one that this instance has not processed yet.
    pub fn contains(&self, number: u64) -> bool {
        let mut strides = self.left.iter().chain(Some(&self.own));
        strides.any(|it| {
            let ahead = number.checked_sub(it.next).filter(|_| number < it.end);
            ahead.is_some_and(|ahead| ahead % it.step.max(1) == 0)
        })
    }

    /// Takes an entry of its state, for a processor with other states too.
    ///
    /// # Errors
    /// If it is an entry of another state, or cannot be read.
    pub fn restore_entry(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        match entry.state {
            STATE => {
                self.has_restored = true;
                self.restored.take(entry)
            }
            _ => Err(RestoredState::unknown(entry)),
        }
    }

    /// Returns true if [`restore_entry`](Self::restore_entry) has taken an entry.
    pub fn has_restored(&self) -> bool {
        self.has_restored
    }

    /// Returns the next run of numbers to process; `None` at the end.
    #[inline]
    pub fn front(&self) -> Option<NumberRun> {
        let run = |strand: Stride, count: u64| NumberRun {
            first: strand.next,
            step: strand.step,
            count,
        };
        if self.left.is_empty() {
            let count = self.own.len();
            return (count > 0).then(|| run(self.own, count));
        }
        let strands = self.left.iter().chain(Some(&self.own));
        let mut strands: Vec<_> = strands.filter(|strand| strand.len() > 0).collect();
        strands.sort_unstable_by_key(|strand| strand.next);
        let least = **strands.first()?;
        let until = strands.get(1).map_or(u64::MAX, |second| second.next);
        let before = Stride {
            end: least.end.min(until),
            ..least
        };
        Some(run(least, before.len()))
    }

    /// Marks `count` numbers of the [front](Self::front) as processed.
    #[inline]
    pub fn advance(&mut self, count: u64) {
        if self.left.is_empty() {
            return self.own.advance(count);
        }
        let least = self.left.iter_mut().min_by_key(|strand| strand.next);
        match least {
            Some(least) if self.own.len() == 0 || least.next < self.own.next => {
                least.advance(count);
                self.left.retain(|strand| strand.len() > 0);
            }
            _ => self.own.advance(count),
        }
    }

    /// Returns an error if a restored position lies beyond the end: the input has become shorter.
    fn check(&self, all: &[SequenceState]) -> Result<()> {
        let step = all.len() as u64;
        let ends = all.iter().flat_map(|kept| {
            // The number before the next one was processed, if any was.
            let own = kept
                .own
                .checked_sub(step)
                .map(|last| last.saturating_add(1));
            kept.left.iter().map(|strand| strand.end).chain(own)
        });
        let reached = ends.max().unwrap_or(0);
        if reached <= self.own.end {
            return Ok(());
        }
        let what = format!(
            "the source has {} records, but the checkpoint is at record {reached}",
            self.own.end
        );
        Err(Error::new(ErrorCode::ReadFailed, what)
            .hint("restore its former input, or start the job without the checkpoint")
            .permanent())
    }

    /// Continues from the restored positions of all former instances.
    fn resume(&mut self) -> Result<()> {
        let Some(mut all) = self.restored.all(|kept| kept.instances)? else {
            return Ok(());
        };
        self.check(&all)?;
        let Instance { index, parallelism } = self.instance;
        // With the latest start time, no record becomes older than its former event time.
        self.began = all.iter().filter_map(|kept| kept.began).max();
        if all.len() == parallelism as usize {
            let kept = all.swap_remove(index as usize);
            self.began = kept.began;
            self.own.next = kept.own;
            self.left = kept.left;
            return Ok(());
        }
        let step = all.len() as u64;
        // There are no numbers beyond the end.
        let frontier = all.iter().map(|kept| kept.own).max().unwrap_or(0);
        let frontier = frontier.min(self.own.end);
        let gaps = all.into_iter().flat_map(|kept| {
            let gap = Stride {
                next: kept.own,
                step,
                end: frontier,
            };
            kept.left.into_iter().chain(Some(gap))
        });
        let gaps = gaps.filter(|gap| gap.len() > 0);
        let own = (0..).zip(gaps).filter(|(n, _)| self.instance.owns(*n));
        self.left = own.map(|(_, gap)| gap).collect();
        let parallelism = u64::from(parallelism);
        let behind = (u64::from(index) + parallelism - frontier % parallelism) % parallelism;
        self.own.next = frontier.saturating_add(behind);
        Ok(())
    }
}

impl Checkpointed for SequenceSplits {
    fn states(&mut self) -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        let kept = SequenceState {
            instances: self.instance.parallelism,
            own: self.own.next,
            left: self.left.clone(),
            began: self.began,
        };
        let chunk: &mut StateChunk = self.draft.begin();
        kept::put(chunk, STATE, (self.instance.index, &[]), &kept)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.restored.restore(STATE, state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.resume()?;
        Ok(Progress::DONE)
    }
}

impl SourceControl for SequenceSplits {
    fn is_at_end(&self) -> bool {
        self.own.len() == 0 && self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes up to `most` numbers.
    fn take(numbers: &mut SequenceSplits, most: u64) -> Vec<u64> {
        let mut taken = Vec::new();
        while let Some(run) = numbers.front()
            && (taken.len() as u64) < most
        {
            let count = run.count.min(most - taken.len() as u64);
            assert!(count > 0);
            taken.extend((0..count).map(|n| run.first + n * run.step));
            numbers.advance(count);
        }
        taken
    }

    fn instances(count: u32, end: u64) -> Vec<SequenceSplits> {
        let of = |index| {
            let parallelism = count;
            SequenceSplits::new(Instance { index, parallelism }, end)
        };
        (0..count).map(of).collect()
    }

    /// Restores the snapshots of `before` into `count` instances.
    fn replaced(mut before: Vec<SequenceSplits>, count: u32, end: u64) -> Vec<SequenceSplits> {
        let mut chunk = StateChunk::default();
        for numbers in &mut before {
            numbers
                .take_snapshot(SnapshotRequest::full(Epoch(1)))
                .unwrap();
            let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
            assert!(numbers.write_snapshot(&mut writer).unwrap().done);
        }
        let mut after = instances(count, end);
        for numbers in &mut after {
            let (mut position, instance) = (0, numbers.instance);
            let mut state = RestoredState::new(&chunk, &mut position, instance, usize::MAX);
            numbers.restore(&mut state).unwrap();
            numbers.resume().unwrap();
        }
        after
    }

    proptest! {
        #[test]
        fn each_number_is_dealt_with_once_whatever_the_numbers_of_instances(
            end in 0u64..200,
            lives in prop::collection::vec((1u32..6, prop::collection::vec(0u64..40, 6)), 1..5),
        ) {
            let mut all = Vec::new();
            let mut numbers = instances(2, end);
            for (count, quotas) in lives {
                numbers = replaced(numbers, count, end);
                for (numbers, quota) in numbers.iter_mut().zip(quotas) {
                    let taken = take(numbers, quota);
                    prop_assert!(taken.is_sorted());
                    all.extend(taken);
                }
            }
            numbers.iter_mut().for_each(|numbers| all.extend(take(numbers, u64::MAX)));
            prop_assert!(numbers.iter().all(SequenceSplits::is_at_end));
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..end));
        }
    }

    #[test]
    fn a_position_beyond_the_end_is_refused_and_one_at_the_end_is_not() {
        for (before, after) in [(3, 3), (3, 2), (2, 5)] {
            let mut numbers = instances(before, 10);
            numbers.iter_mut().for_each(|it| drop(take(it, u64::MAX)));
            let mut numbers = replaced(replaced(numbers, after, 10), before, 12);
            let rest = numbers.iter_mut().flat_map(|it| take(it, u64::MAX));
            let mut rest: Vec<u64> = rest.collect();
            rest.sort_unstable();
            assert_eq!(rest, [10, 11]);
            let mut chunk = StateChunk::default();
            let mut numbers = instances(1, 10);
            take(&mut numbers[0], 8);
            numbers[0]
                .take_snapshot(SnapshotRequest::full(Epoch(1)))
                .unwrap();
            let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
            assert!(numbers[0].write_snapshot(&mut writer).unwrap().done);
            for (end, is_refused) in [(7, true), (8, false)] {
                let mut shorter = SequenceSplits::new(Instance::ONLY, end);
                let mut position = 0;
                let state = &mut RestoredState::new(&chunk, &mut position, Instance::ONLY, 100);
                shorter.restore(state).unwrap();
                assert_eq!(shorter.resume().is_err(), is_refused);
            }
        }
    }

    #[test]
    fn as_many_instances_go_on_as_they_were() {
        let mut numbers = instances(2, u64::MAX);
        assert_eq!(take(&mut numbers[0], 3), [0, 2, 4]);
        numbers[1].began = Some(Timestamp::from_secs(7));
        let mut numbers = replaced(numbers, 2, u64::MAX);
        assert_eq!(take(&mut numbers[0], 2), [6, 8]);
        assert_eq!(take(&mut numbers[1], 2), [1, 3]);
        assert_eq!(numbers[0].began, None);
        assert_eq!(numbers[1].began, Some(Timestamp::from_secs(7)));
        let more = replaced(numbers, 3, u64::MAX);
        assert!(more.iter().all(|numbers| numbers.began.is_some()));
    }

    #[test]
    fn the_last_numbers_there_are_do_no_harm() {
        let mut numbers = instances(3, u64::MAX);
        numbers[2].own.next = u64::MAX - 1;
        let numbers = replaced(numbers, 2, u64::MAX);
        assert!(numbers.iter().all(|numbers| numbers.front().is_some()));
    }
}
