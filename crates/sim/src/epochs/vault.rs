//! What outlives processes: saved cuts, snapshots that can be read back, and what sinks have published.

use std::collections::{BTreeMap, BTreeSet};

use ardea_coordination::control::{
    EpochsRecord, Generation, ParticipantId, Receipt, RecordedSnapshot,
};
use ardea_core::{Epoch, Guarantee};

use super::ledger::{Entries, Key, Output, Value};

/// How many keys the records of a source have.
const KEYS: u64 = 5;

/// The key of a source's record.
pub fn key(source: u32, offset: u64) -> u64 {
    let mut bits = (u64::from(source) << 40) ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    (bits.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % KEYS
}

/// Whose a saved cut is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// An epoch's.
    Epoch(Epoch),
    /// The last state of a participant in that life of the job.
    Last(Generation),
}

/// Snapshots.
#[derive(Debug, Default)]
pub struct Vault {
    cuts: BTreeMap<u64, (Of, Entries)>,
    saved: u64,
    /// Recorded snapshots, each with all that it is laid over.
    snapshots: BTreeMap<Epoch, BTreeMap<ParticipantId, Entries>>,
    /// How far sources had read at each epoch that was ever recorded.
    offsets: BTreeMap<Epoch, BTreeMap<u32, u64>>,
    contents: BTreeMap<Epoch, RecordedSnapshot>,
    /// The snapshots that can't be read now.
    pub damaged: bool,
}

impl Vault {
    /// Saves a cut.
    pub fn save(&mut self, of: Of, since: Option<Epoch>, entries: Entries) -> Receipt {
        self.saved += 1;
        let bytes = entries.len() as u64;
        self.cuts.insert(self.saved, (of, entries));
        let place = self.saved.to_be_bytes().to_vec();
        Receipt {
            since,
            place,
            bytes,
        }
    }

    /// Something was recorded: what it says is true from now on.
    ///
    /// # Errors
    ///
    /// When it contradicts what was recorded before, or refers to what is not there.
    pub fn recorded(&mut self, record: &EpochsRecord) -> Result<bool, String> {
        let mut fresh = false;
        for snapshot in &record.snapshots {
            let epoch = snapshot.epoch;
            match self.contents.get(&epoch) {
                Some(before) if before.cuts != snapshot.cuts => {
                    return Err(format!("{epoch:?} is recorded twice, with other contents"));
                }
                Some(_) => {}
                None => {
                    self.fold(snapshot)?;
                    fresh = true;
                }
            }
        }
        match record
            .committed
            .filter(|epoch| !self.snapshots.contains_key(epoch))
        {
            Some(epoch) => Err(format!("{epoch:?} is committed, and not there")),
            None => Ok(fresh),
        }
    }

    fn fold(&mut self, snapshot: &RecordedSnapshot) -> Result<(), String> {
        let epoch = snapshot.epoch;
        if self.newest() >= Some(epoch) {
            return Err(format!("{epoch:?} is recorded after {:?}", self.newest()));
        }
        let mut folded = match snapshot.over {
            None => BTreeMap::new(),
            Some(over) => {
                let below = self.snapshots.get(&over).cloned();
                below.ok_or_else(|| format!("{epoch:?} lies over {over:?}, which is not there"))?
            }
        };
        for (participant, cut) in &snapshot.cuts {
            let place = <[u8; 8]>::try_from(&cut.receipt.place[..]).map(u64::from_be_bytes);
            let saved = place.ok().and_then(|place| self.cuts.get(&place));
            let (_, entries) =
                saved.ok_or_else(|| format!("the cut of {participant} for {epoch:?} is gone"))?;
            let since = cut.receipt.since;
            if since > snapshot.over {
                return Err(format!(
                    "an increment since {since:?} over {:?}",
                    snapshot.over
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
        self.snapshots.insert(epoch, folded);
        self.contents.insert(epoch, snapshot.clone());
        Ok(())
    }

    /// The newest epoch that was ever recorded.
    pub fn newest(&self) -> Option<Epoch> {
        self.contents.keys().next_back().copied()
    }

    /// Whether that epoch was ever recorded.
    pub fn was_recorded(&self, epoch: Epoch) -> bool {
        self.contents.contains_key(&epoch)
    }

    /// How far a source had read at the end of a recorded epoch.
    pub fn offset(&self, epoch: Epoch, source: u32) -> u64 {
        let offsets = self.offsets.get(&epoch);
        offsets
            .and_then(|offsets| offsets.get(&source))
            .copied()
            .unwrap_or(0)
    }

    /// How many records had been read at the end of a recorded epoch.
    pub fn prefix(&self, epoch: Epoch) -> u64 {
        self.offsets
            .get(&epoch)
            .map_or(0, |offsets| offsets.values().sum())
    }

    /// What a participant had saved at the end of an epoch; nothing if the snapshot is not there.
    pub fn restore(&self, epoch: Epoch, participant: ParticipantId) -> Option<Entries> {
        let snapshot = self.snapshots.get(&epoch)?;
        Some(snapshot.get(&participant).cloned().unwrap_or_default())
    }

    /// Drops what is not needed any more.
    pub fn keep(&mut self, epochs: &[Epoch], below: Epoch, present: Generation) {
        self.snapshots
            .retain(|epoch, _| *epoch >= below || epochs.contains(epoch));
        let kept = epochs.iter().filter_map(|epoch| self.contents.get(epoch));
        let receipts = kept.flat_map(|snapshot| snapshot.cuts.values());
        let places: BTreeSet<_> = receipts.map(|cut| cut.receipt.place.clone()).collect();
        self.cuts.retain(|place, (of, _)| {
            let may_be_needed = match of {
                Of::Epoch(epoch) => *epoch >= below,
                Of::Last(generation) => *generation >= present,
            };
            may_be_needed || places.contains(place.to_be_bytes().as_slice())
        });
    }
}

/// What a transaction of a sink is known by outside: who prepared it, in which life of the job, and its number there.
pub type TransactionId = (ParticipantId, Generation, u64);

/// What sinks have published, for all the world to see.
#[derive(Debug, Default)]
pub struct Outside {
    transactions: BTreeMap<TransactionId, Vec<Output>>,
    /// How often each record's result is there.
    results: BTreeMap<(u32, u64), u64>,
    /// The count that each record of a source has to come with.
    counts: BTreeMap<u32, Vec<u64>>,
}

impl Outside {
    /// Publishes a transaction; again, perhaps.
    ///
    /// # Errors
    ///
    /// When it is there with other contents, or, where the job promises each result once, when one is there already, is wrong, or is of what no
    /// recorded epoch has read.
    pub fn publish(
        &mut self,
        id: TransactionId,
        outputs: &[Output],
        guarantee: Guarantee,
        vault: &Vault,
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
            // Where inputs don't wait for each other, what is behind an epoch's end may come before it.
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

    /// How many records' results are published.
    pub fn results(&self) -> u64 {
        self.results.len() as u64
    }
}
