//! The changes of an interval join's buffers since the last commit, and the snapshot in progress.

use std::collections::VecDeque;
use std::mem;

use ardea_core::{
    Epoch, Error, Key, Progress, Result, SnapshotRequest, SnapshotWriter, StateChunk, Timestamp,
};
use ardea_state::{Changes, PLACES_PER_CALL, StateTable};

use crate::join::join_buffers::{BufferedRecord, JoinBuffers, Stamp};
use crate::join::join_state_codec::{At, JoinStateCodec, Side, write_tombstone};
use crate::join::removed_records::RemovedRecords;

/// The added, matched and removed records, for snapshots.
///
/// The changelog stores which keys have changed. It finds the changed records by their generations
/// when a snapshot is written, so a buffered record costs only its stamp. A record of the snapshot
/// that changes before it is written is written to the snapshot first.
pub(crate) struct JoinChangelog<L, R> {
    kept: JoinStateCodec<L, R>,
    /// The current generation: incremented at each snapshot, and above the generations of all
    /// restored records.
    generation: u32,
    /// The number of records added in this generation.
    number: u32,
    /// The slots of keys with added or matched records.
    changes: Changes,
    removed: RemovedRecords,
    /// The key whose records are being written.
    scan: Option<Scan>,
    /// The first error that occurred while a tombstone was written.
    broken: Option<Error>,
}

/// The position of the scan of a key.
#[derive(Clone, Copy)]
struct Scan {
    slot: u32,
    /// True if the left side is complete and the scan is at the right side.
    in_right: bool,
    /// The last record of the side that was checked.
    after: Option<(Timestamp, Stamp)>,
}

/// The range of generations that a snapshot contains.
#[derive(Clone, Copy)]
struct Extent {
    /// The last generation of the snapshot.
    until: u32,
    /// The base generation of an increment, exclusive.
    base: Option<u32>,
}

impl Extent {
    /// Returns true if the snapshot contains a record that was added in generation `came` and first
    /// matched in generation `matched`. Valid for records that are still buffered and not written
    /// early.
    fn has(self, came: u32, matched: u32) -> bool {
        let is_new = |base| came > base || matched > base;
        came <= self.until && matched <= self.until && self.base.is_none_or(is_new)
    }
}

impl<L, R> JoinChangelog<L, R> {
    /// Creates an empty changelog for records with these serializers.
    pub(super) fn new(kept: JoinStateCodec<L, R>) -> Self {
        JoinChangelog {
            kept,
            generation: 1,
            number: 0,
            changes: Changes::default(),
            removed: RemovedRecords::default(),
            scan: None,
            broken: None,
        }
    }

    /// Continues after a restore. `generation` is the latest generation of the restored records.
    pub(super) fn resume_after(&mut self, generation: u32) {
        self.changes.base = generation;
        self.generation = generation.saturating_add(1);
    }

    fn extent(&self) -> Option<Extent> {
        let writing = self.changes.writing()?;
        Some(Extent {
            until: writing.generation,
            base: (!writing.is_full()).then_some(writing.base),
        })
    }

    /// Marks the key at a slot as changed.
    fn note(&mut self, slot: u32, changed: &mut u32) {
        if mem::replace(changed, self.generation) != self.generation {
            self.changes.note(slot);
        }
    }

    /// Writes a record that is about to change, if the snapshot in progress has not reached it.
    /// `reached` is [`JoinBuffers::reached`] of the record's key.
    fn set_aside<K: Key>(&mut self, (key, slot): (&K, u32), reached: u32, at: At<'_, L, R>) {
        let Some(extent) = self.extent() else { return };
        let (is_right, place, matched) = match at {
            Side::Left(waiting) => (false, waiting.place(), waiting.matched),
            Side::Right(waiting) => (true, waiting.place(), waiting.matched),
        };
        let is_ahead = match self.scan.filter(|scan| scan.slot == slot) {
            Some(scan) => (is_right, Some(place)) > (scan.in_right, scan.after),
            None => reached != extent.until,
        };
        if is_ahead && extent.has(place.1.generation, matched) {
            let kept = &self.kept;
            self.changes.put_aside(|chunk| kept.write(chunk, key, at));
        }
    }

    /// Records the removal of a record.
    fn note_removed<K: Key>(&mut self, key: &K, at: At<'_, L, R>) {
        if self
            .removed
            .is_known(at.stamp().generation, self.changes.base)
            && let Err(error) = write_tombstone(&mut self.removed.now, key, &at)
        {
            self.broken.get_or_insert(error);
        }
    }

    /// Captures the current contents for a snapshot.
    pub(super) fn take_snapshot<K: Key>(
        &mut self,
        snapshot: SnapshotRequest,
        keys: &StateTable<K, JoinBuffers<L, R>>,
    ) -> Result<()> {
        self.changes.freeze(snapshot.epoch, self.generation);
        self.settle();
        self.removed.freeze(snapshot.epoch, self.generation);
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.changes.begin(snapshot, self.generation, keys.slots());
        self.generation += 1;
        self.number = 0;
        Ok(())
    }

    /// Writes the next part of the current snapshot.
    pub(super) fn write_snapshot<K: Key>(
        &mut self,
        keys: &mut StateTable<K, JoinBuffers<L, R>>,
        writer: &mut SnapshotWriter<'_>,
    ) -> Result<Progress> {
        let progress = self.write_some(keys, writer);
        if !matches!(progress, Ok(Progress { done: false, .. })) {
            self.changes.end();
            self.settle();
        }
        progress
    }

    fn write_some<K: Key>(
        &mut self,
        keys: &mut StateTable<K, JoinBuffers<L, R>>,
        writer: &mut SnapshotWriter<'_>,
    ) -> Result<Progress> {
        let Some(extent) = self.extent() else {
            return Ok(Progress::DONE);
        };
        self.changes.write_aside(writer)?;
        if extent.base.is_some() && !self.removed.write(writer)? {
            return Ok(Progress::MADE);
        }
        let mut places = PLACES_PER_CALL;
        while places > 0 && writer.has_room() {
            let Some(scan) = self.scan.take() else {
                places -= 1;
                let Some(slot) = self.changes.next() else {
                    return Ok(Progress::DONE);
                };
                self.scan = reach(keys, slot, extent);
                continue;
            };
            if let Some((key, sides)) = keys.get_mut(scan.slot) {
                self.scan = self.write_key((key, &*sides), scan, extent, &mut places, writer)?;
            }
        }
        Ok(Progress::MADE)
    }

    /// Writes records of a key while there is room. Returns the position reached, or `None` if all
    /// records of the key are written.
    fn write_key<K: Key>(
        &self,
        (key, sides): (&K, &JoinBuffers<L, R>),
        mut scan: Scan,
        extent: Extent,
        places: &mut usize,
        writer: &mut SnapshotWriter<'_>,
    ) -> Result<Option<Scan>> {
        if !scan.in_right {
            let write = |chunk: &mut StateChunk, waiting: &BufferedRecord<L>| {
                self.kept.write(chunk, key, Side::Left(waiting))
            };
            if !write_side(&sides.left, &mut scan.after, extent, places, writer, write)? {
                return Ok(Some(scan));
            }
            scan = Scan {
                in_right: true,
                after: None,
                ..scan
            };
        }
        let write = |chunk: &mut StateChunk, waiting: &BufferedRecord<R>| {
            self.kept.write(chunk, key, Side::Right(waiting))
        };
        let is_done = write_side(&sides.right, &mut scan.after, extent, places, writer, write)?;
        Ok((!is_done).then_some(scan))
    }

    /// Handles the commit of `epoch`: drops the records of changes up to its snapshot.
    pub(super) fn commit(&mut self, epoch: Epoch) {
        self.changes.commit(epoch);
        self.settle();
    }

    /// Handles the abort of `epoch`, whose snapshot is void.
    pub(super) fn abort(&mut self, epoch: Epoch) {
        self.changes.abort(epoch);
        self.removed.abort(epoch);
        self.settle();
    }

    /// Drops the records of committed changes, unless a snapshot is being written.
    fn settle(&mut self) {
        if self.changes.writing().is_none() {
            self.scan = None;
            self.removed.settle(self.changes.base);
        }
    }
}

/// Starts the scan of the key at `slot`, if the key may have records of the snapshot and was not
/// scanned before; otherwise returns `None`.
fn reach<K: Key, L, R>(
    keys: &mut StateTable<K, JoinBuffers<L, R>>,
    slot: u32,
    extent: Extent,
) -> Option<Scan> {
    let (_, sides) = keys.get_mut(slot)?;
    let is_first = mem::replace(&mut sides.reached, extent.until) != extent.until;
    let has_changed = extent.base.is_none_or(|base| sides.changed > base);
    (is_first && has_changed).then_some(Scan {
        slot,
        in_right: false,
        after: None,
    })
}

/// Writes the snapshot's records of a side that follow `after`, and advances `after`. Returns true
/// if the side is complete.
fn write_side<T>(
    side: &VecDeque<BufferedRecord<T>>,
    after: &mut Option<(Timestamp, Stamp)>,
    extent: Extent,
    places: &mut usize,
    writer: &mut SnapshotWriter<'_>,
    write: impl Fn(&mut StateChunk, &BufferedRecord<T>) -> Result<()>,
) -> Result<bool> {
    let start = after.map_or(0, |after| {
        side.partition_point(|other| other.place() <= after)
    });
    for waiting in side.range(start..) {
        if *places == 0 || !writer.has_room() {
            return Ok(false);
        }
        *places -= 1;
        *after = Some(waiting.place());
        if extent.has(waiting.stamp.generation, waiting.matched) {
            write(writer.chunk(), waiting)?;
        }
    }
    Ok(true)
}

/// The changelog, if there is one, positioned at a key.
pub(crate) struct SideChangelog<'a, K, L, R> {
    changelog: Option<&'a mut JoinChangelog<L, R>>,
    key: &'a K,
    slot: u32,
}

impl<'a, K: Key, L, R> SideChangelog<'a, K, L, R> {
    pub(super) fn open(
        journal: Option<&'a mut JoinChangelog<L, R>>,
        (key, slot): (&'a K, u32),
    ) -> Self {
        SideChangelog {
            changelog: journal,
            key,
            slot,
        }
    }

    /// Returns the current generation, which is never zero.
    pub(super) fn generation(&self) -> u32 {
        self.changelog
            .as_ref()
            .map_or(1, |journal| journal.generation)
    }

    /// Records the arrival of a record that will be buffered. `changed` is [`JoinBuffers::changed`]
    /// of the record's key.
    pub(super) fn record_added(&mut self, changed: &mut u32) -> Stamp {
        let Some(journal) = &mut self.changelog else {
            return Stamp {
                generation: 1,
                number: 0,
            };
        };
        journal.note(self.slot, changed);
        let number = journal.number;
        journal.number = number.wrapping_add(1);
        Stamp {
            generation: journal.generation,
            number,
        }
    }

    /// Records that a left record is about to have its first match.
    pub(super) fn record_matched(
        &mut self,
        changed: &mut u32,
        reached: u32,
        waiting: &BufferedRecord<L>,
    ) {
        if let Some(journal) = &mut self.changelog {
            journal.note(self.slot, changed);
            journal.set_aside((self.key, self.slot), reached, Side::Left(waiting));
        }
    }

    /// Records the removal of a record.
    pub(super) fn record_removed(&mut self, reached: u32, at: At<'_, L, R>) {
        if let Some(journal) = &mut self.changelog {
            journal.set_aside((self.key, self.slot), reached, at);
            journal.note_removed(self.key, at);
        }
    }
}
