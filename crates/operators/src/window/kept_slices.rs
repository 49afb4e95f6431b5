//! Slices that survive: what has changed in them goes into cuts, while they open, close and go.
//!
//! A cut holds what tables and parts remember of keys in [packs](super::packs), by partition; which of those still count is known to
//! the [ledger](super::pack_ledger). What is derived from slices (the running aggregate, which keys have a slot) is not written. A table
//! becomes a part with its entries in the same places, so that their stamps go along. What is dropped while a cut is being
//! written stays among what is *gone* until that has what it needs.

use ardea_core::{Cut, CutWriter, Epoch, Error, Key, Progress, RestoredEntry, Result};

use super::frozen_slices::{FrozenSlices, Part};
use super::gone_slices::{Body, GoneSlices, HeldKeys};
use super::open_slices::{OpenSlices, SliceId, SliceTable};
use super::pack_call::PackCall;
use super::pack_ledger::{GoneEntry, PackLedger};
use super::packs::{Packs, write_gone};
use super::restored_slices::RestoredSlices;
use super::slider::Stage;
use super::spec::WindowSpec;
use super::told::Told;
use crate::keyed::{CutAt, CutLog, Fresh, KeptAs, Stamps, Sweep};
use crate::keyed_table::Watch;
use crate::{KeyIndex, KeyedFold};

/// How many entries a call looks at, at the most, for what belongs to a cut.
const PLACES_PER_CALL: usize = 8 * 1024;

/// What keeps the slices of a fold, if they are kept.
pub(crate) type Kept<'a, F> =
    Option<&'a mut KeptSlices<<F as KeyedFold>::Key, <F as KeyedFold>::Acc>>;

/// What cuts need to know of slices.
pub(crate) struct KeptSlices<K, A> {
    /// The name of the state.
    name: String,
    kept: KeptAs<K, A>,
    log: CutLog,
    ledger: PackLedger,
    packing: Packing,
    gone: GoneSlices<K, A>,
    held: HeldKeys,
    /// Where the cut that is being written goes on.
    at: WritesAt,
    restored: RestoredSlices<K, A>,
}

/// The cut that is being written.
#[derive(Default)]
struct Packing {
    packs: Packs,
    /// How it is written; nothing if none is.
    sweep: Option<Sweep>,
    /// How many entries were to be written anew.
    renews: usize,
    /// Why an entry could not be put aside.
    failed: Option<Error>,
}

/// How far a cut is written. Entries only ever move from each of these places to those behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WritesAt {
    /// It has been taken.
    Begin,
    Open(SliceId),
    /// What is on its way from one place to another.
    Moving,
    Frozen(SliceId),
    Gone(usize),
    /// All is packed, and the packs of so many partitions are written.
    Packs(usize),
    /// Which rows are gone is said, up to this place of the row of this generation.
    Removed(u32, usize),
}

/// The places where entries are.
pub(crate) struct Places<'a, K, A> {
    pub(crate) open: &'a mut OpenSlices<K, A>,
    pub(crate) moving: &'a mut Stage<K, A>,
    pub(crate) frozen: &'a mut FrozenSlices<A>,
    pub(crate) index: &'a KeyIndex<K>,
}

impl<K: Key, A> KeptSlices<K, A> {
    /// Keeps slices from now on. There may be none yet.
    pub(crate) fn new(spec: &WindowSpec, kept: KeptAs<K, A>) -> Self {
        KeptSlices {
            name: spec.name_of_slices(),
            kept,
            log: CutLog::default(),
            ledger: PackLedger::default(),
            packing: Packing::default(),
            gone: GoneSlices::default(),
            held: HeldKeys::default(),
            at: WritesAt::Begin,
            restored: RestoredSlices::default(),
        }
    }

    /// Watches the accumulators of an open table that is about to take records.
    #[inline]
    pub(crate) fn watch<'a>(
        &'a mut self,
        id: SliceId,
        stamps: &'a mut Stamps,
    ) -> SliceWatch<'a, K, A> {
        SliceWatch {
            id,
            stamps,
            log: &self.log,
            kept: &self.kept,
            packing: &mut self.packing,
        }
    }

    /// As [`watch`](Self::watch), of a table whose accumulators have all changed since the last cut, so that only new keys have to be watched.
    #[inline]
    pub(crate) fn watch_fresh<'a>(&'a self, stamps: &'a mut Stamps) -> Option<Fresh<'a>> {
        let is_fresh = stamps.are_fresh(&self.log);
        is_fresh.then(|| Fresh::new(stamps, &self.log))
    }

    /// Some entries of a table become those of a part: what late records brought is not pending any more. The keys' slots are held by
    /// it.
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

    /// A part is not needed any more, but for cuts.
    pub(crate) fn drop_part(
        &mut self,
        part: Part<A>,
        frozen: &mut FrozenSlices<A>,
        index: &mut KeyIndex<K>,
    ) {
        if self.is_needed(&part.stamps) || part.slots.len() > PLACES_PER_CALL {
            return self.bury(Body::Part(part));
        }
        for slot in &part.slots {
            self.packing.let_go(&mut self.held, index, *slot);
        }
        frozen.recycle(part);
    }

    /// A table is not needed any more, but for cuts.
    pub(crate) fn drop_table(&mut self, table: SliceTable<K, A>, open: &mut OpenSlices<K, A>) {
        match self.is_needed(&table.stamps) {
            true => self.bury(Body::Table(table)),
            false => open.recycle(table),
        }
    }

    /// Whether the cut that is being written may hold some of these entries: not if all came behind it.
    fn is_needed(&self, stamps: &Stamps) -> bool {
        let writing = self.log.writing();
        writing.is_some_and(|cut| !stamps.are_behind(cut))
    }

    fn bury(&mut self, mut body: Body<K, A>) {
        if !self.is_needed(body.stamps()) {
            body.drop_accs();
        }
        self.gone.push(self.log.generation(), body);
    }

    pub(crate) fn take_cut(&mut self, cut: Cut) {
        let generation = self.log.generation();
        self.log.take_cut(cut);
        self.settle();
        self.ledger.take_cut(cut, generation);
        self.packing.begin(self.log.writing().map(|cut| Sweep {
            cut,
            left: 0,
            renews_to: 0,
            renews: 0,
            oldest: u32::MAX,
        }));
        self.at = WritesAt::Begin;
    }

    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        self.log.give_up(epoch);
        self.settle();
        self.ledger.give_up(epoch);
    }

    pub(crate) fn commit(&mut self, epoch: Epoch) {
        self.log.commit(epoch);
        self.settle();
    }

    /// The log may have heard of a commit, or ended the cut that was being written.
    fn settle(&mut self) {
        if self.log.writing().is_none() {
            self.ledger.void();
            self.packing.begin(None);
            self.gone.drop_accs();
        }
        self.ledger.commit(self.log.base());
    }

    /// Forgets what is gone and the cut that is being written does not need, so much in a call.
    pub(crate) fn release(
        &mut self,
        open: &mut OpenSlices<K, A>,
        frozen: &mut FrozenSlices<A>,
        index: &mut KeyIndex<K>,
    ) -> Progress {
        let is_needed = |gone_in| {
            let writing = self.log.writing();
            writing.is_some_and(|cut| cut.is_before(gone_in))
        };
        let (held, packing) = (&mut self.held, &mut self.packing);
        let let_go = |slot| packing.let_go(held, index, slot);
        let (went, progress) = self.gone.release(is_needed, (open, frozen), let_go);
        if let WritesAt::Gone(at) = &mut self.at {
            *at = at.saturating_sub(went);
        }
        progress
    }

    /// Writes on at the cut that was taken last.
    pub(crate) fn write_cut(
        &mut self,
        places: Places<'_, K, A>,
        writer: &mut CutWriter<'_>,
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
        places: Places<'_, K, A>,
        writer: &mut CutWriter<'_>,
    ) -> Result<Progress> {
        let Some(cut) = self.log.writing() else {
            return Ok(Progress::DONE);
        };
        if let Some(error) = self.packing.failed.take() {
            return Err(error);
        }
        let (packs, at) = (
            &mut self.packing.packs,
            (&*self.name, self.ledger.sequence(cut.generation())),
        );
        while writer.has_room() && packs.write_full(at, writer.chunk())? {}
        if !packs.has_room() {
            return Ok(Progress::MADE);
        }
        if self.at == WritesAt::Begin {
            self.begin(cut, &places);
        }
        if !self.pack(places)? {
            return Ok(Progress::MADE);
        }
        if let WritesAt::Packs(next) = &mut self.at {
            let (packs, at) = (
                &mut self.packing.packs,
                (&*self.name, self.ledger.sequence(cut.generation())),
            );
            while writer.has_room() && packs.write_at(*next, at, writer.chunk())? {
                *next += 1;
            }
            if packs.has_at(*next) {
                return Ok(Progress::MADE);
            }
            self.raise(cut);
        }
        self.write_removed(writer)
    }

    /// Decides what the cut writes anew.
    fn begin(&mut self, cut: CutAt, places: &Places<'_, K, A>) {
        let moving = match &*places.moving {
            Stage::Freezing { table, .. } | Stage::EmittingTable { table, .. } => table.keys.len(),
            _ => 0,
        };
        let alive = places.open.keys() + moving + places.frozen.entries();
        if let Some(sweep) = &mut self.packing.sweep
            && !cut.is_full()
        {
            (sweep.renews_to, sweep.renews) = self.ledger.renews(alive);
            self.packing.renews = sweep.renews;
        }
        self.at = WritesAt::Open((i64::MIN, 0));
    }

    /// Packs on; whether all entries that belong to the cut are packed.
    fn pack(&mut self, places: Places<'_, K, A>) -> Result<bool> {
        let Places {
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
            if let Stage::Freezing { table, .. } | Stage::EmittingTable { table, .. } = moving
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
            for (at, (gone_in, body)) in self.gone.from(from) {
                self.at = WritesAt::Gone(at);
                let is_packed = match body {
                    _ if !call.cut().is_before(gone_in) => true,
                    Body::Table(table) => table.pack(index, &mut call)?,
                    Body::Part(part) => part.pack(index, &mut call)?,
                };
                if !is_packed {
                    return Ok(false);
                }
            }
            self.at = WritesAt::Packs(0);
        }
        Ok(true)
    }

    /// All packs are written: finds out which rows hold nothing any more that counts.
    fn raise(&mut self, cut: CutAt) {
        if let Some(sweep) = &self.packing.sweep
            && !cut.is_full()
        {
            self.ledger.raise(cut.generation(), sweep.oldest);
        }
        self.at = WritesAt::Removed(0, 0);
    }

    /// Says which packs are gone, and comes to an end.
    fn write_removed(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let Some(Sweep { cut, renews, .. }) = self.packing.sweep else {
            return Ok(self.log.finish());
        };
        while let WritesAt::Removed(generation, place) = self.at
            && !cut.is_full()
            && let Some((next, entry)) = self.ledger.gone_from((generation, place))
        {
            if !writer.has_room() {
                return Ok(Progress::MADE);
            }
            match entry {
                GoneEntry::Packs {
                    sequence,
                    partition,
                    count,
                } => {
                    for number in 0..count {
                        let at = (&*self.name, sequence);
                        write_gone(writer.chunk(), at, (partition, number))?;
                    }
                }
                GoneEntry::Entry(partition, key) => {
                    let chunk = writer.chunk();
                    chunk.write_removed(&self.name, partition, |out| {
                        out.extend_from_slice(key);
                        Ok(())
                    })?;
                }
            }
            self.at = WritesAt::Removed(next.0, next.1);
        }
        if let Some(epoch) = self.ledger.counts_since() {
            writer.outdate(&self.name, epoch)?;
        }
        let packs = &self.packing.packs;
        let renewed = (self.packing.renews - renews) as u64;
        let changed = packs.entries().saturating_sub(renewed) as usize;
        self.ledger.finish(packs.counts(), packs.entries(), changed);
        Ok(self.log.finish())
    }

    /// Whether a state of this name is that of its slices.
    pub(crate) fn is_named(&self, state: &str) -> bool {
        self.name == state
    }

    /// Takes back an entry.
    ///
    /// # Errors
    /// If it can't be read, or has come already.
    pub(crate) fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        self.restored.take((&self.name, &self.kept), entry)
    }

    /// Everything of this state has come back, and time had come so far.
    pub(crate) fn lay_out(&mut self, spec: &WindowSpec, told: &Told) {
        self.ledger = self.restored.lay_out(spec, told);
        self.log = CutLog::behind(self.ledger.len() as u32);
    }

    /// Another instance goes on with it, in another life.
    pub(crate) fn taken_over(&mut self) {
        self.ledger.taken_over();
    }

    /// The slices and numbers of the tables that have come back, and whether they are pending.
    pub(crate) fn restored(&self) -> impl Iterator<Item = (SliceId, bool)> {
        self.restored.tables()
    }

    /// The earliest table that has come back and was not taken yet, and whether it is pending.
    pub(crate) fn take_restored(&mut self) -> Option<(SliceTable<K, A>, bool)> {
        self.restored.take_next()
    }
}

impl Packing {
    fn begin(&mut self, sweep: Option<Sweep>) {
        self.packs.clear();
        (self.sweep, self.renews, self.failed) = (sweep, 0, None);
    }

    /// A part does not hold the key at this slot any more: if none does, another key may have the slot.
    fn let_go<K: Key>(&mut self, held: &mut HeldKeys, index: &mut KeyIndex<K>, slot: u32) {
        if held.let_go(slot) {
            index.remove(slot);
            self.packs.forget(slot);
        }
    }
}

/// Watches the accumulators of a table.
pub(crate) struct SliceWatch<'a, K, A> {
    id: SliceId,
    stamps: &'a mut Stamps,
    log: &'a CutLog,
    kept: &'a KeptAs<K, A>,
    packing: &'a mut Packing,
}

impl<K: Key, A> SliceWatch<'_, K, A> {
    /// An entry changes for the first time since the last cut: one that this has not got yet is put aside.
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

impl<K: Key, A> Watch<K, A> for SliceWatch<'_, K, A> {
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

/// Whether the windows that were emitted before do not know yet of what an open table holds.
pub(super) fn is_pending((_, number): SliceId) -> bool {
    number > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::test_codecs::EightBytes;
    use std::borrow::Cow;
    use std::sync::Arc;
    use std::time::Duration;

    fn table(kept: &mut KeptSlices<u64, u64>, slice: i64) -> SliceTable<u64, u64> {
        let mut table = SliceTable::new((slice, 0));
        table.keys.get_or_insert(Cow::Owned(7), || 1);
        kept.watch((slice, 0), &mut table.stamps).inserted(0);
        table
    }

    #[test]
    fn of_what_is_dropped_only_that_stays_which_the_cut_may_hold() {
        let spec = WindowSpec::tumbling(Duration::from_secs(1)).unwrap();
        let mut open = OpenSlices::new(spec);
        let mut kept = KeptSlices::new(
            &spec,
            KeptAs::new(Arc::new(EightBytes), Arc::new(EightBytes)),
        );
        let before = table(&mut kept, 1);
        kept.take_cut(Cut::full(Epoch(1)));
        let behind = table(&mut kept, 2);
        kept.drop_table(behind, &mut open);
        assert_eq!(kept.gone.from(0).count(), 0);
        kept.drop_table(before, &mut open);
        assert_eq!(kept.gone.from(0).count(), 1);
    }
}
