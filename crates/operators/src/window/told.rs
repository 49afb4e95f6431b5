//! How far time has come, by partition.

use std::sync::Arc;

use ardea_core::{
    CutWriter, Epoch, Error, ErrorCode, Instance, InstanceContext, Key, PARTITION_COUNT,
    PartitionId, RestoredEntry, Result, Timestamp, Watermark,
};

use crate::keyed::cut_short;

/// The name of the state.
pub(crate) const TOLD: &str = "told";

/// The watermarks by which each partition's windows have been emitted and its late records told from others.
///
/// All have the watermark of the instance, with one exception: instances may have been told unlike watermarks, since an input that falls
/// silent is left out at a time of its own in each, and partitions of several may meet in one when a job goes on with another number of
/// instances. Time then goes on from the least of them. Those partitions that are *ahead* have emitted windows that others have
/// still to emit, and must not do so again.
///
/// A cut holds one entry of each instance: the watermarks of its partitions, in runs of those that have the same one.
#[derive(Debug)]
pub(crate) struct Told {
    instance: Instance,
    now: Watermark,
    /// By partition, while some are ahead.
    ahead: Option<Arc<[Watermark]>>,
    /// What the cut that is being written holds, until it is written.
    cut: Option<(Epoch, Vec<u8>)>,
    /// By partition, while they come back.
    restored: Vec<Watermark>,
    /// Since it came back no time has been told that is news.
    resumes: bool,
}

/// The bytes of a run: its first and its last partition, and the watermark.
const RUN: usize = 12;

impl Default for Told {
    fn default() -> Self {
        Told {
            instance: Instance::ONLY,
            now: Watermark::NONE,
            ahead: None,
            cut: None,
            restored: Vec::new(),
            resumes: false,
        }
    }
}

impl Told {
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.instance = context.instance;
    }

    /// The watermark of the instance.
    pub(crate) fn now(&self) -> Watermark {
        self.now
    }

    /// The watermarks by partition, if some are ahead.
    pub(crate) fn ahead(&self) -> Option<&[Watermark]> {
        self.ahead.as_deref()
    }

    /// The watermark of the partition of `key`.
    #[inline]
    pub(crate) fn of<K: Key>(&self, key: &K) -> Watermark {
        match &self.ahead {
            None => self.now,
            Some(ahead) => ahead[PartitionId::of(key).index() as usize].max(self.now),
        }
    }

    /// Whether this watermark was told before the state came back: all that it brings has come already. So long as that lasts, it is only to be passed on.
    pub(crate) fn has_heard(&mut self, watermark: Watermark) -> bool {
        self.resumes &= watermark <= self.now;
        self.resumes
    }

    /// Time has come to `watermark`.
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

    /// What is there now belongs to a cut.
    pub(crate) fn take_cut(&mut self, epoch: Epoch) {
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
        self.cut = Some((epoch, bytes.collect()));
    }

    /// Writes the cut that was taken last: an entry that is no larger than any room.
    ///
    /// # Errors
    /// As [`CutWriter::set`].
    pub(crate) fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<()> {
        match self.cut.take() {
            Some((epoch, runs)) => {
                writer.set(TOLD, None, &self.instance.index.to_le_bytes(), &runs)?;
                writer.outdate(TOLD, epoch)
            }
            None => Ok(()),
        }
    }

    /// Takes an entry of its state, of whichever instance.
    ///
    /// # Errors
    /// If it can't be read.
    pub(crate) fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        self.restored
            .resize(PARTITION_COUNT as usize, Watermark::NONE);
        let (runs, rest) = entry.value.as_chunks::<RUN>();
        if !rest.is_empty() {
            return Err(cut_short());
        }
        for [f0, f1, l0, l1, time @ ..] in runs {
            let first = u16::from_le_bytes([*f0, *f1]).into();
            let last = u16::from_le_bytes([*l0, *l1]).into();
            let told = Watermark(Timestamp::from_micros(i64::from_le_bytes(*time)));
            let partitions = self.restored.get_mut(first..=last).ok_or_else(|| {
                let what = format!("there are no partitions from {first} to {last}");
                Error::new(ErrorCode::BadRecord, what).hint("start from another snapshot")
            })?;
            partitions.fill(told);
        }
        Ok(())
    }

    /// Another instance goes on with it: what it had been told is told again.
    pub(crate) fn taken_over(&mut self) {
        self.resumes = true;
    }

    /// All has come back. Partitions whose input has ended hold nothing, and hold back nobody.
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

    fn of(index: u32, parallelism: u32) -> Told {
        Told {
            instance: Instance { index, parallelism },
            ..Told::default()
        }
    }

    fn hand_over(told: &mut Told, chunk: &mut StateChunk) {
        told.take_cut(Epoch(1));
        told.advance(at(99));
        told.write_cut(&mut CutWriter::new(chunk, usize::MAX))
            .unwrap();
    }

    fn restored(mut told: Told, chunk: &StateChunk) -> Told {
        let mut position = 0;
        let instance = told.instance;
        let state = RestoredState::new(chunk, &mut position, instance, usize::MAX);
        state.for_each(|entry| told.restore(&entry).unwrap());
        told.restored();
        told
    }

    /// A key of the first half of the partitions, and one of the second.
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
        assert!(told.has_heard(at(5)) && told.has_heard(at(10)) && !told.has_heard(at(20)));
        told.advance(at(20));
        assert_eq!((told.of(&slow), told.of(&fast)), (at(20), at(30)));
        // They stay so in yet another life.
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
    fn partitions_that_have_ended_hold_back_nobody() {
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
