//! The machine that closes slices and slides the window over them.
//!
//! When the watermark closes a slice, its keys and accumulators are *frozen* into two compact columns and *enter* the
//! running aggregate of the window, which is then emitted; last, the window's first slice *leaves*. What a slide costs
//! depends on the keys of those two slices and on the keys in the window, not on how many slices a window has, and
//! nothing here is done once a record.
//!
//! **Invariant.** Between two windows the running aggregate holds the frozen slices that the next window (`frontier`)
//! has in common with the one before. Slices at or after the frontier are open. A record for a slice before it, which
//! is not late for all its windows, opens the slice again; what comes of that is frozen as another part of the slice
//! at the next watermark, before anything else.

use std::borrow::Cow;
use std::collections::VecDeque;

use ardea_core::{Ordinal, Outbox, Result, Timestamp, Watermark};

use super::early::Triggers;
use super::frozen_slices::{FrozenSlices, Part};
use super::open_slices::{OpenSlices, SliceTable};
use super::revisions::{Revisions, sweep};
use super::running::Running;
use super::spec::{ALL_SLICES, Slice, WindowSpec};
use super::{Firing, WindowResult, result_time};
use crate::{KeyIndex, KeyedFold};

/// How many entries of slices one call may move before it lets others have their turn: about 50 µs.
const ENTRIES_PER_CALL: usize = 16 * 1024;

/// How many windows one call goes on by at most, so that those behind can be told how far time has come.
pub(crate) const WINDOWS_PER_CALL: Slice = 64;

/// What a fold's windows emit.
pub(crate) type ResultOf<F> = WindowResult<<F as KeyedFold>::Key, <F as KeyedFold>::Out>;

/// The open slices of a fold.
pub(crate) type OpenOf<F> = OpenSlices<<F as KeyedFold>::Key, <F as KeyedFold>::Acc>;

/// The closed slices and the window under way.
pub(crate) struct Slider<F: KeyedFold> {
    spec: WindowSpec,
    /// The keys that have a closed slice here; all columns are by its slots.
    index: KeyIndex<F::Key>,
    running: Running<F::Acc>,
    frozen: FrozenSlices<F::Acc>,
    /// How many frozen parts hold each key; only where lateness is allowed, as parts then outlive their window.
    held: Vec<u32>,
    /// The first window that has not been emitted.
    frontier: Slice,
    /// The first window that may still be corrected.
    kept_from: Slice,
    stage: Stage<F::Key, F::Acc>,
    revisions: Revisions,
    pub(crate) triggers: Triggers<F::Key, F::State>,
}

/// What the machine is in the middle of.
enum Stage<K, A> {
    /// Between two windows, deciding what comes next.
    Next,
    /// Moving the table of a closed slice into `part`, from `next` on.
    Freezing {
        table: SliceTable<K, A>,
        part: Part<A>,
        next: usize,
    },
    /// Emitting the window at the frontier, from `next_slot` on.
    Emitting { next_slot: usize },
    /// Emitting a window of one slice straight from its table, from `next_slot` on.
    EmittingTable {
        table: SliceTable<K, A>,
        next_slot: usize,
    },
    /// Letting the first slice of the emitted window leave: the frozen parts from `part` to before `after`, the former
    /// from `next` on.
    Leaving {
        part: usize,
        after: usize,
        next: usize,
    },
}

/// How far a call of [`Slider::advance`] came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    /// All that the watermark closed has been emitted.
    Done,
    /// The output is full.
    Full,
    /// There is more to do, but results are pending or others shall have their turn.
    Paused,
}

impl<F: KeyedFold> Slider<F> {
    pub(crate) fn new(spec: WindowSpec) -> Self {
        Slider {
            spec,
            index: KeyIndex::default(),
            running: Running::new::<F>(spec.slices_per_window()),
            frozen: FrozenSlices::new(),
            held: Vec::new(),
            frontier: Slice::MIN,
            kept_from: Slice::MIN,
            stage: Stage::Next,
            revisions: Revisions::default(),
            triggers: Triggers::default(),
        }
    }

    /// The first window that has not been emitted whole.
    pub(crate) fn frontier(&self) -> Slice {
        self.frontier
    }

    /// Emits what `watermark` closes, as far as there is room. Corrections of windows emitted before go to `pending`,
    /// which is to be emptied before the next call.
    pub(crate) fn advance(
        &mut self,
        fold: &F,
        open: &mut OpenOf<F>,
        watermark: Watermark,
        outbox: &mut Outbox,
        pending: &mut VecDeque<ResultOf<F>>,
    ) -> Result<Advance> {
        let target = self.spec.first_open(watermark);
        let (mut left, begun) = (ENTRIES_PER_CALL, self.frontier);
        while left > 0 && self.frontier.saturating_sub(begun) < WINDOWS_PER_CALL {
            match std::mem::replace(&mut self.stage, Stage::Next) {
                Stage::Next => {
                    if let Some((slice, table)) = open.pop_before(self.frontier) {
                        self.stage = self.start_freezing(slice, table);
                    } else if !self.revisions.is_empty() {
                        self.revise(fold, pending);
                        return Ok(Advance::Paused);
                    } else if self.skip_to_work(open, target) {
                        self.stage = self.close_slice(open);
                    } else if self.expire(open, watermark, &mut left) {
                        return Ok(Advance::Done);
                    }
                }
                Stage::Freezing { table, part, next } => {
                    self.stage = self.freeze(fold, open, table, part, next, &mut left);
                }
                Stage::Emitting { next_slot } => {
                    let next_slot = self.emit(fold, next_slot, outbox)?;
                    if next_slot < self.running.slots() {
                        self.stage = Stage::Emitting { next_slot };
                        return Ok(Advance::Full);
                    }
                    let first = self.spec.first_slice_of(self.frontier);
                    let parts = self.frozen.range(first..first + 1);
                    self.stage = Stage::Leaving {
                        part: parts.start,
                        after: parts.end,
                        next: 0,
                    };
                }
                Stage::EmittingTable { table, next_slot } => {
                    let next_slot = self.emit_table(fold, &table, next_slot, outbox)?;
                    if next_slot < table.len() {
                        self.stage = Stage::EmittingTable { table, next_slot };
                        return Ok(Advance::Full);
                    }
                    open.recycle(table);
                    self.frontier += 1;
                }
                Stage::Leaving { part, after, next } => {
                    self.stage = self.leave(fold, open, part, after, next, &mut left);
                }
            }
        }
        Ok(Advance::Paused)
    }

    /// Moves the frontier over windows without records, however many. Whether there is one to emit before `target`.
    fn skip_to_work(&mut self, open: &OpenOf<F>, target: Slice) -> bool {
        if self.running.live_keys() == 0 {
            let next = open.first_slice().map_or(target, |slice| slice.min(target));
            self.frontier = self.frontier.max(next);
        }
        self.frontier < target
    }

    /// Starts on the window at the frontier with its last slice, which is closed now.
    fn close_slice(&mut self, open: &mut OpenOf<F>) -> Stage<F::Key, F::Acc> {
        let nothing_stays = self.spec.is_tumbling() && !self.spec.allows_lateness() && !F::EARLY;
        match open.pop_before(self.frontier + 1) {
            Some((_, table)) if nothing_stays => Stage::EmittingTable {
                table,
                next_slot: 0,
            },
            Some((slice, table)) => self.start_freezing(slice, table),
            None => Stage::Emitting { next_slot: 0 },
        }
    }

    /// Accumulators are kept where they will be deducted, or asked for by key.
    fn keeps_accs(&self) -> bool {
        F::DEDUCTS || F::EARLY || self.spec.allows_lateness()
    }

    fn start_freezing(
        &mut self,
        slice: Slice,
        table: SliceTable<F::Key, F::Acc>,
    ) -> Stage<F::Key, F::Acc> {
        let part = self.frozen.columns(slice, table.len(), self.keeps_accs());
        Stage::Freezing {
            table,
            part,
            next: 0,
        }
    }

    /// Gives slots to the keys of a closed slice, and lets it enter the window.
    fn freeze(
        &mut self,
        fold: &F,
        open: &mut OpenOf<F>,
        mut table: SliceTable<F::Key, F::Acc>,
        mut part: Part<F::Acc>,
        next: usize,
        left: &mut usize,
    ) -> Stage<F::Key, F::Acc> {
        let after = table.len().min(next + *left);
        *left -= after - next;
        for key in &table.keys()[next..after] {
            part.slots
                .push(self.index.find_or_insert(Cow::Borrowed(key)).0);
        }
        let slots = &part.slots[next..after];
        self.running.grow(fold, self.index.slots());
        if part.slice >= self.spec.first_slice_of(self.frontier) {
            self.running
                .enter(fold, part.slice, slots, &table.values()[next..after]);
        }
        if self.spec.allows_lateness() {
            self.held.resize(self.index.slots(), 0);
            for slot in slots {
                self.held[*slot as usize] += 1;
            }
            if part.slice < self.frontier {
                self.revisions.changed(part.slice, slots);
            }
        }
        if after < table.len() {
            return Stage::Freezing {
                table,
                part,
                next: after,
            };
        }
        if self.keeps_accs() {
            part.accs.extend(table.drain_values());
        }
        let was_closed = part.slice < self.frontier;
        self.frozen.push(part);
        open.recycle(table);
        if was_closed {
            Stage::Next
        } else {
            Stage::Emitting { next_slot: 0 }
        }
    }

    /// Emits results of the window at the frontier; returns the slot to go on from.
    fn emit(&self, fold: &F, first: usize, outbox: &mut Outbox) -> Result<usize> {
        let mut lane = outbox.lane::<ResultOf<F>>(Ordinal::FIRST)?;
        let room = lane.room();
        let header = WindowHeader::new(&self.spec, self.frontier, Firing::OnTime);
        let keys = self.index.keys();
        let mut next = first;
        lane.rows().extend_columns(|values, times| {
            next = self.running.results(fold, first, room, |slot, result| {
                values.push(header.result(keys[slot].clone(), result));
            });
            times.resize(values.len(), result_time(header.end));
        });
        Ok(next)
    }

    /// Emits results of a window that is a single slice; returns the slot to go on from.
    fn emit_table(
        &self,
        fold: &F,
        table: &SliceTable<F::Key, F::Acc>,
        first: usize,
        outbox: &mut Outbox,
    ) -> Result<usize> {
        let mut lane = outbox.lane::<ResultOf<F>>(Ordinal::FIRST)?;
        let next = table.len().min(first + lane.room());
        let header = WindowHeader::new(&self.spec, self.frontier, Firing::OnTime);
        let entries = table.keys()[first..next]
            .iter()
            .zip(&table.values()[first..next]);
        lane.rows().extend_columns(|values, times| {
            values.extend(entries.map(|(key, acc)| header.result(key.clone(), fold.finish(acc))));
            times.resize(values.len(), result_time(header.end));
        });
        Ok(next)
    }

    /// Lets a part, or some of it, leave the window; after the last one the window has moved on.
    fn leave(
        &mut self,
        fold: &F,
        open: &OpenOf<F>,
        position: usize,
        after: usize,
        next: usize,
        left: &mut usize,
    ) -> Stage<F::Key, F::Acc> {
        let kept = self.spec.allows_lateness();
        if position == after {
            let first = self.spec.first_slice_of(self.frontier);
            while !kept && let Some(part) = self.frozen.pop_before(first + 1) {
                self.frozen.recycle(part);
            }
            self.frontier += 1;
            return Stage::Next;
        }
        let part = self.frozen.part(position);
        let end = part.slots.len().min(next + *left);
        *left -= end - next;
        let accs = part.accs.get(next..end).unwrap_or_default();
        let (index, triggers) = (&mut self.index, &mut self.triggers);
        self.running
            .leave(fold, part.slice, &part.slots[next..end], accs, |slot| {
                if !kept {
                    forget::<F>(index, triggers, open, slot);
                }
            });
        match end < part.slots.len() {
            true => Stage::Leaving {
                part: position,
                after,
                next: end,
            },
            false => Stage::Leaving {
                part: position + 1,
                after,
                next: 0,
            },
        }
    }

    /// Drops slices that nothing can ask for any more; whether it came to the end.
    fn expire(&mut self, open: &OpenOf<F>, watermark: Watermark, left: &mut usize) -> bool {
        self.kept_from = self.kept_from.max(self.spec.first_kept(watermark));
        let limit = match self.kept_from {
            ALL_SLICES => ALL_SLICES,
            window => self.spec.first_slice_of(window),
        };
        while self.spec.allows_lateness() && *left > 0 {
            let Some(part) = self.frozen.pop_before(limit) else {
                return true;
            };
            *left = left.saturating_sub(part.slots.len());
            for slot in &part.slots {
                let held = &mut self.held[*slot as usize];
                *held -= 1;
                if *held == 0 {
                    forget::<F>(&mut self.index, &mut self.triggers, open, *slot);
                }
            }
            self.frozen.recycle(part);
        }
        *left > 0
    }

    /// Computes anew what late records have changed in windows that were emitted before.
    fn revise(&mut self, fold: &F, pending: &mut VecDeque<ResultOf<F>>) {
        let emitted_before = self.frontier;
        let ranges = self
            .revisions
            .take(&self.spec, self.kept_from, emitted_before);
        let mut results = Vec::new();
        for (slot, windows) in ranges {
            let slices = self.spec.first_slice_of(*windows.start())..*windows.end() + 1;
            let accs = self
                .frozen
                .of_key(slot, slices)
                .map(|(slice, acc)| (slice, acc.clone()));
            sweep(
                fold,
                &self.spec,
                accs.collect(),
                windows,
                |window, result| {
                    results.push((window, slot, result));
                },
            );
        }
        results.sort_by_key(|(window, slot, _)| (*window, *slot));
        pending.extend(results.into_iter().map(|(window, slot, result)| {
            WindowHeader::new(&self.spec, window, Firing::Update)
                .result(self.index.key(slot).clone(), result)
        }));
    }

    /// Adds to `pending` what the windows that are not closed hold of `key`.
    pub(crate) fn early_results(
        &mut self,
        fold: &F,
        open: &OpenOf<F>,
        key: &F::Key,
        pending: &mut VecDeque<ResultOf<F>>,
    ) {
        let windows = self.frontier..=ALL_SLICES - 1;
        let mut accs = Vec::new();
        if let Some(slot) = self.index.find(key) {
            let slices = self.spec.first_slice_of(self.frontier)..ALL_SLICES;
            accs.extend(
                self.frozen
                    .of_key(slot, slices)
                    .map(|(at, acc)| (at, acc.clone())),
            );
        }
        accs.extend(
            open.iter()
                .filter_map(|(at, table)| Some((at, table.get(key)?.clone()))),
        );
        sweep(fold, &self.spec, accs, windows, |window, result| {
            let header = WindowHeader::new(&self.spec, window, Firing::Early);
            pending.push_back(header.result(key.clone(), result));
        });
    }
}

/// The key at `slot` has no closed slice any more.
fn forget<F: KeyedFold>(
    index: &mut KeyIndex<F::Key>,
    triggers: &mut Triggers<F::Key, F::State>,
    open: &OpenOf<F>,
    slot: u32,
) {
    if F::EARLY {
        let key = index.key(slot);
        if !open.iter().any(|(_, table)| table.get(key).is_some()) {
            triggers.forget(key);
        }
    }
    index.remove(slot);
}

/// What all results of a window have in common.
struct WindowHeader {
    start: Timestamp,
    end: Timestamp,
    firing: Firing,
}

impl WindowHeader {
    fn new(spec: &WindowSpec, window: Slice, firing: Firing) -> Self {
        let start = spec.start_of(spec.first_slice_of(window));
        WindowHeader {
            start,
            end: spec.end_of(window),
            firing,
        }
    }

    #[inline]
    fn result<K, R>(&self, key: K, value: R) -> WindowResult<K, R> {
        WindowResult {
            start: self.start,
            end: self.end,
            key,
            value,
            firing: self.firing,
        }
    }
}
