//! The state of an instance in snapshots: the entries that its process sent at the last barrier.
//!
//! The process always sends all of its state. Increments are found here: a hash of each value tells
//! the changed entries, and a missing key is a removed one. The state is also the place of the
//! barriers: which one was requested, and of which one the state was received.

use std::collections::HashMap;

use ardea_core::{
    Epoch, Instance, PartitionId, Progress, RestoredState, Result, SmallSnapshot, SnapshotRequest,
    SnapshotWriter, StateEntry,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::protocol::{
    PART_BYTES, StatePartEntry, StatePartReader, StatePartWriter, Violation, split_named_key,
    write_named_key,
};
use crate::session::InstanceSession;

/// The number of an entry without a partition. Only named entries have none.
const NO_PARTITION: u16 = u16::MAX;

/// The name of a state without names in snapshots.
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
    /// True if keys begin with the name of their state.
    is_named: bool,
}

impl ProcessState {
    /// Creates an empty state. `is_named` is true if keys begin with the name of their state.
    pub fn new(instance: Instance, is_named: bool) -> Self {
        ProcessState {
            instance,
            is_named,
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
        self.push_request(epoch, false, session);
    }

    fn push_request(&mut self, epoch: Epoch, is_last: bool, session: &mut InstanceSession) {
        if self.requested < epoch {
            self.requested = epoch;
            session.push_barrier(epoch, is_last);
        }
    }

    /// Requests a state after the latest requested one, once until the next snapshot. Returns its
    /// epoch.
    pub fn request_last(&mut self, session: &mut InstanceSession) -> Epoch {
        let next = Epoch(self.requested.0 + 1);
        let epoch = *self.last.get_or_insert(next);
        self.push_request(epoch, true, session);
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
                let number = self.checked_partition(entry)?;
                let hash = xxh3_64(entry.value);
                let key = (number, entry.key.to_vec());
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
        let mut named = Vec::new();
        for entry in entries {
            if !self.is_named && entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            named.clear();
            let key = match self.is_named {
                true => {
                    write_named_key(entry.state, entry.key, &mut named);
                    &named[..]
                }
                false => entry.key,
            };
            let part = StatePartEntry {
                partition: entry.partition,
                key,
                value: entry.value,
            };
            self.add_restored(part);
            self.restored.push(part);
            if self.restored.byte_len() >= PART_BYTES {
                session.push_restore(Epoch::default(), self.restored.finish(), false);
            }
        }
        Ok(())
    }

    /// Completes the restore from `epoch`.
    pub fn on_restored(&mut self, epoch: Epoch, session: &mut InstanceSession) {
        (self.requested, self.received) = (epoch, epoch);
        session.push_restore(epoch, self.restored.finish(), true);
    }

    /// Returns the number of the partition of an entry of the process, after checking its key.
    fn checked_partition(&self, entry: StatePartEntry<'_>) -> Result<u16, Violation> {
        if self.is_named && split_named_key(entry.key).is_none() {
            return Err(Violation::new("an entry of the state names no state"));
        }
        let Some(partition) = entry.partition else {
            return match self.is_named {
                true => Ok(NO_PARTITION),
                false => Err(Violation::new("an entry of the state has no partition")),
            };
        };
        if partition.owner(self.instance.parallelism) != self.instance.index {
            return Err(Violation::new(format!(
                "an entry of the state has the partition {}, which belongs to another instance",
                partition.index()
            )));
        }
        Ok(partition.index() as u16)
    }

    fn add_restored(&mut self, entry: StatePartEntry<'_>) {
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
                let number = entry.partition.map_or(NO_PARTITION, |it| it.index() as u16);
                let known = self.known.get(&(number, entry.key.to_vec()));
                let changed = known.map_or(request.epoch, |known| known.changed);
                if request.since.is_none_or(|since| changed > since) {
                    let (state, key) = state_and_key(self.is_named, entry.key);
                    chunk.push(StateEntry {
                        state,
                        partition: entry.partition,
                        key,
                        value: Some(entry.value),
                    })?;
                }
            }
        }
        if let Some(since) = request.since {
            for ((partition, key), known) in &self.known {
                if known.is_removed && known.changed > since {
                    let (state, key) = state_and_key(self.is_named, key);
                    chunk.push(StateEntry {
                        state,
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

/// Returns the name of the state of an entry, and the key in that state.
fn state_and_key(is_named: bool, key: &[u8]) -> (&str, &[u8]) {
    // The keys were checked when they were received.
    match is_named.then(|| split_named_key(key)).flatten() {
        Some(named) => named,
        None => (STATE, key),
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
        let mut state = ProcessState::new(Instance::ONLY, false);
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
    fn named_entries_keep_their_state_and_may_have_no_partition() {
        let mut state = ProcessState::new(Instance::ONLY, true);
        let mut writer = StatePartWriter::default();
        for (name, partition) in [("counts", PartitionId::from_index(7)), ("position", None)] {
            let mut key = Vec::new();
            write_named_key(name, b"k", &mut key);
            writer.push(StatePartEntry {
                partition,
                key: &key,
                value: b"1",
            });
        }
        state.replace(Epoch(1), vec![writer.finish()]).unwrap();
        state
            .take_snapshot(SnapshotRequest::full(Epoch(1)))
            .unwrap();
        let mut chunk = StateChunk::default();
        let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
        assert!(state.write(&mut writer).unwrap().done);
        let entries = chunk.entries();
        let entries: Vec<_> = entries
            .map(|entry| (entry.state, entry.partition.is_some(), entry.key))
            .collect();
        let expected = [("counts", true, &b"k"[..]), ("position", false, b"k")];
        assert_eq!(entries, expected);
        assert!(state.replace(Epoch(2), payload(&[("", "1")])).is_err());
    }

    #[test]
    fn an_entry_of_another_instance_is_refused() {
        let second = Instance {
            index: 1,
            parallelism: 2,
        };
        let mut state = ProcessState::new(second, false);
        let refused = state.replace(Epoch(1), payload(&[("a", "1")]));
        assert!(refused.unwrap_err().0.contains("another instance"));
    }
}
