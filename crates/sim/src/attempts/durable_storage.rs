//! Durable storage of one program: saved snapshots and recorded checkpoints, with their invariants.

use std::collections::{BTreeMap, BTreeSet};

use ardea_coordination::control::{
    CheckpointRecord, ExecutionAttempt, FinalState, IMPORTED, ParticipantId, RecordedCheckpoint,
    SnapshotAck,
};
use ardea_core::Epoch;

use super::instance::{Counts, PARTITIONS};
use super::published::behind;
use super::worker_attempt::Entries;

/// The owner of a saved snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotOwner {
    /// A snapshot of an epoch.
    Epoch(Epoch),
    /// The final snapshot of a worker that has completed in the attempt of this number.
    Last(u64),
}

#[derive(Debug)]
struct Checkpoint {
    taken_in: u64,
    state: Entries,
}

/// The durable storage of a program.
#[derive(Debug, Default)]
pub struct DurableStorage {
    snapshots: BTreeMap<u64, (SnapshotOwner, Entries)>,
    saved: u64,
    checkpoints: BTreeMap<Epoch, Checkpoint>,
    /// The offsets of the sources at the end of each epoch that was ever recorded.
    offsets: BTreeMap<Epoch, Counts>,
}

impl DurableStorage {
    pub fn save(&mut self, of: SnapshotOwner, entries: Entries) -> SnapshotAck {
        self.saved += 1;
        let bytes = entries.len() as u64;
        self.snapshots.insert(self.saved, (of, entries));
        SnapshotAck {
            since: None,
            place: self.saved.to_be_bytes().to_vec(),
            bytes,
        }
    }

    /// Checks a stored record: each new checkpoint has exactly the given `participants`, and all
    /// vertices agree on the offset of each partition.
    ///
    /// # Errors
    ///
    /// If the check fails.
    pub fn recorded(
        &mut self,
        record: &CheckpointRecord,
        participants: Option<&BTreeSet<ParticipantId>>,
        vertices: usize,
    ) -> Result<(), String> {
        for checkpoint in &record.checkpoints {
            if !self.checkpoints.contains_key(&checkpoint.epoch) {
                self.take(checkpoint, participants, vertices)?;
            }
        }
        match record
            .committed
            .filter(|epoch| !self.offsets.contains_key(epoch))
        {
            Some(epoch) => Err(format!("{epoch:?} is committed, and was never recorded")),
            None => Ok(()),
        }
    }

    fn take(
        &mut self,
        checkpoint: &RecordedCheckpoint,
        participants: Option<&BTreeSet<ParticipantId>>,
        vertices: usize,
    ) -> Result<(), String> {
        let epoch = checkpoint.epoch;
        if self.newest() >= Some(epoch) {
            return Err(format!("{epoch:?} is recorded after {:?}", self.newest()));
        }
        let of: BTreeSet<ParticipantId> = checkpoint.snapshots.keys().copied().collect();
        if Some(&of) != participants {
            return Err(format!(
                "{epoch:?} is of {of:?}, and not of {participants:?}"
            ));
        }
        let mut state = Entries::new();
        for (participant, snapshot) in &checkpoint.snapshots {
            let place = <[u8; 8]>::try_from(&snapshot.receipt.place[..]).map(u64::from_be_bytes);
            let saved = place.ok().and_then(|place| self.snapshots.get(&place));
            let Some((_, entries)) = saved else {
                return Err(format!(
                    "the snapshot of {participant} for {epoch:?} is gone"
                ));
            };
            state.extend(entries.clone());
        }
        let offsets = agreed(&state, vertices).map_err(|why| format!("{epoch:?}: {why}"))?;
        self.offsets.insert(epoch, offsets);
        let taken_in = checkpoint.generation.0;
        self.checkpoints
            .insert(epoch, Checkpoint { taken_in, state });
        Ok(())
    }

    /// Returns the state that an attempt starts with.
    ///
    /// # Errors
    ///
    /// If there is no such checkpoint, or it was taken in another attempt.
    pub fn restore(&self, life: &ExecutionAttempt) -> Result<Entries, String> {
        let Some(epoch) = life.from else {
            return Ok(Entries::new());
        };
        match self.checkpoints.get(&epoch) {
            Some(checkpoint) if checkpoint.taken_in == life.taken_in.0 => {
                Ok(checkpoint.state.clone())
            }
            Some(checkpoint) => Err(format!("{life:?} is from attempt {}", checkpoint.taken_in)),
            None => Err(format!("{life:?} starts from a missing checkpoint")),
        }
    }

    /// Checks that sinks may publish the records up to `counts`.
    ///
    /// # Errors
    ///
    /// If no recorded epoch has read that far.
    pub fn permits(&self, counts: &Counts) -> Result<(), String> {
        let recorded = self.offsets.values().next_back();
        behind(counts, recorded.unwrap_or(&Counts::new())).map_or(Ok(()), Err)
    }

    /// Returns the offsets of a recorded epoch.
    pub fn read_by(&self, epoch: Epoch) -> Option<&Counts> {
        self.offsets.get(&epoch)
    }

    /// Copies the final state `left` from the storage `from` of another program, before this
    /// program has any state.
    ///
    /// # Errors
    ///
    /// If the other program has no such checkpoint, or it was taken in another attempt.
    pub fn bring(&mut self, from: &DurableStorage, left: FinalState) -> Result<(), String> {
        let life = ExecutionAttempt {
            generation: IMPORTED,
            from: Some(left.epoch),
            taken_in: left.generation,
        };
        let state = from.restore(&life)?;
        let offsets = from.read_by(left.epoch).cloned().unwrap_or_default();
        let taken_in = IMPORTED.0;
        self.checkpoints
            .insert(left.epoch, Checkpoint { taken_in, state });
        self.offsets.insert(left.epoch, offsets);
        Ok(())
    }

    fn newest(&self) -> Option<Epoch> {
        self.offsets.keys().next_back().copied()
    }

    /// Removes checkpoints before `below` except those of `epochs`, snapshots before `below`, and
    /// final snapshots of attempts before `present`.
    pub fn keep(&mut self, epochs: &[Epoch], below: Epoch, present: u64) {
        self.checkpoints
            .retain(|epoch, _| *epoch >= below || epochs.contains(epoch));
        self.snapshots.retain(|_, (of, _)| match of {
            SnapshotOwner::Epoch(epoch) => *epoch >= below,
            SnapshotOwner::Last(life) => *life >= present,
        });
    }
}

/// Returns the offset of each partition, on which all vertices must agree.
fn agreed(state: &Entries, vertices: usize) -> Result<Counts, String> {
    let mut seen: Vec<Counts> = vec![Counts::new(); vertices];
    for (which, counts) in state {
        let Some(of_vertex) = seen.get_mut(which.0) else {
            return Err(format!("there is no {which:?}"));
        };
        for (partition, count) in counts {
            if of_vertex.insert(*partition, *count).is_some() {
                return Err(format!(
                    "partition {partition} is twice at vertex {}",
                    which.0
                ));
            }
        }
    }
    let Some(first) = seen.first().cloned() else {
        return Err("there is no vertex".to_string());
    };
    match seen.iter().find(|counts| **counts != first) {
        _ if first.len() != PARTITIONS as usize => {
            Err(format!("it has {} partitions", first.len()))
        }
        Some(other) => Err(format!("sources are at {first:?}, others at {other:?}")),
        None => Ok(first),
    }
}
