//! The simulated durable storage of a job's checkpoints. Saved snapshots survive the death of
//! processes, and a checkpoint is readable once its record is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ardea_coordination::control::{
    CheckpointRecord, Generation, ParticipantEvent, ParticipantId, RecordedCheckpoint,
    RequiredCheckpoints, SnapshotAck,
};
use ardea_core::Epoch;

/// Numbers of records by source or partition.
pub type Counts = BTreeMap<u32, u64>;

/// The state of each participant.
pub type ParticipantStates<K, V> = BTreeMap<ParticipantId, BTreeMap<K, V>>;

/// The owner of a saved snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotOwner {
    /// A snapshot of an epoch.
    Epoch(Epoch),
    /// The final snapshot of a participant that has completed in this attempt, and the last epoch
    /// with a regular snapshot.
    Last(Generation, Option<Epoch>),
}

impl SnapshotOwner {
    /// Returns the event of a participant whose snapshot is saved.
    pub fn saved(self, receipt: SnapshotAck) -> ParticipantEvent {
        match self {
            SnapshotOwner::Epoch(epoch) => ParticipantEvent::Saved(epoch, receipt),
            SnapshotOwner::Last(_, after) => ParticipantEvent::Ended { after, receipt },
        }
    }
}

/// The durable storage of a program.
#[derive(Debug, Default)]
pub struct DurableStorage<K, V> {
    snapshots: BTreeMap<u64, (SnapshotOwner, BTreeMap<K, V>)>,
    saved: u64,
    /// The readable checkpoints, each merged with its base.
    checkpoints: BTreeMap<Epoch, ParticipantStates<K, V>>,
    /// The contents of each checkpoint that was ever recorded.
    contents: BTreeMap<Epoch, Arc<RecordedCheckpoint>>,
    /// The offsets of the sources at each epoch that was ever recorded.
    offsets: BTreeMap<Epoch, Counts>,
}

impl<K: Ord + Clone, V: Clone> DurableStorage<K, V> {
    /// Saves a snapshot with the changes since the base epoch, or the full state without one.
    pub fn save(
        &mut self,
        of: SnapshotOwner,
        since: Option<Epoch>,
        entries: BTreeMap<K, V>,
    ) -> SnapshotAck {
        self.saved += 1;
        let bytes = entries.len() as u64;
        self.snapshots.insert(self.saved, (of, entries));
        let place = self.saved.to_be_bytes().to_vec();
        SnapshotAck {
            since,
            place,
            bytes,
        }
    }

    /// Checks and stores the checkpoints of a written record. Returns true if one of them is new.
    /// The offsets of a new checkpoint are those that `offsets` returns.
    ///
    /// # Errors
    ///
    /// If the record contradicts an earlier one, refers to missing data, or `offsets` fails.
    pub fn recorded(
        &mut self,
        record: &CheckpointRecord,
        offsets: impl Fn(&RecordedCheckpoint, &ParticipantStates<K, V>) -> Result<Counts, String>,
    ) -> Result<bool, String> {
        let mut is_new = false;
        for checkpoint in &record.checkpoints {
            let epoch = checkpoint.epoch;
            match self.contents.get(&epoch) {
                Some(before) if before.snapshots != checkpoint.snapshots => {
                    return Err(format!("{epoch:?} is recorded twice, with other contents"));
                }
                Some(_) if !self.checkpoints.contains_key(&epoch) => {
                    return Err(format!("{epoch:?} is recorded, and was removed"));
                }
                Some(_) => {}
                None => {
                    let merged = self.merge(checkpoint)?;
                    let offsets = offsets(checkpoint, &merged);
                    let offsets = offsets.map_err(|why| format!("{epoch:?}: {why}"))?;
                    self.insert(Arc::clone(checkpoint), merged, offsets);
                    is_new = true;
                }
            }
        }
        match record.committed {
            Some(epoch) if !self.checkpoints.contains_key(&epoch) => {
                Err(format!("{epoch:?} is committed, and not there"))
            }
            _ => Ok(is_new),
        }
    }

    fn insert(
        &mut self,
        checkpoint: Arc<RecordedCheckpoint>,
        states: ParticipantStates<K, V>,
        offsets: Counts,
    ) {
        self.offsets.insert(checkpoint.epoch, offsets);
        self.checkpoints.insert(checkpoint.epoch, states);
        self.contents.insert(checkpoint.epoch, checkpoint);
    }

    fn merge(&self, checkpoint: &RecordedCheckpoint) -> Result<ParticipantStates<K, V>, String> {
        let (epoch, over) = (checkpoint.epoch, checkpoint.over);
        if self.newest() >= Some(epoch) {
            return Err(format!("{epoch:?} is recorded after {:?}", self.newest()));
        }
        let mut merged = match over.map(|over| self.checkpoints.get(&over)) {
            None => BTreeMap::new(),
            Some(Some(base)) => base.clone(),
            Some(None) => return Err(format!("{epoch:?} lies over {over:?}, which is not there")),
        };
        merged.retain(|participant, _| checkpoint.snapshots.contains_key(participant));
        for (participant, snapshot) in &checkpoint.snapshots {
            let place = <[u8; 8]>::try_from(&snapshot.receipt.place[..]).map(u64::from_be_bytes);
            let saved = place.ok().and_then(|place| self.snapshots.get(&place));
            let (_, entries) = saved
                .ok_or_else(|| format!("the snapshot of {participant} for {epoch:?} is gone"))?;
            let since = snapshot.receipt.since;
            if since > over {
                return Err(format!("an increment since {since:?} over {over:?}"));
            }
            let base = merged.entry(*participant).or_default();
            if since.is_none() {
                base.clear();
            }
            base.extend(entries.clone());
        }
        Ok(merged)
    }

    /// Copies the checkpoint `imported` from the storage of another program, in which the attempt
    /// `taken_in` has taken it.
    ///
    /// # Errors
    ///
    /// If the other program has no such checkpoint.
    pub fn import(
        &mut self,
        from: &Self,
        imported: &Arc<RecordedCheckpoint>,
        taken_in: Generation,
    ) -> Result<(), String> {
        let states = from.restore(imported.epoch, taken_in)?.clone();
        let offsets = from.offsets(imported.epoch).cloned().unwrap_or_default();
        self.insert(Arc::clone(imported), states, offsets);
        Ok(())
    }

    /// Returns the newest epoch that was ever recorded.
    pub fn newest(&self) -> Option<Epoch> {
        self.contents.keys().next_back().copied()
    }

    /// Returns the offsets of an epoch, if it was ever recorded.
    pub fn offsets(&self, epoch: Epoch) -> Option<&Counts> {
        self.offsets.get(&epoch)
    }

    /// Returns the checkpoint of an epoch that the attempt `taken_in` has taken.
    ///
    /// # Errors
    ///
    /// If there is no such checkpoint, or it was taken in another attempt.
    pub fn restore(
        &self,
        epoch: Epoch,
        taken_in: Generation,
    ) -> Result<&ParticipantStates<K, V>, String> {
        match (self.checkpoints.get(&epoch), self.contents.get(&epoch)) {
            (Some(states), Some(contents)) if contents.generation == taken_in => Ok(states),
            (Some(_), Some(contents)) => {
                let generation = contents.generation;
                Err(format!(
                    "{epoch:?} is from attempt {generation}, not {taken_in}"
                ))
            }
            _ => Err(format!("the checkpoint of {epoch:?} is not there")),
        }
    }

    /// Removes the checkpoints that are not required, and the snapshots that no other checkpoint
    /// needs.
    pub fn keep(&mut self, required: &RequiredCheckpoints) {
        let RequiredCheckpoints { epochs, below, .. } = required;
        let checkpoints = &mut self.checkpoints;
        checkpoints.retain(|epoch, _| epoch >= below || epochs.contains(epoch));
        let kept = epochs.iter().filter_map(|epoch| self.contents.get(epoch));
        let kept = kept.flat_map(|checkpoint| checkpoint.snapshots.values());
        let places: BTreeSet<_> = kept
            .map(|snapshot| snapshot.receipt.place.clone())
            .collect();
        self.snapshots.retain(|place, (of, _)| {
            let may_be_needed = match of {
                SnapshotOwner::Epoch(epoch) => *epoch >= *below,
                SnapshotOwner::Last(generation, _) => *generation >= required.generation,
            };
            may_be_needed || places.contains(place.to_be_bytes().as_slice())
        });
    }
}
