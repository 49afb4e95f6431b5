//! Watermarks by partition.

use std::sync::Arc;

use ardea_core::{
    Epoch, Error, ErrorCode, Instance, InstanceContext, Key, PARTITION_COUNT, PartitionId,
    RestoredEntry, Result, SnapshotWriter, Timestamp, Watermark,
};

use ardea_state::truncated_entry;

/// The name of the checkpointed state.
pub(crate) const WATERMARK_STATE: &str = "told";

/// The watermark of each partition. The windows of the partition have been emitted up to this
/// watermark, which also decides which records are late.
///
/// All partitions have the watermark of the instance, except after a rescale: partitions of several
/// instances may then meet in one instance. The watermarks of those instances may differ, since
/// each decides separately when an input is idle. The instance continues from the lowest of them.
/// Partitions that are *ahead* have emitted windows that others have not, and must not emit them
/// again.
///
/// A snapshot contains one entry per instance: the watermarks of its partitions, in runs of equal
/// ones.
#[derive(Debug)]
pub(crate) struct PartitionWatermarks {
    instance: Instance,
    now: Watermark,
    /// Watermarks by partition, while some are ahead.
    ahead: Option<Arc<[Watermark]>>,
    /// The contents of the snapshot in progress.
    snapshot: Option<(Epoch, Vec<u8>)>,
    /// Restored watermarks by partition.
    restored: Vec<Watermark>,
    /// True from a restore until the first watermark above the restored one.
    resumes: bool,
}

/// The size of a run in bytes: its first and last partition, and the watermark.
const RUN: usize = 12;

impl Default for PartitionWatermarks {
    fn default() -> Self {
        PartitionWatermarks {
            instance: Instance::ONLY,
            now: Watermark::NONE,
            ahead: None,
            snapshot: None,
            restored: Vec::new(),
            resumes: false,
        }
    }
}

impl PartitionWatermarks {
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.instance = context.instance;
    }

    /// Returns the watermark of the instance.
    pub(crate) fn now(&self) -> Watermark {
        self.now
    }

    /// Returns the watermarks by partition, if some are ahead.
    pub(crate) fn ahead(&self) -> Option<&[Watermark]> {
        self.ahead.as_deref()
    }

    /// Returns the watermark of the partition of `key`.
    #[inline]
    pub(crate) fn of<K: Key>(&self, key: &K) -> Watermark {
        match &self.ahead {
            None => self.now,
            Some(ahead) => ahead[PartitionId::of(key).index() as usize].max(self.now),
        }
    }

    /// Returns true if `watermark` was already processed before the restore. It is then only
    /// forwarded.
    pub(crate) fn is_already_processed(&mut self, watermark: Watermark) -> bool {
        self.resumes &= watermark <= self.now;
        self.resumes
    }

    /// Advances the instance to `watermark`.
    pub(crate) fn advance(&mut self, watermark: Watermark) {
        self.now = self.now.max(watermark);
        if let Some(ahead) = &self.ahead
            && ahead.iter().all(|other| *other <= self.now)
        {
            self.ahead = None;
        }
    }

    fn own(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let of = self.instance;
        let all = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
        all.filter(move |partition| partition.owner(of.parallelism) == of.index)
    }

    /// Captures the current watermarks for a snapshot.
    pub(crate) fn take_snapshot(&mut self, epoch: Epoch) {
        let mut runs: Vec<(u32, u32, Watermark)> = Vec::new();
        for partition in self.own().map(PartitionId::index) {
            let ahead = self.ahead().map(|ahead| ahead[partition as usize]);
            let told = ahead.map_or(self.now, |ahead| ahead.max(self.now));
            match runs.last_mut() {
                Some((_, last, same)) if *same == told => *last = partition,
                _ => runs.push((partition, partition, told)),
            }
        }
        let bytes = runs.into_iter().flat_map(|(first, last, told)| {
            let mut run = [0; RUN];
            run[..2].copy_from_slice(&(first as u16).to_le_bytes());
            run[2..4].copy_from_slice(&(last as u16).to_le_bytes());
            run[4..].copy_from_slice(&told.0.as_micros().to_le_bytes());
            run
        });
        self.snapshot = Some((epoch, bytes.collect()));
    }

    /// Writes the captured snapshot: one entry, which always fits.
    ///
    /// # Errors
    /// Those of [`SnapshotWriter::set`].
    pub(crate) fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<()> {
        match self.snapshot.take() {
            Some((epoch, runs)) => {
                writer.set(
                    WATERMARK_STATE,
                    None,
                    &self.instance.index.to_le_bytes(),
                    &runs,
                )?;
                writer.outdate(WATERMARK_STATE, epoch)
            }
            None => Ok(()),
        }
    }

    /// Reads a restored entry of any instance.
    ///
    /// # Errors
    /// The entry cannot be read.
    pub(crate) fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        self.restored
            .resize(PARTITION_COUNT as usize, Watermark::NONE);
        let (runs, rest) = entry.value.as_chunks::<RUN>();
        if !rest.is_empty() {
            return Err(truncated_entry());
        }
        for [f0, f1, l0, l1, time @ ..] in runs {
            let first = u16::from_le_bytes([*f0, *f1]).into();
            let last = u16::from_le_bytes([*l0, *l1]).into();
            let told = Watermark(Timestamp::from_micros(i64::from_le_bytes(*time)));
            let partitions = self.restored.get_mut(first..=last).ok_or_else(|| {
                let what = format!("there are no partitions from {first} to {last}");
                Error::new(ErrorCode::BadRecord, what).hint("start from another checkpoint")
            })?;
            partitions.fill(told);
        }
        Ok(())
    }

    /// Prepares the state for another instance that continues with it. That instance receives the
    /// known watermarks again.
    pub(crate) fn taken_over(&mut self) {
        self.resumes = true;
    }

    /// Completes the restore. Partitions whose input has ended have no state and do not hold back
    /// others.
    pub(crate) fn restored(&mut self) {
        let ahead = std::mem::take(&mut self.restored);
        self.resumes = true;
        if ahead.is_empty() {
            return;
        }
        let own = self
            .own()
            .map(|partition| ahead[partition.index() as usize]);
        let own: Vec<Watermark> = own.collect();
        let goes_on = own.iter().copied().filter(|told| *told != Watermark::END);
        self.now = goes_on.min().unwrap_or(Watermark::END);
        let are_alike = own.iter().all(|told| *told == self.now);
        self.ahead = (!are_alike).then(|| ahead.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{RestoredState, StateChunk};

    fn at(secs: i64) -> Watermark {
        Watermark(Timestamp::from_secs(secs))
    }

    fn of(index: u32, parallelism: u32) -> PartitionWatermarks {
        PartitionWatermarks {
            instance: Instance { index, parallelism },
            ..PartitionWatermarks::default()
        }
    }

    fn hand_over(told: &mut PartitionWatermarks, chunk: &mut StateChunk) {
        told.take_snapshot(Epoch(1));
        told.advance(at(99));
        told.write_snapshot(&mut SnapshotWriter::new(chunk, usize::MAX))
            .unwrap();
    }

    fn restored(mut told: PartitionWatermarks, chunk: &StateChunk) -> PartitionWatermarks {
        let mut position = 0;
        let instance = told.instance;
        let state = RestoredState::new(chunk, &mut position, instance, usize::MAX);
        state.for_each(|entry| told.restore(&entry).unwrap());
        told.restored();
        told
    }

    /// Returns a key of the first half of the partitions, and one of the second.
    fn keys() -> [u64; 2] {
        let key = |half: bool| (0u64..).find(|key| (PartitionId::of(key).index() < 512) == half);
        [true, false].map(|half| key(half).unwrap())
    }

    #[test]
    fn partitions_that_are_ahead_stay_so_until_time_has_caught_up() {
        let mut chunk = StateChunk::default();
        for (index, mark) in [(0, 10), (1, 30)] {
            let mut told = of(index, 2);
            told.advance(at(mark));
            hand_over(&mut told, &mut chunk);
        }
        assert_eq!(chunk.len(), 2);
        let [slow, fast] = keys();
        let mut told = restored(of(0, 1), &chunk);
        assert_eq!(
            (told.now(), told.of(&slow), told.of(&fast)),
            (at(10), at(10), at(30))
        );
        assert!(
            told.is_already_processed(at(5))
                && told.is_already_processed(at(10))
                && !told.is_already_processed(at(20))
        );
        told.advance(at(20));
        assert_eq!((told.of(&slow), told.of(&fast)), (at(20), at(30)));
        // They remain ahead after another restore.
        let mut chunk = StateChunk::default();
        hand_over(&mut told, &mut chunk);
        let slower = restored(of(0, 2), &chunk);
        assert_eq!((slower.now(), slower.ahead()), (at(20), None));
        let mut told = restored(of(0, 1), &chunk);
        assert_eq!((told.of(&slow), told.of(&fast)), (at(20), at(30)));
        told.advance(at(30));
        assert!(told.ahead().is_none());
    }

    #[test]
    fn partitions_that_have_ended_hold_back_no_others() {
        let mut chunk = StateChunk::default();
        for (index, mark) in [(0, at(10)), (1, Watermark::END)] {
            let mut told = of(index, 2);
            told.advance(mark);
            hand_over(&mut told, &mut chunk);
        }
        let [slow, ended] = keys();
        let told = restored(of(0, 1), &chunk);
        assert_eq!((told.of(&slow), told.of(&ended)), (at(10), Watermark::END));
    }
}
