//! Slices that survive: what has changed in them goes into cuts, while they open, close and go.
//!
//! An entry is what one table, or part, of a slice remembers of one key; it lies under the key's bytes, the slice and the table's number.
//! What is derived from slices (the running aggregate, which keys have a slot) is not written. A table becomes a part, and a part is
//! dropped, with its entries in the same places, so that their stamps go along. What is dropped stays for a while among what is
//! *gone*: with its accumulators as long as a cut wants them that was taken before, and with its keys until it is committed that
//! they were removed.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use ardea_core::{Cut, CutWriter, Epoch, Key, Progress, RestoredEntry, Result, StateChunk};

use super::frozen_slices::{FrozenSlices, Part};
use super::open_slices::{OpenSlices, SliceId, SliceTable};
use super::slider::Stage;
use super::spec::WindowSpec;
use crate::keyed::{CutAt, CutLog, KeptAs, Stamps, Touch, cut_short, twice, write_removed};
use crate::keyed_table::Watch;
use crate::{KeyIndex, KeyedFold};

/// How many entries a call looks at, at the most, for what belongs to a cut.
const PLACES_PER_CALL: usize = 8 * 1024;

/// What keeps the slices of a fold, if they are kept.
pub(crate) type Kept<'a, F> =
    Option<&'a mut KeptSlices<<F as KeyedFold>::Key, <F as KeyedFold>::Acc>>;

/// What cuts need to know of slices.
pub(crate) struct KeptSlices<K, A> {
    log: CutLog,
    codec: SliceCodec<K, A>,
    /// The earliest first.
    gone: VecDeque<Gone<K, A>>,
    /// How many parts, those that are gone among them, hold each key.
    held: Vec<u32>,
    /// Where the cut that is being written goes on.
    at: WritesAt,
    /// What has come back, while it does. A table may have the number of a pending one of another instance.
    restored: BTreeMap<(SliceId, bool), SliceTable<K, A>>,
}

/// How entries are written.
struct SliceCodec<K, A> {
    /// The name of the state.
    name: String,
    kept: KeptAs<K, A>,
}

impl<K: Key, A> SliceCodec<K, A> {
    /// Appends the entry of a key in a table or part, and whether it is pending.
    fn write(
        &self,
        chunk: &mut StateChunk,
        (id, is_pending): (SliceId, bool),
        key: &K,
        acc: &A,
    ) -> Result<()> {
        let behind = bytes_of(id);
        self.kept
            .write_as((&self.name, &behind), chunk, key, |out| {
                self.kept.put_state(acc, out)?;
                out.push(is_pending.into());
                Ok(())
            })
    }
}

/// Entries that were removed.
struct Gone<K, A> {
    /// The generation in which.
    gone_in: u32,
    body: Body<K, A>,
}

enum Body<K, A> {
    Table(SliceTable<K, A>),
    Part(Part<A>),
}

/// How far a cut is written. Entries only ever move from each of these places to those behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WritesAt {
    Open(SliceId),
    /// What is on its way from one place to another.
    Moving,
    Frozen(SliceId),
    Gone(usize),
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
            log: CutLog::default(),
            codec: SliceCodec {
                name: spec.name_of_slices(),
                kept,
            },
            gone: VecDeque::new(),
            held: Vec::new(),
            at: WritesAt::Gone(0),
            restored: BTreeMap::new(),
        }
    }

    /// Watches the accumulators of an open table that is about to take records.
    #[inline]
    pub(crate) fn watch<'a>(
        &'a mut self,
        id: SliceId,
        stamps: &'a mut Stamps,
    ) -> impl Watch<K, A> + use<'a, K, A> {
        let codec = &self.codec;
        Touch {
            stamps,
            log: &mut self.log,
            write: move |chunk: &mut StateChunk, key: &K, acc: &A| {
                codec.write(chunk, (id, is_pending(id)), key, acc)
            },
        }
    }

    /// Some entries of a table become those of a part: what late records brought is not pending any more. The keys' slots are held by
    /// it.
    pub(crate) fn freeze(
        &mut self,
        table: &mut SliceTable<K, A>,
        first: usize,
        (slots, slots_in_use): (&[u32], usize),
    ) {
        if self.held.len() < slots_in_use {
            self.held.resize(slots_in_use, 0);
        }
        for slot in slots {
            self.held[*slot as usize] += 1;
        }
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
        if part.stamps.are_known(&self.log, self.log.generation()) {
            return self.bury(Body::Part(part));
        }
        for slot in &part.slots {
            let_go(&mut self.held, index, *slot);
        }
        frozen.recycle(part);
    }

    /// A table is not needed any more, but for cuts.
    pub(crate) fn drop_table(&mut self, table: SliceTable<K, A>, open: &mut OpenSlices<K, A>) {
        match table.stamps.are_known(&self.log, self.log.generation()) {
            true => self.bury(Body::Table(table)),
            false => open.recycle(table),
        }
    }

    fn bury(&mut self, mut body: Body<K, A>) {
        if self.log.writing().is_none() {
            body.drop_accs();
        }
        self.gone.push_back(Gone {
            gone_in: self.log.generation(),
            body,
        });
    }

    pub(crate) fn take_cut(&mut self, cut: Cut) {
        self.log.take_cut(cut);
        self.at = WritesAt::Open((i64::MIN, 0));
    }

    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        self.log.give_up(epoch);
    }

    pub(crate) fn commit(&mut self, epoch: Epoch) {
        self.log.commit(epoch);
    }

    /// Forgets what is gone and in no cut that counts, or may yet; so much in a call. Not while one is being written.
    pub(crate) fn release(
        &mut self,
        open: &mut OpenSlices<K, A>,
        frozen: &mut FrozenSlices<A>,
        index: &mut KeyIndex<K>,
    ) -> Progress {
        if self.log.writing().is_some() {
            return Progress::DONE;
        }
        let (mut left, mut at) = (PLACES_PER_CALL, 0);
        while let Some(Gone { gone_in, body }) = self.gone.get_mut(at) {
            // One without stamps is half released.
            let stamps = body.stamps();
            if !stamps.is_empty() && stamps.are_known(&self.log, *gone_in) {
                at += 1;
                continue;
            }
            if let Body::Part(part) = body {
                part.stamps.clear();
                let keep = part.slots.len().saturating_sub(left);
                left -= part.slots.len() - keep;
                for slot in part.slots.drain(keep..) {
                    let_go(&mut self.held, index, slot);
                }
                if keep > 0 {
                    return Progress::MADE;
                }
            }
            match self.gone.remove(at).map(|gone| gone.body) {
                Some(Body::Part(part)) => frozen.recycle(part),
                Some(Body::Table(table)) => open.recycle(table),
                None => {}
            }
        }
        Progress::DONE
    }

    /// Writes on at the cut that was taken last.
    pub(crate) fn write_cut(
        &mut self,
        places: Places<'_, K, A>,
        writer: &mut CutWriter<'_>,
    ) -> Result<Progress> {
        let written = self.write_places(places, writer);
        if written.is_err() {
            self.log.end();
        }
        if self.log.writing().is_none() {
            self.gone.iter_mut().for_each(|gone| gone.body.drop_accs());
        }
        written
    }

    fn write_places(
        &mut self,
        places: Places<'_, K, A>,
        writer: &mut CutWriter<'_>,
    ) -> Result<Progress> {
        let Some(cut) = self.log.write_aside(writer)? else {
            return Ok(Progress::DONE);
        };
        let Places {
            open,
            moving,
            frozen,
            index,
        } = places;
        let codec = &self.codec;
        let mut call = Call {
            cut,
            left: PLACES_PER_CALL,
            writer,
        };
        if let WritesAt::Open(from) = self.at {
            for table in open.tables_from(from) {
                self.at = WritesAt::Open(table.id());
                if !table.write(codec, &mut call)? {
                    return Ok(Progress::MADE);
                }
            }
            self.at = WritesAt::Moving;
        }
        if self.at == WritesAt::Moving {
            if let Stage::Freezing { table, .. } | Stage::EmittingTable { table, .. } = moving
                && !table.write(codec, &mut call)?
            {
                return Ok(Progress::MADE);
            }
            self.at = WritesAt::Frozen((i64::MIN, 0));
        }
        if let WritesAt::Frozen(from) = self.at {
            for part in frozen.parts_from(from) {
                self.at = WritesAt::Frozen(part.id());
                if !part.write(codec, index, &mut call)? {
                    return Ok(Progress::MADE);
                }
            }
            self.at = WritesAt::Gone(0);
        }
        if let WritesAt::Gone(from) = self.at {
            for (at, gone) in self.gone.iter_mut().enumerate().skip(from) {
                self.at = WritesAt::Gone(at);
                let is_written = match cut.is_before(gone.gone_in) {
                    true => gone.body.write(codec, index, &mut call)?,
                    false if !cut.names_removed() => true,
                    false => gone.body.write_removed(codec, index, &mut call)?,
                };
                if !is_written {
                    return Ok(Progress::MADE);
                }
            }
            self.at = WritesAt::Gone(self.gone.len());
        }
        Ok(self.log.finish())
    }

    /// Whether a state of this name is that of its slices.
    pub(crate) fn is_named(&self, state: &str) -> bool {
        self.codec.name == state
    }

    /// Takes back an entry.
    ///
    /// # Errors
    /// If it can't be read, or has come already.
    pub(crate) fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        let kept = &self.codec.kept;
        let (key, mut rest) = kept.read_as(&self.codec.name, entry)?;
        let acc = kept.take_state(&mut rest)?;
        let [is_pending] = rest.array()?;
        let id = id_of(*entry.key.last_chunk().ok_or_else(cut_short)?);
        let table = self.restored.entry((id, is_pending != 0));
        let table = table.or_insert_with(|| SliceTable::new(id));
        let place = table.keys.len() as u32;
        match table.keys.get_or_insert(Cow::Owned(key), || acc).0 == place {
            true => Ok(()),
            false => Err(twice()),
        }
    }

    /// The slices and numbers of the tables that have come back, and whether they are pending.
    pub(crate) fn restored(&self) -> impl Iterator<Item = (SliceId, bool)> {
        self.restored.keys().copied()
    }

    /// The earliest table that has come back and was not taken yet, and whether it is pending.
    pub(crate) fn take_restored(&mut self) -> Option<(SliceTable<K, A>, bool)> {
        let ((_, is_pending), mut table) = self.restored.pop_first()?;
        table.stamps = Stamps::restored(table.keys.len());
        Some((table, is_pending))
    }
}

impl<K: Key, A> Body<K, A> {
    fn stamps(&self) -> &Stamps {
        match self {
            Body::Table(table) => &table.stamps,
            Body::Part(part) => &part.stamps,
        }
    }

    fn drop_accs(&mut self) {
        match self {
            Body::Table(table) => drop(table.keys.drain_values()),
            Body::Part(part) => part.accs.clear(),
        }
    }

    fn write(
        &mut self,
        codec: &SliceCodec<K, A>,
        index: &KeyIndex<K>,
        call: &mut Call<'_, '_>,
    ) -> Result<bool> {
        match self {
            Body::Table(table) => table.write(codec, call),
            Body::Part(part) => part.write(codec, index, call),
        }
    }

    fn write_removed(
        &mut self,
        codec: &SliceCodec<K, A>,
        index: &KeyIndex<K>,
        call: &mut Call<'_, '_>,
    ) -> Result<bool> {
        match self {
            Body::Table(table) => {
                let (id, keys) = (bytes_of(table.id()), table.keys.keys());
                call.write_all(&mut table.stamps, |chunk, at| {
                    write_removed((&codec.name, &id), chunk, &keys[at])
                })
            }
            Body::Part(part) => {
                let (id, slots) = (bytes_of(part.id()), &part.slots);
                call.write_all(&mut part.stamps, |chunk, at| {
                    write_removed((&codec.name, &id), chunk, index.key(slots[at]))
                })
            }
        }
    }
}

impl<K: Key, A> SliceTable<K, A> {
    fn write(&mut self, codec: &SliceCodec<K, A>, call: &mut Call<'_, '_>) -> Result<bool> {
        let what = (self.id(), is_pending(self.id()));
        let (keys, accs) = (self.keys.keys(), self.keys.values());
        call.write(&mut self.stamps, |chunk, at| {
            codec.write(chunk, what, &keys[at], &accs[at])
        })
    }
}

impl<A> Part<A> {
    fn write<K: Key>(
        &mut self,
        codec: &SliceCodec<K, A>,
        index: &KeyIndex<K>,
        call: &mut Call<'_, '_>,
    ) -> Result<bool> {
        let what = (self.id(), false);
        let (slots, accs) = (&self.slots, &self.accs);
        call.write(&mut self.stamps, |chunk, at| {
            codec.write(chunk, what, index.key(slots[at]), &accs[at])
        })
    }
}

/// A call of `write_cut`.
struct Call<'a, 'w> {
    cut: CutAt,
    left: usize,
    writer: &'a mut CutWriter<'w>,
}

impl Call<'_, '_> {
    fn write(
        &mut self,
        stamps: &mut Stamps,
        write: impl FnMut(&mut StateChunk, usize) -> Result<()>,
    ) -> Result<bool> {
        stamps.write(self.cut, &mut self.left, self.writer, write)
    }

    fn write_all(
        &mut self,
        stamps: &mut Stamps,
        write: impl FnMut(&mut StateChunk, usize) -> Result<()>,
    ) -> Result<bool> {
        stamps.write_all(self.cut, &mut self.left, self.writer, write)
    }
}

/// Whether the windows that were emitted before do not know yet of what an open table holds.
fn is_pending((_, number): SliceId) -> bool {
    number > 0
}

fn bytes_of((slice, number): SliceId) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&slice.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn id_of([s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3]: [u8; 12]) -> SliceId {
    let slice = i64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    (slice, u32::from_le_bytes([n0, n1, n2, n3]))
}

/// A part does not hold a key any more.
fn let_go<K: Key>(held: &mut [u32], index: &mut KeyIndex<K>, slot: u32) {
    let held = &mut held[slot as usize];
    *held -= 1;
    if *held == 0 {
        index.remove(slot);
    }
}
