//! The output published by sinks, and its expected contents.

use std::collections::BTreeMap;

use ardea_coordination::control::{Generation, ParticipantId};
use ardea_core::{Epoch, Guarantee};

use super::model_state::{Key, Output, Value};
use crate::storage::{Counts, DurableStorage, ParticipantStates};

/// The storage of the job's checkpoints.
pub type CheckpointStorage = DurableStorage<Key, Option<Value>>;

/// The number of keys in the records of a source.
const KEYS: u64 = 5;

/// Returns the key of a source's record.
pub fn key(source: u32, offset: u64) -> u64 {
    let mut bits = (u64::from(source) << 40) ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    (bits.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % KEYS
}

/// Returns the offsets of the sources in a checkpoint.
pub fn offsets(states: &ParticipantStates<Key, Option<Value>>) -> Counts {
    let offset = |(participant, entries): (&ParticipantId, &BTreeMap<_, _>)| match entries
        .get(&Key::Offset)
    {
        Some(Some(Value::Number(offset))) => Some((participant.0, *offset)),
        _ => None,
    };
    states.iter().filter_map(offset).collect()
}

/// Returns the number of records read until the end of a recorded epoch.
pub fn prefix(vault: &CheckpointStorage, epoch: Epoch) -> u64 {
    let offsets = vault.offsets(epoch);
    offsets.map_or(0, |offsets| offsets.values().sum())
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
        let read = vault.offsets(newest);
        for output in outputs {
            let record = (output.source, output.offset);
            let times = self.results.entry(record).or_default();
            *times += 1;
            let once = *times == 1;
            // Without alignment, records after a barrier may be processed before the barrier.
            if guarantee == Guarantee::AtLeastOnce {
                continue;
            }
            let offset = read.and_then(|read| read.get(&output.source));
            if Some(&output.offset) >= offset {
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
