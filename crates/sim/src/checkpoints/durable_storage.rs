//! Durable storage: saved snapshots, readable checkpoints, and the output published by sinks.

use std::collections::{BTreeMap, BTreeSet};

use ardea_coordination::control::{
    CheckpointRecord, Generation, ParticipantId, RecordedCheckpoint, SnapshotAck,
};
use ardea_core::{Epoch, Guarantee};

use super::model_state::{Entries, Key, Output, Value};

/// The number of keys in the records of a source.
const KEYS: u64 = 5;

/// Returns the key of a source's record.
pub fn key(source: u32, offset: u64) -> u64 {
    let mut bits = (u64::from(source) << 40) ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    (bits.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % KEYS
}

/// The owner of a saved snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotOwner {
    /// A snapshot of an epoch.
    Epoch(Epoch),
    /// The final snapshot of a participant that has completed in this attempt.
    Last(Generation),
}

/// The storage of checkpoints.
#[derive(Debug, Default)]
pub struct CheckpointStorage {
    snapshots: BTreeMap<u64, (SnapshotOwner, Entries)>,
    saved: u64,
    /// Recorded checkpoints, each merged with its base.
    checkpoints: BTreeMap<Epoch, BTreeMap<ParticipantId, Entries>>,
    /// The offsets of the sources at each epoch that was ever recorded.
    offsets: BTreeMap<Epoch, BTreeMap<u32, u64>>,
    contents: BTreeMap<Epoch, RecordedCheckpoint>,
    /// True if checkpoints cannot be read at the moment.
    pub damaged: bool,
}

impl CheckpointStorage {
    pub fn save(
        &mut self,
        of: SnapshotOwner,
        since: Option<Epoch>,
        entries: Entries,
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
    ///
    /// # Errors
    ///
    /// If the record contradicts an earlier one, or refers to missing data.
    pub fn recorded(&mut self, record: &CheckpointRecord) -> Result<bool, String> {
        let mut fresh = false;
        for checkpoint in &record.checkpoints {
            let epoch = checkpoint.epoch;
            match self.contents.get(&epoch) {
                Some(before) if before.snapshots != checkpoint.snapshots => {
                    return Err(format!("{epoch:?} is recorded twice, with other contents"));
                }
                Some(_) => {}
                None => {
                    self.fold(checkpoint)?;
                    fresh = true;
                }
            }
        }
        match record
            .committed
            .filter(|epoch| !self.checkpoints.contains_key(epoch))
        {
            Some(epoch) => Err(format!("{epoch:?} is committed, and not there")),
            None => Ok(fresh),
        }
    }

    fn fold(&mut self, checkpoint: &RecordedCheckpoint) -> Result<(), String> {
        let epoch = checkpoint.epoch;
        if self.newest() >= Some(epoch) {
            return Err(format!("{epoch:?} is recorded after {:?}", self.newest()));
        }
        let mut folded = match checkpoint.over {
            None => BTreeMap::new(),
            Some(over) => {
                let below = self.checkpoints.get(&over).cloned();
                below.ok_or_else(|| format!("{epoch:?} lies over {over:?}, which is not there"))?
            }
        };
        for (participant, snapshot) in &checkpoint.snapshots {
            let place = <[u8; 8]>::try_from(&snapshot.receipt.place[..]).map(u64::from_be_bytes);
            let saved = place.ok().and_then(|place| self.snapshots.get(&place));
            let (_, entries) = saved
                .ok_or_else(|| format!("the snapshot of {participant} for {epoch:?} is gone"))?;
            let since = snapshot.receipt.since;
            if since > checkpoint.over {
                return Err(format!(
                    "an increment since {since:?} over {:?}",
                    checkpoint.over
                ));
            }
            let below = folded.entry(*participant).or_default();
            if since.is_none() {
                below.clear();
            }
            below.extend(entries.clone());
        }
        let offsets =
            folded
                .iter()
                .filter_map(|(participant, entries)| match entries.get(&Key::Offset) {
                    Some(Some(Value::Number(offset))) => Some((participant.0, *offset)),
                    _ => None,
                });
        self.offsets.insert(epoch, offsets.collect());
        self.checkpoints.insert(epoch, folded);
        self.contents.insert(epoch, checkpoint.clone());
        Ok(())
    }

    /// Returns the newest epoch that was ever recorded.
    pub fn newest(&self) -> Option<Epoch> {
        self.contents.keys().next_back().copied()
    }

    /// Returns true if `epoch` was ever recorded.
    pub fn was_recorded(&self, epoch: Epoch) -> bool {
        self.contents.contains_key(&epoch)
    }

    /// Returns the offset of a source at the end of a recorded epoch.
    pub fn offset(&self, epoch: Epoch, source: u32) -> u64 {
        let offsets = self.offsets.get(&epoch);
        offsets
            .and_then(|offsets| offsets.get(&source))
            .copied()
            .unwrap_or(0)
    }

    /// Returns the number of records read until the end of a recorded epoch.
    pub fn prefix(&self, epoch: Epoch) -> u64 {
        self.offsets
            .get(&epoch)
            .map_or(0, |offsets| offsets.values().sum())
    }

    /// Returns the state of a participant at the end of an epoch, or `None` if the checkpoint is
    /// missing.
    pub fn restore(&self, epoch: Epoch, participant: ParticipantId) -> Option<Entries> {
        let checkpoint = self.checkpoints.get(&epoch)?;
        Some(checkpoint.get(&participant).cloned().unwrap_or_default())
    }

    /// Removes the checkpoints before `below` except those of `epochs`, and the snapshots that no
    /// remaining checkpoint needs.
    pub fn keep(&mut self, epochs: &[Epoch], below: Epoch, present: Generation) {
        self.checkpoints
            .retain(|epoch, _| *epoch >= below || epochs.contains(epoch));
        let kept = epochs.iter().filter_map(|epoch| self.contents.get(epoch));
        let receipts = kept.flat_map(|checkpoint| checkpoint.snapshots.values());
        let places: BTreeSet<_> = receipts
            .map(|snapshot| snapshot.receipt.place.clone())
            .collect();
        self.snapshots.retain(|place, (of, _)| {
            let may_be_needed = match of {
                SnapshotOwner::Epoch(epoch) => *epoch >= below,
                SnapshotOwner::Last(generation) => *generation >= present,
            };
            may_be_needed || places.contains(place.to_be_bytes().as_slice())
        });
    }
}

/// The external id of a sink's transaction: the participant, the attempt, and its number there.
pub type TransactionId = (ParticipantId, Generation, u64);

/// The output published by sinks.
#[derive(Debug, Default)]
pub struct PublishedOutput {
    transactions: BTreeMap<TransactionId, Vec<Output>>,
    /// The number of publications of each record's result.
    results: BTreeMap<(u32, u64), u64>,
    /// The expected count of each record of a source.
    counts: BTreeMap<u32, Vec<u64>>,
}

impl PublishedOutput {
    /// Publishes a transaction, possibly again.
    ///
    /// # Errors
    ///
    /// If it was published before with other contents. With exactly-once, also if a result is a
    /// duplicate, is wrong, or belongs to a record that no recorded epoch has read.
    pub fn publish(
        &mut self,
        id: TransactionId,
        outputs: &[Output],
        guarantee: Guarantee,
        vault: &CheckpointStorage,
    ) -> Result<(), String> {
        if let Some(before) = self.transactions.get(&id) {
            return match before == outputs {
                true => Ok(()),
                false => Err(format!("{id:?} is published twice, with other contents")),
            };
        }
        let newest = vault.newest().unwrap_or_default();
        for output in outputs {
            let times = self
                .results
                .entry((output.source, output.offset))
                .or_default();
            *times += 1;
            let once = *times == 1;
            // Without alignment, records after a barrier may be processed before the barrier.
            if guarantee == Guarantee::AtLeastOnce {
                continue;
            }
            if output.offset >= vault.offset(newest, output.source) {
                return Err(format!(
                    "{output:?} is published, and not committed in {newest:?}"
                ));
            }
            let expected = self.expected(output.source, output.offset);
            if !once || output.count != expected {
                return Err(format!(
                    "{output:?} is published for the first time: {once}; its count should be {expected}"
                ));
            }
        }
        self.transactions.insert(id, outputs.to_vec());
        Ok(())
    }

    fn expected(&mut self, source: u32, offset: u64) -> u64 {
        let counts = self.counts.entry(source).or_default();
        let mut so_far = [0; KEYS as usize];
        if counts.len() <= offset as usize {
            counts.clear();
            for at in 0..2 * offset + 100 {
                let key = key(source, at) as usize;
                counts.push(so_far[key]);
                so_far[key] += 1;
            }
        }
        counts[offset as usize]
    }

    /// Returns the number of records whose results are published.
    pub fn results(&self) -> u64 {
        self.results.len() as u64
    }
}
