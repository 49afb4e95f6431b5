//! The keys of a keyed state that are on disk.

use std::collections::HashMap;
use std::mem;

use ardea_core::{
    CutWriter, Error, ErrorCode, LocalChange, LocalEntries, LocalPlace, LocalView, PartitionId,
    Progress, Result, StateEntry,
};

use crate::keyed::cold_entry::{
    Due, Firsts, Head, change_key, changes_until, due_end, due_key, key_of,
};
use crate::keyed::states::{PLACES_PER_CALL, STATE};

/// How many changes wait in memory at the most until the disk is told of them.
const PENDING: usize = 2_048;

/// The keys of one keyed state that are on disk, with their states as bytes: those of the entries that a cut would have.
///
/// Three kinds of entries lie in the [place](LocalPlace): keys; by time, the keys of which something falls due; and, by the generation of their
/// last change, those keys that changed after the last commit. A cut that is taken looks at what there was when it was taken, so that what
/// leaves the disk meanwhile needs no care.
pub(crate) struct Cold {
    place: Box<dyn LocalPlace>,
    /// What the place has not been told yet.
    pending: HashMap<Vec<u8>, Option<Vec<u8>>>,
    /// Where the pending changes lie when they are told; empty in between.
    changes: Vec<LocalChange>,
    keys: usize,
    bytes: u64,
    /// Of each kind where the first lies that falls due, or behind it.
    firsts: Firsts,
    /// No change up to this generation is listed any more.
    forgotten: u32,
    cut: Option<ColdCut>,
}

/// A cut that is being written: what was on disk when it was taken.
enum ColdCut {
    /// All keys.
    Full(LocalEntries),
    /// Those that changed after the last commit, and where their states are.
    Changes(LocalEntries, Box<dyn LocalView>),
}

impl Cold {
    pub(super) fn new(place: Box<dyn LocalPlace>) -> Self {
        Cold {
            place,
            pending: HashMap::new(),
            changes: Vec::new(),
            keys: 0,
            bytes: 0,
            firsts: Firsts::default(),
            forgotten: 0,
            cut: None,
        }
    }

    /// How many keys have a state here.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// How many bytes all of that takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes may stay in memory.
    pub(super) fn memory(&self) -> u64 {
        self.place.memory()
    }

    /// Takes in a key, by its canonical bytes.
    pub(super) fn put(&mut self, key: &[u8], head: &Head, value: &[u8]) {
        let entry = head.with(value);
        self.count(key, head, entry.len(), true);
        for kind in Due::ALL {
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

    /// Takes a key out, if it is here: what is said of it, and its value.
    ///
    /// # Errors
    /// If it can't be read, or there is no room for what waits.
    pub(super) fn take(&mut self, key: &[u8]) -> Result<Option<(Head, Vec<u8>)>> {
        let place = key_of(key);
        let found = match self.pending.get(&place) {
            Some(pending) => pending.clone(),
            None => self.place.get(&place)?,
        };
        let Some(entry) = found else {
            return Ok(None);
        };
        let head = Head::read(&entry)?;
        self.count(key, &head, entry.len(), false);
        for kind in Due::ALL {
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

    fn count(&mut self, key: &[u8], head: &Head, entry: usize, comes: bool) {
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

    /// Tells the place what waits.
    ///
    /// # Errors
    /// What writing returns; all of it waits on then.
    pub(super) fn flush(&mut self) -> Result<()> {
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

    /// A time before which nothing of this kind falls due, if anything does.
    pub(super) fn first_due(&self, kind: Due) -> Option<i64> {
        self.firsts.get(kind).map(|(time, _)| time)
    }

    /// The keys of which something of this kind falls due until this time, in order of time, `most` at the most. Whoever asks takes them out.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn due(&mut self, kind: Due, until: i64, most: usize) -> Result<Vec<Vec<u8>>> {
        let Some((time, key)) = self.firsts.get(kind).filter(|(time, _)| *time <= until) else {
            return Ok(Vec::new());
        };
        // Not from the beginning, nor from that time: what was there and is gone may still be in the way.
        let (first, end) = (due_key(kind, time, key), due_end(kind, Some(until)));
        self.flush()?;
        let view = self.place.view();
        let (mut keys, mut last) = (Vec::new(), None);
        for entry in view.range(&first, &end).take(most) {
            let (due, _) = entry?;
            keys.push(Due::key_in(&due)?.to_vec());
            last = Some(due);
        }
        if keys.len() < most {
            let next = view.range(&end, &due_end(kind, None)).next();
            last = next.transpose()?.map(|(due, _)| due);
        }
        self.firsts.set(kind, last.as_deref())?;
        Ok(keys)
    }

    /// What is here now belongs to a cut: all of it, or what changed after the generation `base`.
    ///
    /// # Errors
    /// What writing returns.
    pub(super) fn take_cut(&mut self, is_full: bool, base: u32, generation: u32) -> Result<()> {
        self.cut = None;
        self.flush()?;
        let view = self.place.view();
        self.cut = Some(match is_full {
            true => ColdCut::Full(view.range(&key_of(b""), &Head::END_OF_KEYS)),
            false => {
                let (first, end) = (changes_until(base), changes_until(generation));
                ColdCut::Changes(view.range(&first, &end), view)
            }
        });
        Ok(())
    }

    /// The cut is void, or written.
    pub(super) fn end_cut(&mut self) {
        self.cut = None;
    }

    /// Writes on at the cut; done when all has been written.
    ///
    /// # Errors
    /// If something can't be read, or written.
    pub(super) fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let Some(cut) = &mut self.cut else {
            return Ok(Progress::DONE);
        };
        for _ in 0..PLACES_PER_CALL {
            if !writer.has_room() {
                return Ok(Progress::MADE);
            }
            let is_written = match cut {
                ColdCut::Full(keys) => write_next(keys, writer)?,
                ColdCut::Changes(changes, view) => write_change(changes, &**view, writer)?,
            };
            if !is_written {
                self.cut = None;
                return Ok(Progress::DONE);
            }
        }
        Ok(Progress::MADE)
    }

    /// What changed up to this generation has been committed: it needs not be listed any more, and what is said to be removed needs not be
    /// said. Some at a time.
    ///
    /// # Errors
    /// What reading and writing returns.
    pub(super) fn forget_changes(&mut self, base: u32) -> Result<Progress> {
        if base <= self.forgotten {
            return Ok(Progress::DONE);
        }
        self.flush()?;
        let view = self.place.view();
        let (first, end) = (changes_until(self.forgotten), changes_until(base));
        let mut forgotten = 0;
        for entry in view.range(&first, &end).take(PLACES_PER_CALL) {
            let (listed, value) = entry?;
            let (is_removed, _) = Head::from_list(&value)?;
            if is_removed {
                self.pending
                    .insert(key_of(Head::listed_key(&listed)?), None);
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

/// Writes the next key; false if there is none.
fn write_next(keys: &mut LocalEntries, writer: &mut CutWriter<'_>) -> Result<bool> {
    let Some(entry) = keys.next().transpose()? else {
        return Ok(false);
    };
    let (key, entry) = entry;
    let head = Head::read(&entry)?;
    if !head.is_removed {
        let value = Some(&entry[head.len()..]);
        write(writer, head.partition, &key[1..], value)?;
    }
    Ok(true)
}

/// Writes the next key that changed; false if there is none.
fn write_change(
    changes: &mut LocalEntries,
    view: &dyn LocalView,
    writer: &mut CutWriter<'_>,
) -> Result<bool> {
    let Some(entry) = changes.next().transpose()? else {
        return Ok(false);
    };
    let (listed, value) = entry;
    let key = Head::listed_key(&listed)?;
    let (is_removed, partition) = Head::from_list(&value)?;
    if is_removed {
        write(writer, partition, key, None)?;
        return Ok(true);
    }
    let Some(entry) = view.get(&key_of(key))? else {
        let what = "a key that is listed as changed is not on disk";
        return Err(Error::new(ErrorCode::Internal, what));
    };
    let head = Head::read(&entry)?;
    write(writer, partition, key, Some(&entry[head.len()..]))?;
    Ok(true)
}

fn write(
    writer: &mut CutWriter<'_>,
    partition: PartitionId,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    writer.copy(StateEntry {
        state: STATE,
        partition: Some(partition),
        key,
        value,
    })
}

impl Drop for Cold {
    fn drop(&mut self) {
        // What is looked at goes before the place that it lies in.
        drop(mem::take(&mut self.cut));
    }
}
