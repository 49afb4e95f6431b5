//! How far time has come, by partition.

use std::collections::VecDeque;
use std::sync::Arc;

use ardea_core::{
    Cut, CutWriter, Epoch, Error, ErrorCode, Instance, InstanceContext, Key, PARTITION_COUNT,
    PartitionId, RestoredEntry, Result, Timestamp, Watermark,
};

use crate::keyed::cut_short;

/// The name of the state.
pub(crate) const TOLD: &str = "told";

/// How many cuts without a commit are remembered. Of older ones a commit is not recognised, which only costs a cut's bytes.
const UNDECIDED_MAX: usize = 64;

/// The watermarks by which each partition's windows have been emitted and its late records told from others.
///
/// All have the watermark of the instance, with one exception: instances may have been told unlike watermarks, since an input that falls
/// silent is left out at a time of its own in each, and partitions of several may meet in one when a job goes on with another number of
/// instances. Time then goes on from the least of them. Those partitions that are *ahead* have emitted windows that others have
/// still to emit, and must not do so again.
#[derive(Debug)]
pub(crate) struct Told {
    instance: Instance,
    now: Watermark,
    /// By partition, while some are ahead.
    ahead: Option<Arc<[Watermark]>>,
    /// What the latest committed cut holds of all partitions; none if they are not alike.
    committed: Option<Watermark>,
    /// The same of those after it.
    undecided: VecDeque<(Epoch, Option<Watermark>)>,
    writing: Option<ToldAt>,
    /// By partition, while they come back.
    restored: Vec<Watermark>,
    /// Since it came back no time has been told that is news.
    resumes: bool,
}

/// What a cut holds.
#[derive(Debug)]
struct ToldAt {
    epoch: Epoch,
    is_last: bool,
    now: Watermark,
    ahead: Option<Arc<[Watermark]>>,
    next: u32,
}

impl Default for Told {
    fn default() -> Self {
        Told {
            instance: Instance::ONLY,
            now: Watermark::NONE,
            ahead: None,
            committed: Some(Watermark::NONE),
            undecided: VecDeque::new(),
            writing: None,
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

    pub(crate) fn take_cut(&mut self, cut: Cut) {
        let alike = Some(self.now).filter(|_| self.ahead.is_none());
        self.writing = None;
        if cut.is_full() || alike.is_none() || alike != self.committed {
            self.writing = Some(ToldAt {
                epoch: cut.epoch,
                is_last: cut.is_last,
                now: self.now,
                ahead: self.ahead.clone(),
                next: 0,
            });
        }
        if self.undecided.len() == UNDECIDED_MAX {
            self.undecided.pop_front();
        }
        self.undecided.push_back((cut.epoch, alike));
    }

    /// Writes on at the cut that was taken last; whether it is written.
    pub(crate) fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<bool> {
        let own = self.own();
        let Some(cut) = &mut self.writing else {
            return Ok(true);
        };
        let from = cut.next;
        for partition in own.skip_while(|partition| partition.index() < from) {
            if !writer.has_room() {
                return Ok(false);
            }
            let index = partition.index();
            let ahead = cut.ahead.as_ref().map(|ahead| ahead[index as usize]);
            let told = ahead.map_or(cut.now, |ahead| ahead.max(cut.now));
            if told > Watermark::NONE {
                let time = told.0.as_micros().to_le_bytes();
                writer.set(TOLD, Some(partition), &[], &time)?;
            }
            cut.next = index + 1;
        }
        self.writing = None;
        Ok(true)
    }

    pub(crate) fn commit(&mut self, epoch: Epoch) {
        while let Some((_, told)) = self.undecided.pop_front_if(|(of, _)| *of <= epoch) {
            self.committed = told;
        }
    }

    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        let is_void = |cut: &ToldAt| cut.epoch <= epoch && !cut.is_last;
        if self.writing.as_ref().is_some_and(is_void) {
            self.writing = None;
        }
    }

    /// Takes an entry of its state.
    ///
    /// # Errors
    /// If it can't be read.
    pub(crate) fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        self.restored
            .resize(PARTITION_COUNT as usize, Watermark::NONE);
        let bytes = entry.value.try_into().map_err(|_| cut_short())?;
        let index = entry.partition.map(|partition| partition.index() as usize);
        let place = index.and_then(|index| self.restored.get_mut(index));
        let place = place.ok_or_else(|| {
            Error::new(
                ErrorCode::BadRecord,
                "how far time has come is told of no partition",
            )
            .hint("start from another snapshot")
        })?;
        *place = Watermark(Timestamp::from_micros(i64::from_le_bytes(bytes)));
        Ok(())
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
        self.committed = Some(self.now).filter(|_| are_alike);
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

    fn restore(told: &mut Told, chunk: &StateChunk) {
        let mut position = 0;
        let instance = told.instance;
        let state = RestoredState::new(chunk, &mut position, instance, usize::MAX);
        state.for_each(|entry| told.restore(&entry).unwrap());
        told.restored();
    }

    #[test]
    fn partitions_that_are_ahead_stay_so_until_time_has_caught_up() {
        let mut chunk = StateChunk::default();
        for (index, mark) in [(0, 10), (1, 30)] {
            let mut told = of(index, 2);
            told.advance(at(mark));
            told.take_cut(Cut::full(Epoch(1)));
            told.advance(at(99));
            assert!(
                told.write_cut(&mut CutWriter::new(&mut chunk, usize::MAX))
                    .unwrap()
            );
        }
        assert_eq!(chunk.len(), PARTITION_COUNT as usize);
        let mut told = of(0, 1);
        restore(&mut told, &chunk);
        let slow = (0u64..)
            .find(|key| PartitionId::of(key).index() < 512)
            .unwrap();
        let fast = (0u64..)
            .find(|key| PartitionId::of(key).index() >= 512)
            .unwrap();
        assert_eq!(
            (told.now(), told.of(&slow), told.of(&fast)),
            (at(10), at(10), at(30))
        );
        assert!(told.has_heard(at(5)) && told.has_heard(at(10)) && !told.has_heard(at(20)));
        told.advance(at(20));
        assert_eq!((told.of(&slow), told.of(&fast)), (at(20), at(30)));
        told.advance(at(30));
        assert!(told.ahead().is_none());
    }

    #[test]
    fn an_increment_says_nothing_if_time_stood_still_since_the_commit() {
        let mut told = of(0, 1);
        told.advance(at(10));
        let write = |told: &mut Told, cut| {
            let mut chunk = StateChunk::default();
            told.take_cut(cut);
            loop {
                let limit = chunk.byte_len() + 100;
                if told
                    .write_cut(&mut CutWriter::new(&mut chunk, limit))
                    .unwrap()
                {
                    return chunk.len();
                }
            }
        };
        assert!(write(&mut told, Cut::full(Epoch(1))) > 0);
        assert!(write(&mut told, Cut::changes(Epoch(2), Epoch(0))) > 0);
        told.commit(Epoch(2));
        assert_eq!(write(&mut told, Cut::changes(Epoch(3), Epoch(2))), 0);
        told.advance(at(11));
        assert!(write(&mut told, Cut::changes(Epoch(4), Epoch(2))) > 0);
    }
}
