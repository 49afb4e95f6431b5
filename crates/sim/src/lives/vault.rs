//! What outlives workers of one program: saved cuts and recorded snapshots; and what must hold of them.

use std::collections::{BTreeMap, BTreeSet};

use ardea_coordination::control::{
    BROUGHT, EpochsRecord, LeftState, Life, ParticipantId, Receipt, RecordedSnapshot,
};
use ardea_core::Epoch;

use super::instance::{Counts, PARTITIONS};
use super::part::Entries;
use super::published::behind;

/// Whose a saved cut is: an epoch's, or a last state of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// An epoch's.
    Epoch(Epoch),
    /// A worker's that has ended, in that life.
    Last(u64),
}

/// A recorded snapshot.
#[derive(Debug)]
struct Snapshot {
    taken_in: u64,
    state: Entries,
}

/// What outlives workers.
#[derive(Debug, Default)]
pub struct Vault {
    cuts: BTreeMap<u64, (Of, Entries)>,
    saved: u64,
    snapshots: BTreeMap<Epoch, Snapshot>,
    /// How far sources had read at the end of each epoch that was ever recorded.
    offsets: BTreeMap<Epoch, Counts>,
}

impl Vault {
    /// Saves a cut.
    pub fn save(&mut self, of: Of, entries: Entries) -> Receipt {
        self.saved += 1;
        let bytes = entries.len() as u64;
        self.cuts.insert(self.saved, (of, entries));
        Receipt {
            since: None,
            place: self.saved.to_be_bytes().to_vec(),
            bytes,
        }
    }

    /// Something was recorded by the conductor: each new snapshot is of exactly these participants, and says one thing of each partition.
    ///
    /// # Errors
    ///
    /// When it isn't so.
    pub fn recorded(
        &mut self,
        record: &EpochsRecord,
        participants: Option<&BTreeSet<ParticipantId>>,
        vertices: usize,
    ) -> Result<(), String> {
        for snapshot in &record.snapshots {
            if !self.snapshots.contains_key(&snapshot.epoch) {
                self.take(snapshot, participants, vertices)?;
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
        snapshot: &RecordedSnapshot,
        participants: Option<&BTreeSet<ParticipantId>>,
        vertices: usize,
    ) -> Result<(), String> {
        let epoch = snapshot.epoch;
        if self.newest() >= Some(epoch) {
            return Err(format!("{epoch:?} is recorded after {:?}", self.newest()));
        }
        let of: BTreeSet<ParticipantId> = snapshot.cuts.keys().copied().collect();
        if Some(&of) != participants {
            return Err(format!(
                "{epoch:?} is of {of:?}, and not of {participants:?}"
            ));
        }
        let mut state = Entries::new();
        for (participant, cut) in &snapshot.cuts {
            let place = <[u8; 8]>::try_from(&cut.receipt.place[..]).map(u64::from_be_bytes);
            let saved = place.ok().and_then(|place| self.cuts.get(&place));
            let Some((_, entries)) = saved else {
                return Err(format!("the cut of {participant} for {epoch:?} is gone"));
            };
            state.extend(entries.clone());
        }
        let offsets = agreed(&state, vertices).map_err(|why| format!("{epoch:?}: {why}"))?;
        self.offsets.insert(epoch, offsets);
        let taken_in = snapshot.generation.0;
        self.snapshots.insert(epoch, Snapshot { taken_in, state });
        Ok(())
    }

    /// What a life begins with.
    ///
    /// # Errors
    ///
    /// When there is no such snapshot, or it was taken in another life.
    pub fn restore(&self, life: &Life) -> Result<Entries, String> {
        let Some(epoch) = life.from else {
            return Ok(Entries::new());
        };
        match self.snapshots.get(&epoch) {
            Some(snapshot) if snapshot.taken_in == life.taken_in.0 => Ok(snapshot.state.clone()),
            Some(snapshot) => Err(format!("{life:?} is from life {}", snapshot.taken_in)),
            None => Err(format!("{life:?} begins from what is not there")),
        }
    }

    /// Whether sinks may publish up to these numbers.
    ///
    /// # Errors
    ///
    /// When that was not read by a recorded epoch.
    pub fn permits(&self, counts: &Counts) -> Result<(), String> {
        let recorded = self.offsets.values().next_back();
        behind(counts, recorded.unwrap_or(&Counts::new())).map_or(Ok(()), Err)
    }

    /// How far a recorded epoch has read.
    pub fn read_by(&self, epoch: Epoch) -> Option<&Counts> {
        self.offsets.get(&epoch)
    }

    /// Brings the state that another program has left, before there is any of its own.
    ///
    /// # Errors
    ///
    /// When the other one has no such snapshot, or it was taken in another life.
    pub fn bring(&mut self, from: &Vault, left: LeftState) -> Result<(), String> {
        let life = Life {
            generation: BROUGHT,
            from: Some(left.epoch),
            taken_in: left.generation,
        };
        let state = from.restore(&life)?;
        let offsets = from.read_by(left.epoch).cloned().unwrap_or_default();
        let taken_in = BROUGHT.0;
        self.snapshots
            .insert(left.epoch, Snapshot { taken_in, state });
        self.offsets.insert(left.epoch, offsets);
        Ok(())
    }

    fn newest(&self) -> Option<Epoch> {
        self.offsets.keys().next_back().copied()
    }

    /// Drops what is not needed any more.
    pub fn keep(&mut self, epochs: &[Epoch], below: Epoch, present: u64) {
        self.snapshots
            .retain(|epoch, _| *epoch >= below || epochs.contains(epoch));
        self.cuts.retain(|_, (of, _)| match of {
            Of::Epoch(epoch) => *epoch >= below,
            Of::Last(life) => *life >= present,
        });
    }
}

/// How far each partition had been read, on which all vertices have to agree.
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
