//! The spilled keys of a keyed state.

use std::collections::HashMap;
use std::mem;

use ardea_core::{
    Error, ErrorCode, KeyValueStore, LocalChange, LocalEntries, PartitionId, Progress, Result,
    SnapshotWriter, StateEntry, StoreSnapshot,
};

use crate::PLACES_PER_CALL;
use crate::table::spilled_entry::{
    DueKind, DueTimeBounds, EntryHeader, change_key, changes_until, due_end, due_key, key_of,
};

/// The maximum number of changes buffered in memory before they are written to disk.
const PENDING: usize = 2_048;

/// The keys of one keyed state that are on disk, with their serialized states, as in the entries of
/// a snapshot.
///
/// The [store](KeyValueStore) contains three kinds of entries: keys; keys by due time; and, by the
/// generation of their last change, the keys changed since the last commit. A snapshot reads a view
/// of the store at the time the snapshot was taken, so that later changes do not affect it.
pub struct SpilledKeys {
    /// The name of the state in snapshots.
    name: &'static str,
    place: Box<dyn KeyValueStore>,
    /// The changes that are not written to the store yet.
    pending: HashMap<Vec<u8>, Option<Vec<u8>>>,
    /// The changes being written to the store. Empty otherwise.
    changes: Vec<LocalChange>,
    keys: usize,
    bytes: u64,
    /// Per kind, the position of the first due time, or a position before it.
    firsts: DueTimeBounds,
    /// The generation up to which changes have been removed from the list.
    forgotten: u32,
    snapshot: Option<SpilledSnapshot>,
}

/// A snapshot in progress: a view of the store at the time it was taken.
enum SpilledSnapshot {
    /// All keys.
    Full(LocalEntries),
    /// The changes since the last commit, and the view with their states.
    Changes(LocalEntries, Box<dyn StoreSnapshot>),
}

impl SpilledKeys {
    pub(crate) fn new(name: &'static str, place: Box<dyn KeyValueStore>) -> Self {
        SpilledKeys {
            name,
            place,
            pending: HashMap::new(),
            changes: Vec::new(),
            keys: 0,
            bytes: 0,
            firsts: DueTimeBounds::default(),
            forgotten: 0,
            snapshot: None,
        }
    }

    /// Returns the number of keys in the store that have a state.
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Returns the size of all entries in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of bytes that may stay in memory.
    pub(crate) fn memory(&self) -> u64 {
        self.place.memory_budget()
    }

    /// Stores a key by its canonical bytes.
    pub(crate) fn put(&mut self, key: &[u8], head: &EntryHeader, value: &[u8]) {
        let entry = head.with(value);
        self.count(key, head, entry.len(), true);
        for kind in DueKind::ALL {
            if let Some(due) = head.dues.get(kind) {
                self.firsts.lower(kind, due, key);
                self.pending
                    .insert(due_key(kind, due, key), Some(Vec::new()));
            }
        }
        if head.is_listed {
            let listed = change_key(head.changed, key);
            self.pending.insert(listed, Some(head.in_list()));
        }
        self.pending.insert(key_of(key), Some(entry));
    }

    /// Removes a key, if it is stored, and returns its header and value.
    ///
    /// # Errors
    /// The entry cannot be read, or pending changes cannot be written.
    pub(crate) fn take(&mut self, key: &[u8]) -> Result<Option<(EntryHeader, Vec<u8>)>> {
        let place = key_of(key);
        let found = match self.pending.get(&place) {
            Some(pending) => pending.clone(),
            None => self.place.get(&place)?,
        };
        let Some(entry) = found else {
            return Ok(None);
        };
        let head = EntryHeader::read(&entry)?;
        self.count(key, &head, entry.len(), false);
        for kind in DueKind::ALL {
            if let Some(due) = head.dues.get(kind) {
                self.pending.insert(due_key(kind, due, key), None);
            }
        }
        if head.is_listed {
            self.pending.insert(change_key(head.changed, key), None);
        }
        self.pending.insert(place, None);
        if self.pending.len() >= PENDING {
            self.flush()?;
        }
        let value = entry[head.len()..].to_vec();
        Ok(Some((head, value)))
    }

    fn count(&mut self, key: &[u8], head: &EntryHeader, entry: usize, comes: bool) {
        if head.is_removed {
            return;
        }
        let bytes = (key.len() + entry) as u64;
        (self.keys, self.bytes) = match comes {
            true => (self.keys + 1, self.bytes + bytes),
            false => (
                self.keys.saturating_sub(1),
                self.bytes.saturating_sub(bytes),
            ),
        };
    }

    /// Writes the pending changes to the store.
    ///
    /// # Errors
    /// Those of writing. All changes then remain pending.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.changes.extend(self.pending.drain());
        let written = self.place.write(&self.changes);
        match written {
            Ok(()) => self.changes.clear(),
            Err(_) => self.pending.extend(self.changes.drain(..)),
        }
        written
    }

    /// Returns a lower bound of the due times of this kind, if there are any.
    pub(crate) fn first_due(&self, kind: DueKind) -> Option<i64> {
        self.firsts.get(kind).map(|(time, _)| time)
    }

    /// Returns up to `most` keys due by `until`, in order of time. The caller must remove the
    /// returned keys.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub(crate) fn due(&mut self, kind: DueKind, until: i64, most: usize) -> Result<Vec<Vec<u8>>> {
        let Some((time, key)) = self.firsts.get(kind).filter(|(time, _)| *time <= until) else {
            return Ok(Vec::new());
        };
        // The scan does not start at the beginning of the range or of `time`: deleted entries there
        // may slow it down.
        let (first, end) = (due_key(kind, time, key), due_end(kind, Some(until)));
        self.flush()?;
        let view = self.place.view();
        let (mut keys, mut last) = (Vec::new(), None);
        for entry in view.range(&first, &end).take(most) {
            let (due, _) = entry?;
            keys.push(DueKind::key_in(&due)?.to_vec());
            last = Some(due);
        }
        if keys.len() < most {
            let next = view.range(&end, &due_end(kind, None)).next();
            last = next.transpose()?.map(|(due, _)| due);
        }
        self.firsts.set(kind, last.as_deref())?;
        Ok(keys)
    }

    /// Captures the current contents for a snapshot: all keys, or those changed after generation
    /// `base`.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn take_snapshot(
        &mut self,
        is_full: bool,
        base: u32,
        generation: u32,
    ) -> Result<()> {
        self.snapshot = None;
        self.flush()?;
        let view = self.place.view();
        self.snapshot = Some(match is_full {
            true => SpilledSnapshot::Full(view.range(&key_of(b""), &EntryHeader::END_OF_KEYS)),
            false => {
                let (first, end) = (changes_until(base), changes_until(generation));
                SpilledSnapshot::Changes(view.range(&first, &end), view)
            }
        });
        Ok(())
    }

    /// Drops the iterator of the snapshot, after the snapshot was completed or aborted.
    pub(crate) fn end_snapshot(&mut self) {
        self.snapshot = None;
    }

    /// Writes the next part of the snapshot. Done when it is complete.
    ///
    /// # Errors
    /// An entry cannot be read or written.
    pub(crate) fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let Some(snapshot) = &mut self.snapshot else {
            return Ok(Progress::DONE);
        };
        for _ in 0..PLACES_PER_CALL {
            if !writer.has_room() {
                return Ok(Progress::MADE);
            }
            let is_written = match snapshot {
                SpilledSnapshot::Full(keys) => write_next(self.name, keys, writer)?,
                SpilledSnapshot::Changes(changes, view) => {
                    write_change(self.name, changes, &**view, writer)?
                }
            };
            if !is_written {
                self.snapshot = None;
                return Ok(Progress::DONE);
            }
        }
        Ok(Progress::MADE)
    }

    /// Removes committed changes up to generation `base` from the list, and their tombstones, some
    /// per call.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub(crate) fn forget_changes(&mut self, base: u32) -> Result<Progress> {
        if base <= self.forgotten {
            return Ok(Progress::DONE);
        }
        self.flush()?;
        let view = self.place.view();
        let (first, end) = (changes_until(self.forgotten), changes_until(base));
        let mut forgotten = 0;
        for entry in view.range(&first, &end).take(PLACES_PER_CALL) {
            let (listed, value) = entry?;
            let (is_removed, _) = EntryHeader::from_list(&value)?;
            if is_removed {
                self.pending
                    .insert(key_of(EntryHeader::listed_key(&listed)?), None);
            }
            self.pending.insert(listed, None);
            forgotten += 1;
        }
        if forgotten == PLACES_PER_CALL {
            self.flush()?;
            return Ok(Progress::MADE);
        }
        self.forgotten = base;
        Ok(Progress::DONE)
    }
}

/// Writes the next key. Returns false if there is none.
fn write_next(
    name: &str,
    keys: &mut LocalEntries,
    writer: &mut SnapshotWriter<'_>,
) -> Result<bool> {
    let Some(entry) = keys.next().transpose()? else {
        return Ok(false);
    };
    let (key, entry) = entry;
    let head = EntryHeader::read(&entry)?;
    if !head.is_removed {
        let value = Some(&entry[head.len()..]);
        write((name, writer), head.partition, &key[1..], value)?;
    }
    Ok(true)
}

/// Writes the next changed key. Returns false if there is none.
fn write_change(
    name: &str,
    changes: &mut LocalEntries,
    view: &dyn StoreSnapshot,
    writer: &mut SnapshotWriter<'_>,
) -> Result<bool> {
    let Some(entry) = changes.next().transpose()? else {
        return Ok(false);
    };
    let (listed, value) = entry;
    let key = EntryHeader::listed_key(&listed)?;
    let (is_removed, partition) = EntryHeader::from_list(&value)?;
    if is_removed {
        write((name, writer), partition, key, None)?;
        return Ok(true);
    }
    let Some(entry) = view.get(&key_of(key))? else {
        let what = "a key that is listed as changed is not on disk";
        return Err(Error::new(ErrorCode::Internal, what));
    };
    let head = EntryHeader::read(&entry)?;
    write((name, writer), partition, key, Some(&entry[head.len()..]))?;
    Ok(true)
}

fn write(
    (name, writer): (&str, &mut SnapshotWriter<'_>),
    partition: PartitionId,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    writer.copy(StateEntry {
        state: name,
        partition: Some(partition),
        key,
        value,
    })
}

impl Drop for SpilledKeys {
    fn drop(&mut self) {
        // Views must be dropped before the store.
        drop(mem::take(&mut self.snapshot));
    }
}
