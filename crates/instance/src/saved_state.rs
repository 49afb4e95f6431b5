//! The state of an instance in snapshots: the entries that its process sent at the last barrier.
//!
//! The process always sends all of its state. Increments are found here: a hash of each value tells
//! the changed entries, and a missing key is a removed one. The state is also the place of the
//! barriers: which one was requested, and of which one the state was received.

use std::collections::HashMap;

use ardea_core::{
    Epoch, Instance, PartitionId, Progress, RestoredEntry, RestoredState, Result, SmallSnapshot,
    SnapshotRequest, SnapshotWriter, StateEntry,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::protocol::{PART_BYTES, StatePartEntry, StatePartReader, StatePartWriter, Violation};
use crate::session::InstanceSession;

/// The name of the state in snapshots.
const STATE: &str = "instance";

/// An entry as far as increments need it.
#[derive(Clone, Copy, Debug)]
struct EntryVersion {
    hash: u64,
    /// The epoch whose snapshot first had this value; for a removed key, first lacked it.
    changed: Epoch,
    is_removed: bool,
    /// The latest state that had the key.
    seen: u64,
}

/// The entries of the latest state, and their changes.
#[derive(Debug)]
pub(crate) struct ProcessState {
    instance: Instance,
    /// The latest requested barrier, and the latest one whose state was received.
    requested: Epoch,
    received: Epoch,
    /// The barrier of the last state, if it was requested since the latest snapshot.
    last: Option<Epoch>,
    /// The part of the restored state under construction.
    restored: StatePartWriter,
    known: HashMap<(u16, Vec<u8>), EntryVersion>,
    /// The payloads of the latest state.
    payloads: Vec<Vec<u8>>,
    generation: u64,
    snapshot: SmallSnapshot,
}

impl ProcessState {
    /// Creates an empty state.
    pub fn new(instance: Instance) -> Self {
        ProcessState {
            instance,
            requested: Epoch::default(),
            received: Epoch::default(),
            last: None,
            restored: StatePartWriter::default(),
            known: HashMap::new(),
            payloads: Vec::new(),
            generation: 0,
            snapshot: SmallSnapshot::default(),
        }
    }

    /// Requests the state at the end of `epoch`, once.
    pub fn request(&mut self, epoch: Epoch, session: &mut InstanceSession) {
        if self.requested < epoch {
            self.requested = epoch;
            session.push_barrier(epoch);
        }
    }

    /// Requests a state after the latest requested one, once until the next snapshot. Returns its
    /// epoch.
    pub fn request_last(&mut self, session: &mut InstanceSession) -> Epoch {
        let next = Epoch(self.requested.0 + 1);
        let epoch = *self.last.get_or_insert(next);
        self.request(epoch, session);
        epoch
    }

    /// Returns true if the state at the end of `epoch` was received.
    pub fn has(&self, epoch: Epoch) -> bool {
        self.received >= epoch
    }

    /// Takes the state of the process at the end of `epoch`.
    ///
    /// # Errors
    /// An entry without a partition, or with one of another instance.
    pub fn replace(&mut self, epoch: Epoch, payloads: Vec<Vec<u8>>) -> Result<(), Violation> {
        self.generation += 1;
        let generation = self.generation;
        for payload in &payloads {
            let mut entries = StatePartReader::read(payload)?;
            while let Some(entry) = entries.next_entry()? {
                let partition = self.owned_partition(entry)?;
                let hash = xxh3_64(entry.value);
                let key = (partition.index() as u16, entry.key.to_vec());
                let known = self.known.entry(key).or_insert(EntryVersion {
                    hash,
                    changed: epoch,
                    is_removed: false,
                    seen: 0,
                });
                if known.hash != hash || known.is_removed {
                    known.changed = epoch;
                }
                (known.hash, known.is_removed, known.seen) = (hash, false, generation);
            }
        }
        let removed = self.known.values_mut();
        for entry in removed.filter(|it| it.seen < generation && !it.is_removed) {
            (entry.is_removed, entry.changed) = (true, epoch);
        }
        self.payloads = payloads;
        self.received = epoch;
        Ok(())
    }

    /// Takes restored entries, and sends those of this instance to its process.
    ///
    /// # Errors
    /// An entry of another state.
    pub fn restore(
        &mut self,
        entries: &mut RestoredState<'_>,
        session: &mut InstanceSession,
    ) -> Result<()> {
        for entry in entries {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            self.add_restored(&entry);
            self.restored.push(StatePartEntry {
                partition: entry.partition,
                key: entry.key,
                value: entry.value,
            });
            if self.restored.byte_len() >= PART_BYTES {
                session.push_restore(self.restored.finish(), false);
            }
        }
        Ok(())
    }

    /// Completes the restore from `epoch`.
    pub fn on_restored(&mut self, epoch: Epoch, session: &mut InstanceSession) {
        (self.requested, self.received) = (epoch, epoch);
        session.push_restore(self.restored.finish(), true);
    }

    fn owned_partition(&self, entry: StatePartEntry<'_>) -> Result<PartitionId, Violation> {
        let Some(partition) = entry.partition else {
            return Err(Violation::new("an entry of the state has no partition"));
        };
        if partition.owner(self.instance.parallelism) != self.instance.index {
            return Err(Violation::new(format!(
                "an entry of the state has the partition {}, which belongs to another instance",
                partition.index()
            )));
        }
        Ok(partition)
    }

    fn add_restored(&mut self, entry: &RestoredEntry<'_>) {
        let Some(partition) = entry.partition else {
            return;
        };
        let key = (partition.index() as u16, entry.key.to_vec());
        let known = EntryVersion {
            hash: xxh3_64(entry.value),
            changed: Epoch(0),
            is_removed: false,
            seen: 0,
        };
        self.known.insert(key, known);
    }

    /// Marks the latest state as a snapshot.
    ///
    /// # Errors
    /// If the snapshot would be too large.
    pub fn take_snapshot(&mut self, request: SnapshotRequest) -> Result<()> {
        self.last = None;
        let chunk = self.snapshot.begin();
        for payload in &self.payloads {
            // The payloads were read before.
            let Ok(mut entries) = StatePartReader::read(payload) else {
                continue;
            };
            while let Ok(Some(entry)) = entries.next_entry() {
                let number = entry.partition.map_or(0, |it| it.index() as u16);
                let known = self.known.get(&(number, entry.key.to_vec()));
                let changed = known.map_or(request.epoch, |known| known.changed);
                if request.since.is_none_or(|since| changed > since) {
                    chunk.push(StateEntry {
                        state: STATE,
                        partition: entry.partition,
                        key: entry.key,
                        value: Some(entry.value),
                    })?;
                }
            }
        }
        if let Some(since) = request.since {
            for ((partition, key), known) in &self.known {
                if known.is_removed && known.changed > since {
                    chunk.push(StateEntry {
                        state: STATE,
                        partition: PartitionId::from_index(u32::from(*partition)),
                        key,
                        value: None,
                    })?;
                }
            }
        }
        self.payloads.clear();
        Ok(())
    }

    /// Writes the marked snapshot.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.snapshot.write(writer)
    }

    /// Forgets removed keys that the checkpoint of `epoch` lacks.
    pub fn commit(&mut self, epoch: Epoch) {
        self.known
            .retain(|_, entry| !(entry.is_removed && entry.changed <= epoch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::StatePartWriter;
    use ardea_core::StateChunk;

    fn payload(entries: &[(&str, &str)]) -> Vec<Vec<u8>> {
        let mut writer = StatePartWriter::default();
        for (key, value) in entries {
            writer.push(StatePartEntry {
                partition: PartitionId::from_index(7),
                key: key.as_bytes(),
                value: value.as_bytes(),
            });
        }
        vec![writer.finish()]
    }

    fn written(
        state: &mut ProcessState,
        request: SnapshotRequest,
    ) -> Vec<(String, Option<String>)> {
        state.take_snapshot(request).unwrap();
        let mut chunk = StateChunk::default();
        let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
        assert!(state.write(&mut writer).unwrap().done);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let entries = chunk.entries();
        let mut entries: Vec<_> = entries
            .map(|entry| (text(entry.key), entry.value.map(text)))
            .collect();
        entries.sort();
        entries
    }

    fn value(key: &str, value: &str) -> (String, Option<String>) {
        (key.to_owned(), Some(value.to_owned()))
    }

    #[test]
    fn an_increment_holds_changes_and_removed_keys_since_its_base() {
        let mut state = ProcessState::new(Instance::ONLY);
        state
            .replace(Epoch(1), payload(&[("a", "1"), ("b", "1")]))
            .unwrap();
        let full = written(&mut state, SnapshotRequest::full(Epoch(1)));
        assert_eq!(full, [value("a", "1"), value("b", "1")]);
        state.commit(Epoch(1));
        state.replace(Epoch(2), payload(&[("a", "2")])).unwrap();
        let changes = SnapshotRequest::changes(Epoch(2), Epoch(1));
        let expected = [value("a", "2"), ("b".to_owned(), None)];
        assert_eq!(written(&mut state, changes), expected);
        // Epoch 2 was aborted: its changes are repeated.
        state.replace(Epoch(3), payload(&[("a", "2")])).unwrap();
        let changes = SnapshotRequest::changes(Epoch(3), Epoch(1));
        assert_eq!(written(&mut state, changes), expected);
        state.commit(Epoch(3));
        state.replace(Epoch(4), payload(&[("a", "2")])).unwrap();
        let changes = SnapshotRequest::changes(Epoch(4), Epoch(3));
        assert_eq!(written(&mut state, changes), []);
    }

    #[test]
    fn an_entry_of_another_instance_is_refused() {
        let second = Instance {
            index: 1,
            parallelism: 2,
        };
        let mut state = ProcessState::new(second);
        let refused = state.replace(Epoch(1), payload(&[("a", "1")]));
        assert!(refused.unwrap_err().0.contains("another instance"));
    }
}
