//! The checkpointed state of slices: tracks their changes while they open, close and are dropped.
//!
//! A snapshot contains the entries of tables and parts in [packs](super::delta_blocks), by
//! partition. An [index](super::delta_index) tracks which packs are still valid. Derived data (the
//! running aggregate, the slots of keys) is not written. When a table becomes a part, its entries
//! stay at the same positions, and their stamps move along. Slices dropped while a snapshot is in
//! progress are retained until it no longer needs them.

use ardea_core::{
    Epoch, Error, Key, Progress, RestoredEntry, Result, SnapshotRequest, SnapshotWriter,
};
use ardea_state::ChangeListener;

use super::delta_blocks::{DeltaBlocks, write_pack_removed};
use super::delta_index::{DeltaIndex, RemovedPacks};
use super::delta_writer::PackCall;
use super::dropped_slices::{DroppedBody, DroppedSlices, KeyReferences};
use super::frozen_slices::{FrozenSlices, Part};
use super::open_slices::{OpenSlices, SliceTable};
use super::partition_watermarks::PartitionWatermarks;
use super::restored_slices::RestoredSlices;
use super::{SliceId, is_pending};
use crate::window::spec::WindowSpec;
use crate::{KeyIndex, KeyedFold};
use ardea_state::{ChangeStamps, SnapshotLog, SnapshotPoint, StampScan, StateCodecs, TrackInserts};

/// The maximum number of entries scanned per call for a snapshot.
const PLACES_PER_CALL: usize = 8 * 1024;

/// The checkpointed state of a fold's slices, if it is checkpointed.
pub(crate) type WindowStateRef<'a, F> =
    Option<&'a mut WindowState<<F as KeyedFold>::Key, <F as KeyedFold>::Acc>>;

/// The checkpointed state of slices.
pub(crate) struct WindowState<K, A> {
    /// The name of the state.
    name: String,
    kept: StateCodecs<K, A>,
    log: SnapshotLog,
    pack_index: DeltaIndex,
    packing: Packing,
    dropped: DroppedSlices<K, A>,
    held: KeyReferences,
    /// The position of the snapshot in progress.
    at: WritesAt,
    restored: RestoredSlices<K, A>,
}

/// The snapshot in progress.
#[derive(Default)]
struct Packing {
    packs: DeltaBlocks,
    /// The scan of the snapshot. `None` if none is in progress.
    sweep: Option<StampScan>,
    /// The number of entries to rewrite.
    renews: usize,
    /// The error that occurred while an entry was set aside.
    failed: Option<Error>,
}

/// The position of a snapshot in progress. Entries only move from a place to a later one in this
/// order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WritesAt {
    /// The snapshot has been taken.
    Begin,
    Open(SliceId),
    /// The table being moved from one place to another.
    Moving,
    Frozen(SliceId),
    Gone(usize),
    /// All entries are packed, and the packs of this number of partitions are written.
    Packs(usize),
    /// The removals of obsolete rows are written, up to this position of the row of a generation.
    Removed(u32, usize),
}

/// The places of entries.
pub(crate) struct SliceIndex<'a, K, A> {
    pub(crate) open: &'a mut OpenSlices<K, A>,
    /// The table that moves from the open to the frozen slices, or is emitted.
    pub(crate) moving: Option<&'a mut SliceTable<K, A>>,
    pub(crate) frozen: &'a mut FrozenSlices<A>,
    pub(crate) index: &'a KeyIndex<K>,
}

impl<K: Key, A> WindowState<K, A> {
    /// Creates the state of slices of `spec`. There must be no slices yet.
    pub(crate) fn new(spec: &WindowSpec, kept: StateCodecs<K, A>) -> Self {
        WindowState {
            name: spec.name_of_slices(),
            kept,
            log: SnapshotLog::default(),
            pack_index: DeltaIndex::default(),
            packing: Packing::default(),
            dropped: DroppedSlices::default(),
            held: KeyReferences::default(),
            at: WritesAt::Begin,
            restored: RestoredSlices::default(),
        }
    }

    /// Returns a listener for an open table that is about to receive records.
    #[inline]
    pub(crate) fn watch<'a>(
        &'a mut self,
        id: SliceId,
        stamps: &'a mut ChangeStamps,
    ) -> SliceWatch<'a, K, A> {
        SliceWatch {
            id,
            stamps,
            log: &self.log,
            kept: &self.kept,
            packing: &mut self.packing,
        }
    }

    /// Works like [`watch`](Self::watch) for a table all of whose entries have changed since the
    /// last snapshot, so that only new keys are tracked.
    #[inline]
    pub(crate) fn watch_fresh<'a>(
        &'a self,
        stamps: &'a mut ChangeStamps,
    ) -> Option<TrackInserts<'a>> {
        let is_fresh = stamps.are_fresh(&self.log);
        is_fresh.then(|| TrackInserts::new(stamps, &self.log))
    }

    /// Updates stamps when entries of a table become those of a part. Late records are no longer
    /// pending. The part holds the keys' slots.
    pub(crate) fn freeze(
        &mut self,
        table: &mut SliceTable<K, A>,
        first: usize,
        (slots, slots_in_use): (&[u32], usize),
    ) {
        self.held.hold(slots, slots_in_use);
        let id = table.id();
        if is_pending(id) {
            let mut watch = self.watch(id, &mut table.stamps);
            for at in first..first + slots.len() {
                watch.changes(at as u32, &table.keys.keys()[at], &table.keys.values()[at]);
            }
        }
    }

    /// Drops a part that only snapshots may need.
    pub(crate) fn drop_part(
        &mut self,
        part: Part<A>,
        frozen: &mut FrozenSlices<A>,
        index: &mut KeyIndex<K>,
    ) {
        if self.is_needed(&part.stamps) || part.slots.len() > PLACES_PER_CALL {
            return self.retain_dropped(DroppedBody::Part(part));
        }
        for slot in &part.slots {
            self.packing.release_key(&mut self.held, index, *slot);
        }
        frozen.recycle(part);
    }

    /// Drops a table that only snapshots may need.
    pub(crate) fn drop_table(&mut self, table: SliceTable<K, A>, open: &mut OpenSlices<K, A>) {
        match self.is_needed(&table.stamps) {
            true => self.retain_dropped(DroppedBody::Table(table)),
            false => open.recycle(table),
        }
    }

    /// Returns true if the snapshot in progress may contain some of these entries, unless all were
    /// added after it.
    fn is_needed(&self, stamps: &ChangeStamps) -> bool {
        let writing = self.log.writing();
        writing.is_some_and(|snapshot| !stamps.are_behind(snapshot))
    }

    fn retain_dropped(&mut self, mut body: DroppedBody<K, A>) {
        if !self.is_needed(body.stamps()) {
            body.drop_accs();
        }
        self.dropped.push(self.log.generation(), body);
    }

    pub(crate) fn take_snapshot(&mut self, snapshot: SnapshotRequest) {
        let generation = self.log.generation();
        self.log.take_snapshot(snapshot);
        self.settle();
        self.pack_index.take_snapshot(snapshot, generation);
        self.packing
            .begin(self.log.writing().map(|snapshot| StampScan {
                snapshot,
                left: 0,
                renews_to: 0,
                renews: 0,
                oldest: u32::MAX,
            }));
        self.at = WritesAt::Begin;
    }

    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        self.log.abort(epoch);
        self.settle();
        self.pack_index.abort(epoch);
    }

    pub(crate) fn commit(&mut self, epoch: Epoch) {
        self.log.commit(epoch);
        self.settle();
    }

    /// Cleans up after the log has processed a commit, or ended the snapshot in progress.
    fn settle(&mut self) {
        if self.log.writing().is_none() {
            self.pack_index.void();
            self.packing.begin(None);
            self.dropped.drop_accs();
        }
        self.pack_index.commit(self.log.base());
    }

    /// Releases dropped slices that the snapshot in progress does not need, some per call.
    pub(crate) fn release(
        &mut self,
        open: &mut OpenSlices<K, A>,
        frozen: &mut FrozenSlices<A>,
        index: &mut KeyIndex<K>,
    ) -> Progress {
        let is_needed = |gone_in| {
            let writing = self.log.writing();
            writing.is_some_and(|snapshot| snapshot.is_before(gone_in))
        };
        let (held, packing) = (&mut self.held, &mut self.packing);
        let let_go = |slot| packing.release_key(held, index, slot);
        let (went, progress) = self.dropped.release(is_needed, (open, frozen), let_go);
        if let WritesAt::Gone(at) = &mut self.at {
            *at = at.saturating_sub(went);
        }
        progress
    }

    /// Writes the next part of the current snapshot.
    pub(crate) fn write_snapshot(
        &mut self,
        places: SliceIndex<'_, K, A>,
        writer: &mut SnapshotWriter<'_>,
    ) -> Result<Progress> {
        let written = self.write_on(places, writer);
        if written.is_err() {
            self.log.end();
        }
        if self.log.writing().is_none() {
            self.settle();
        }
        written
    }

    fn write_on(
        &mut self,
        places: SliceIndex<'_, K, A>,
        writer: &mut SnapshotWriter<'_>,
    ) -> Result<Progress> {
        let Some(snapshot) = self.log.writing() else {
            return Ok(Progress::DONE);
        };
        if let Some(error) = self.packing.failed.take() {
            return Err(error);
        }
        let (packs, at) = (
            &mut self.packing.packs,
            (&*self.name, self.pack_index.sequence(snapshot.generation())),
        );
        while writer.has_room() && packs.write_full(at, writer.chunk())? {}
        if !packs.has_room() {
            return Ok(Progress::MADE);
        }
        if self.at == WritesAt::Begin {
            self.begin(snapshot, &places);
        }
        if !self.pack(places)? {
            return Ok(Progress::MADE);
        }
        if let WritesAt::Packs(next) = &mut self.at {
            let (packs, at) = (
                &mut self.packing.packs,
                (&*self.name, self.pack_index.sequence(snapshot.generation())),
            );
            while writer.has_room() && packs.write_at(*next, at, writer.chunk())? {
                *next += 1;
            }
            if packs.has_at(*next) {
                return Ok(Progress::MADE);
            }
            self.raise(snapshot);
        }
        self.write_removed(writer)
    }

    /// Decides which entries the snapshot rewrites.
    fn begin(&mut self, snapshot: SnapshotPoint, places: &SliceIndex<'_, K, A>) {
        let moving = places.moving.as_ref().map_or(0, |table| table.keys.len());
        let alive = places.open.keys() + moving + places.frozen.entries();
        if let Some(sweep) = &mut self.packing.sweep
            && !snapshot.is_full()
        {
            (sweep.renews_to, sweep.renews) = self.pack_index.renews(alive);
            self.packing.renews = sweep.renews;
        }
        self.at = WritesAt::Open((i64::MIN, 0));
    }

    /// Packs further entries. Returns true if all entries of the snapshot are packed.
    fn pack(&mut self, places: SliceIndex<'_, K, A>) -> Result<bool> {
        let SliceIndex {
            open,
            moving,
            frozen,
            index,
        } = places;
        let Some(sweep) = &mut self.packing.sweep else {
            return Ok(true);
        };
        sweep.left = PLACES_PER_CALL;
        self.packing.packs.grow(index.slots());
        let mut call = PackCall::new(&self.kept, &mut self.packing.packs, sweep);
        if let WritesAt::Open(from) = self.at {
            for table in open.tables_from(from) {
                self.at = WritesAt::Open(table.id());
                if !table.pack(index, &mut call)? {
                    return Ok(false);
                }
            }
            self.at = WritesAt::Moving;
        }
        if self.at == WritesAt::Moving {
            if let Some(table) = moving
                && !table.pack(index, &mut call)?
            {
                return Ok(false);
            }
            self.at = WritesAt::Frozen((i64::MIN, 0));
        }
        if let WritesAt::Frozen(from) = self.at {
            for part in frozen.parts_from(from) {
                self.at = WritesAt::Frozen(part.id());
                if !part.pack(index, &mut call)? {
                    return Ok(false);
                }
            }
            self.at = WritesAt::Gone(0);
        }
        if let WritesAt::Gone(from) = self.at {
            for (at, (gone_in, body)) in self.dropped.from(from) {
                self.at = WritesAt::Gone(at);
                let is_packed = match body {
                    _ if !call.snapshot().is_before(gone_in) => true,
                    DroppedBody::Table(table) => table.pack(index, &mut call)?,
                    DroppedBody::Part(part) => part.pack(index, &mut call)?,
                };
                if !is_packed {
                    return Ok(false);
                }
            }
            self.at = WritesAt::Packs(0);
        }
        Ok(true)
    }

    /// Determines the obsolete rows, after all packs are written.
    fn raise(&mut self, snapshot: SnapshotPoint) {
        if let Some(sweep) = &self.packing.sweep
            && !snapshot.is_full()
        {
            self.pack_index.raise(snapshot.generation(), sweep.oldest);
        }
        self.at = WritesAt::Removed(0, 0);
    }

    /// Writes the removals of packs, and ends the snapshot.
    fn write_removed(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let Some(StampScan {
            snapshot, renews, ..
        }) = self.packing.sweep
        else {
            return Ok(self.log.finish());
        };
        while let WritesAt::Removed(generation, place) = self.at
            && !snapshot.is_full()
            && let Some((next, entry)) = self.pack_index.gone_from((generation, place))
        {
            if !writer.has_room() {
                return Ok(Progress::MADE);
            }
            match entry {
                RemovedPacks::Packs {
                    sequence,
                    partition,
                    count,
                } => {
                    for number in 0..count {
                        let at = (&*self.name, sequence);
                        write_pack_removed(writer.chunk(), at, (partition, number))?;
                    }
                }
                RemovedPacks::Entry(partition, key) => {
                    let chunk = writer.chunk();
                    chunk.write_removed(&self.name, partition, |out| {
                        out.extend_from_slice(key);
                        Ok(())
                    })?;
                }
            }
            self.at = WritesAt::Removed(next.0, next.1);
        }
        if let Some(epoch) = self.pack_index.counts_since() {
            writer.outdate(&self.name, epoch)?;
        }
        let packs = &self.packing.packs;
        let renewed = (self.packing.renews - renews) as u64;
        let changed = packs.entries().saturating_sub(renewed) as usize;
        self.pack_index
            .finish(packs.counts(), packs.entries(), changed);
        Ok(self.log.finish())
    }

    /// Returns true if a state with this name is that of its slices.
    pub(crate) fn is_named(&self, state: &str) -> bool {
        self.name == state
    }

    /// Reads a restored entry.
    ///
    /// # Errors
    /// The entry cannot be read, or is a duplicate.
    pub(crate) fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        self.restored.take((&self.name, &self.kept), entry)
    }

    /// Completes the restore at the restored watermarks.
    pub(crate) fn lay_out(&mut self, spec: &WindowSpec, told: &PartitionWatermarks) {
        self.pack_index = self.restored.lay_out(spec, told);
        self.log = SnapshotLog::after(self.pack_index.len() as u32);
    }

    /// Prepares the state for another instance, which continues with it in a new attempt of the
    /// job.
    pub(crate) fn taken_over(&mut self) {
        self.pack_index.taken_over();
    }

    /// Returns the slices and numbers of the restored tables, and whether they are pending.
    pub(crate) fn restored(&self) -> impl Iterator<Item = (SliceId, bool)> {
        self.restored.tables()
    }

    /// Removes and returns the earliest restored table, and whether it is pending.
    pub(crate) fn take_restored(&mut self) -> Option<(SliceTable<K, A>, bool)> {
        self.restored.take_next()
    }
}

impl Packing {
    fn begin(&mut self, sweep: Option<StampScan>) {
        self.packs.clear();
        (self.sweep, self.renews, self.failed) = (sweep, 0, None);
    }

    /// Counts that a part no longer contains the key at a slot. If no part contains it, the slot is
    /// freed.
    fn release_key<K: Key>(
        &mut self,
        held: &mut KeyReferences,
        index: &mut KeyIndex<K>,
        slot: u32,
    ) {
        if held.release_key(slot) {
            index.remove(slot);
            self.packs.forget(slot);
        }
    }
}

/// A listener for the accumulators of a table.
pub(crate) struct SliceWatch<'a, K, A> {
    id: SliceId,
    stamps: &'a mut ChangeStamps,
    log: &'a SnapshotLog,
    kept: &'a StateCodecs<K, A>,
    packing: &'a mut Packing,
}

impl<K: Key, A> SliceWatch<'_, K, A> {
    /// Handles the first change of an entry since the last snapshot. An entry that the snapshot
    /// still needs is set aside.
    #[cold]
    #[inline(never)]
    fn first_change(&mut self, slot: usize, key: &K, acc: &A) {
        let before = self.stamps.change(slot, self.log);
        if let Some(sweep) = &mut self.packing.sweep
            && sweep.is_overtaken(before)
        {
            let of = (self.id, is_pending(self.id));
            if let Err(error) = self.packing.packs.add(self.kept, of, key, acc) {
                self.packing.failed.get_or_insert(error);
            }
        }
    }
}

impl<K: Key, A> ChangeListener<K, A> for SliceWatch<'_, K, A> {
    #[inline]
    fn changes(&mut self, slot: u32, key: &K, acc: &A) {
        if self.stamps.is_news(slot as usize, self.log) {
            self.first_change(slot as usize, key, acc);
        }
    }

    fn inserted(&mut self, _: u32) {
        self.stamps.push(self.log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_state::testing::EightBytes;
    use std::borrow::Cow;
    use std::sync::Arc;
    use std::time::Duration;

    fn table(kept: &mut WindowState<u64, u64>, slice: i64) -> SliceTable<u64, u64> {
        let mut table = SliceTable::new((slice, 0));
        table.keys.get_or_insert(Cow::Owned(7), || 1);
        kept.watch((slice, 0), &mut table.stamps).inserted(0);
        table
    }

    #[test]
    fn of_what_is_dropped_only_that_stays_which_the_snapshot_may_hold() {
        let spec = WindowSpec::tumbling(Duration::from_secs(1)).unwrap();
        let mut open = OpenSlices::new(spec);
        let mut kept = WindowState::new(
            &spec,
            StateCodecs::new(Arc::new(EightBytes), Arc::new(EightBytes)),
        );
        let before = table(&mut kept, 1);
        kept.take_snapshot(SnapshotRequest::full(Epoch(1)));
        let behind = table(&mut kept, 2);
        kept.drop_table(behind, &mut open);
        assert_eq!(kept.dropped.from(0).count(), 0);
        kept.drop_table(before, &mut open);
        assert_eq!(kept.dropped.from(0).count(), 1);
    }
}
