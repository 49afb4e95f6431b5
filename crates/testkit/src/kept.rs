//! Cuts of a processor, and what a runtime would make of them.

use std::collections::BTreeMap;

use ardea_core::{
    Cut, CutWriter, Epoch, Instance, PartitionId, Processor, RestoredState, Result as CoreResult,
    StateChunk, StateEntry,
};

use crate::random::SplitMix64;

/// How often a processor may be given the same entries without taking one, or say that it has nothing to write.
const MOST_IDLE: u32 = 1_000;

/// Where a value belongs: state, partition, key.
type Place = (String, Option<PartitionId>, Vec<u8>);

/// All state at the end of an epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptState {
    entries: BTreeMap<Place, Written>,
}

/// A value, and the epoch whose cut it was in last.
#[derive(Clone, Debug)]
struct Written {
    value: Vec<u8>,
    epoch: Epoch,
}

impl KeptState {
    /// What there is when a cut is laid over what was there before. What the cut calls outdated is gone, whether it removes it or not, as it may be from
    /// snapshots.
    ///
    /// # Errors
    /// What breaks the contract.
    pub(crate) fn after(&self, cut: Cut, chunk: &StateChunk) -> Result<KeptState, String> {
        let mut kept = match cut.is_full() {
            true => KeptState::default(),
            false => self.clone(),
        };
        let mut seen = BTreeMap::new();
        for entry in chunk {
            let place = place_of(&entry);
            if seen.insert(place.clone(), ()).is_some() {
                return Err(format!("the cut holds a key twice: {place:?}"));
            }
            match entry.value {
                Some(value) => {
                    let (value, epoch) = (value.to_vec(), cut.epoch);
                    kept.entries.insert(place, Written { value, epoch })
                }
                None => kept.entries.remove(&place),
            };
        }
        for (state, before) in chunk.outdated() {
            if before > cut.epoch {
                let (before, own) = (before.0, cut.epoch.0);
                return Err(format!(
                    "the cut of epoch {own} calls outdated what is older than epoch {before}: {state:?}"
                ));
            }
            let counts = |place: &Place, it: &Written| place.0 != state || it.epoch >= before;
            kept.entries.retain(|place, it| counts(place, it));
        }
        Ok(kept)
    }

    /// The state of several instances together.
    pub(crate) fn add(&mut self, other: KeptState) {
        self.entries.extend(other.entries);
    }

    /// Gives it back to a new processor, a few entries at a time; `epoch` is the one that it is from.
    ///
    /// # Errors
    /// The processor's.
    pub(crate) fn restore(
        &self,
        processor: &mut dyn Processor,
        instance: Instance,
        epoch: Epoch,
        random: &mut SplitMix64,
    ) -> CoreResult<Result<(), String>> {
        let chunk = self.chunk()?;
        if let Err(broken) = give_back(processor, (&chunk, instance), random)? {
            return Ok(Err(broken));
        }
        for _ in 0..MOST_IDLE {
            if processor.on_restored(epoch)?.done {
                return Ok(Ok(()));
            }
        }
        Ok(Err("on_restored is never done".into()))
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn chunk(&self) -> CoreResult<StateChunk> {
        let mut chunk = StateChunk::default();
        for entry in self.entries() {
            chunk.push(entry)?;
        }
        Ok(chunk)
    }

    /// What has no partition, and what has, by that.
    pub(crate) fn by_partition(
        &self,
    ) -> CoreResult<(StateChunk, BTreeMap<PartitionId, StateChunk>)> {
        let (mut base, mut chunks) = (StateChunk::default(), BTreeMap::new());
        for entry in self.entries() {
            let chunk = match entry.partition {
                Some(partition) => chunks.entry(partition).or_default(),
                None => &mut base,
            };
            chunk.push(entry)?;
        }
        Ok((base, chunks))
    }

    fn entries(&self) -> impl Iterator<Item = StateEntry<'_>> {
        let entries = self.entries.iter();
        entries.map(|((state, partition, key), written)| StateEntry {
            state,
            partition: *partition,
            key,
            value: Some(&written.value),
        })
    }
}

/// Gives a processor all of a chunk, a few entries at a time.
///
/// # Errors
/// The processor's.
pub(crate) fn give_back(
    processor: &mut dyn Processor,
    (chunk, instance): (&StateChunk, Instance),
    random: &mut SplitMix64,
) -> CoreResult<Result<(), String>> {
    let (mut position, mut idle) = (0, 0);
    while position < chunk.byte_len() {
        let before = position;
        let most = 1 + random.below(5);
        let mut state = RestoredState::new(chunk, &mut position, instance, most);
        processor.restore(&mut state)?;
        idle = if position > before { 0 } else { idle + 1 };
        if idle > MOST_IDLE {
            return Ok(Err("restore takes no entry any more".into()));
        }
    }
    Ok(Ok(()))
}

fn place_of(entry: &StateEntry<'_>) -> Place {
    let (state, key) = (entry.state.to_string(), entry.key.to_vec());
    (state, entry.partition, key)
}

/// Takes a cut and writes it to its end at once.
///
/// # Errors
/// The processor's.
pub(crate) fn whole_cut(
    processor: &mut dyn Processor,
    cut: Cut,
) -> CoreResult<Result<KeptState, String>> {
    processor.take_cut(cut)?;
    let (mut chunk, mut idle) = (StateChunk::default(), 0);
    while idle < MOST_IDLE {
        let progress = processor.write_cut(&mut CutWriter::new(&mut chunk, usize::MAX))?;
        if progress.done {
            return Ok(KeptState::default().after(cut, &chunk));
        }
        idle = if progress.made { 0 } else { idle + 1 };
    }
    Ok(Err("write_cut has room and writes nothing".into()))
}
