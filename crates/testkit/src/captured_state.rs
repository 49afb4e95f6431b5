//! Snapshots of a processor and the checkpoint state built from them.

use std::collections::BTreeMap;

use ardea_core::{
    Epoch, Instance, PartitionId, Processor, RestoredState, Result as CoreResult, SnapshotRequest,
    SnapshotWriter, StateChunk, StateEntry,
};

use crate::random::SplitMix64;

/// The number of calls in a row that may make no progress while state is written or restored.
const MAX_IDLE_CALLS: u32 = 1_000;

/// The address of a value: state, partition, key.
type StateKey = (String, Option<PartitionId>, Vec<u8>);

/// The complete state at the end of an epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct CapturedState {
    entries: BTreeMap<StateKey, CapturedValue>,
}

/// A value and the epoch of the last snapshot that contained it.
#[derive(Clone, Debug)]
struct CapturedValue {
    value: Vec<u8>,
    epoch: Epoch,
}

impl CapturedState {
    /// Returns this state updated with a snapshot. Entries that the snapshot declares outdated by
    /// their epoch are removed even without an explicit removal, because checkpoints may lack them.
    ///
    /// # Errors
    /// The broken rule, as text.
    pub(crate) fn updated_with(
        &self,
        snapshot: SnapshotRequest,
        chunk: &StateChunk,
    ) -> Result<CapturedState, String> {
        let mut kept = match snapshot.is_full() {
            true => CapturedState::default(),
            false => self.clone(),
        };
        let mut seen = BTreeMap::new();
        for entry in chunk {
            let place = place_of(&entry);
            if seen.insert(place.clone(), ()).is_some() {
                return Err(format!("the snapshot holds a key twice: {place:?}"));
            }
            match entry.value {
                Some(value) => {
                    let (value, epoch) = (value.to_vec(), snapshot.epoch);
                    kept.entries.insert(place, CapturedValue { value, epoch })
                }
                None => kept.entries.remove(&place),
            };
        }
        for (state, before) in chunk.outdated() {
            if before > snapshot.epoch {
                let (before, own) = (before.0, snapshot.epoch.0);
                return Err(format!(
                    "the snapshot of epoch {own} outdates entries older than epoch {before}: {state:?}"
                ));
            }
            let counts =
                |place: &StateKey, it: &CapturedValue| place.0 != state || it.epoch >= before;
            kept.entries.retain(|place, it| counts(place, it));
        }
        Ok(kept)
    }

    pub(crate) fn add(&mut self, other: CapturedState) {
        self.entries.extend(other.entries);
    }

    /// Restores a new processor from this state, a few entries per call. `epoch` is the epoch of
    /// the state.
    ///
    /// # Errors
    /// The error returned by the processor.
    pub(crate) fn restore(
        &self,
        processor: &mut dyn Processor,
        instance: Instance,
        epoch: Epoch,
        random: &mut SplitMix64,
    ) -> CoreResult<Result<(), String>> {
        let chunk = self.chunk()?;
        if let Err(broken) = restore_chunk(processor, (&chunk, instance), random)? {
            return Ok(Err(broken));
        }
        for _ in 0..MAX_IDLE_CALLS {
            if processor.state().on_restored(epoch)?.done {
                return Ok(Ok(()));
            }
        }
        Ok(Err("on_restored is never done".into()))
    }

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

    /// Returns the entries without a partition, and the other entries by partition.
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

/// Restores all entries of a chunk into a processor, a few per call.
///
/// # Errors
/// The error returned by the processor.
pub(crate) fn restore_chunk(
    processor: &mut dyn Processor,
    (chunk, instance): (&StateChunk, Instance),
    random: &mut SplitMix64,
) -> CoreResult<Result<(), String>> {
    let (mut position, mut idle) = (0, 0);
    while position < chunk.byte_len() {
        let before = position;
        let most = 1 + random.below(5);
        let mut state = RestoredState::new(chunk, &mut position, instance, most);
        processor.state().restore(&mut state)?;
        idle = if position > before { 0 } else { idle + 1 };
        if idle > MAX_IDLE_CALLS {
            return Ok(Err("restore takes no entry any more".into()));
        }
    }
    Ok(Ok(()))
}

fn place_of(entry: &StateEntry<'_>) -> StateKey {
    let (state, key) = (entry.state.to_string(), entry.key.to_vec());
    (state, entry.partition, key)
}

/// Takes a snapshot and writes all of it.
///
/// # Errors
/// The error returned by the processor.
pub(crate) fn full_snapshot(
    processor: &mut dyn Processor,
    snapshot: SnapshotRequest,
) -> CoreResult<Result<CapturedState, String>> {
    processor.state().take_snapshot(snapshot)?;
    let (mut chunk, mut idle) = (StateChunk::default(), 0);
    while idle < MAX_IDLE_CALLS {
        let progress = processor
            .state()
            .write_snapshot(&mut SnapshotWriter::new(&mut chunk, usize::MAX))?;
        if progress.done {
            return Ok(CapturedState::default().updated_with(snapshot, &chunk));
        }
        idle = if progress.made { 0 } else { idle + 1 };
    }
    Ok(Err("write_snapshot has room and writes nothing".into()))
}
