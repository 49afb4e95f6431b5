//! The state machine that closes slices and slides the window over them.
//!
//! When the watermark closes a slice, its keys and accumulators are *frozen* into two compact
//! columns and *enter* the running aggregate of the window, which is then emitted. Last, the
//! window's first slice *leaves*. The cost of a slide depends on the keys of those two slices and
//! of the window, not on the number of slices in a window. No work is done per record.
//!
//! **Invariant.** Between two windows, the running aggregate contains the frozen slices that the
//! next window (`frontier`) shares with the previous one. Slices at or after the frontier are open.
//! A record for an earlier slice that is not late for all its windows reopens the slice. The
//! reopened table is frozen as another part of the slice at the next watermark, before anything
//! else.
//!
//! If state is checkpointed, dropped slices are passed to [`WindowState`], and keys retain their
//! slots until that state releases them. After a restore, closed slices are frozen again and enter
//! the window, see `restore_slices`.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::RangeInclusive;

use ardea_core::{Key, Ordinal, Outbox, Result, Timestamp, Watermark};
use ardea_state::KeyedState;

use super::revisions::{Revisions, sweep};
use super::running::Running;
use crate::key_order::KeyOrder;
use crate::window::result::{Firing, ResultOf, WindowResult, result_time};
use crate::window::spec::{ALL_SLICES, Slice, WindowSpec};
use crate::window::state::frozen_slices::{FrozenSlices, Part};
use crate::window::state::open_slices::{OpenSlices, SliceTable};
use crate::window::state::partition_lag::PartitionLag;
use crate::window::state::window_state::{WindowState, WindowStateRef};
use crate::{KeyIndex, KeyTable, KeyedFold};

mod restore_slices;

/// The maximum number of slice entries moved per call, about 50 µs.
const ENTRIES_PER_CALL: usize = 16 * 1024;

/// The maximum number of windows per call, so that intermediate watermarks can be sent.
pub(crate) const WINDOWS_PER_CALL: Slice = 64;

/// The open slices of a fold.
pub(crate) type OpenOf<F> = OpenSlices<<F as KeyedFold>::Key, <F as KeyedFold>::Acc>;

/// The checkpointed state of a fold's slices.
pub(crate) type WindowStateOf<F> = WindowState<<F as KeyedFold>::Key, <F as KeyedFold>::Acc>;

/// The closed slices and the current window.
pub(crate) struct SlidingAggregator<F: KeyedFold> {
    spec: WindowSpec,
    /// The keys with a closed slice. All columns are indexed by its slots.
    index: KeyIndex<F::Key>,
    running: Running<F::Acc>,
    frozen: FrozenSlices<F::Acc>,
    /// The number of frozen parts that contain each key. Only used if lateness is allowed, as parts
    /// then outlive their window.
    held: Vec<u32>,
    /// The first window that has not been emitted.
    frontier: Slice,
    /// The first window that may still be corrected.
    kept_from: Slice,
    stage: AggregatorPhase<F::Key, F::Acc>,
    revisions: Revisions,
    /// Partitions that are behind the frontier.
    lag: Option<Box<PartitionLag<F::Out>>>,
    /// True if accumulators are retained whether or not the aggregate deducts, because state is
    /// checkpointed.
    survives: bool,
    /// The order of the results of a window, if it must follow from the input alone. Positions in
    /// it take the place of slots in the phases that emit results.
    order: Option<KeyOrder>,
    /// The trigger state of each key with a record in an open window.
    pub(crate) triggers: KeyedState<F::Key, F::State>,
}

/// The current phase of the state machine.
pub(crate) enum AggregatorPhase<K, A> {
    /// Between two windows: decide the next phase.
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
    /// Removing the first slice of the emitted window: the frozen parts from `part` to before
    /// `after`, the first of them from `next` on.
    Leaving {
        part: usize,
        after: usize,
        next: usize,
    },
}

/// A table being moved into a part, and the position.
type Freezing<K, A> = (SliceTable<K, A>, Part<A>, usize);

/// The outcome of [`SlidingAggregator::advance`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    /// All that the watermark closed has been emitted.
    Done,
    /// The output is full.
    Full,
    /// There is more to do, but results are pending or the call has reached its limit.
    Paused,
}

impl<F: KeyedFold> SlidingAggregator<F> {
    pub(crate) fn new(spec: WindowSpec) -> Self {
        SlidingAggregator {
            spec,
            index: KeyIndex::default(),
            running: Running::new::<F>(spec.slices_per_window()),
            frozen: FrozenSlices::new(),
            held: Vec::new(),
            frontier: Slice::MIN,
            kept_from: Slice::MIN,
            stage: AggregatorPhase::Next,
            revisions: Revisions::default(),
            lag: None,
            survives: false,
            order: None,
            triggers: KeyedState::default(),
        }
    }

    /// Returns the first window that has not been emitted completely.
    pub(crate) fn frontier(&self) -> Slice {
        self.frontier
    }

    /// Emits the windows that `watermark` closes while there is room. Corrections of earlier
    /// windows are added to `pending`, which must be empty before the next call.
    pub(crate) fn advance(
        &mut self,
        fold: &F,
        open: &mut OpenOf<F>,
        (watermark, mut kept): (Watermark, WindowStateRef<'_, F>),
        outbox: &mut Outbox,
        pending: &mut VecDeque<ResultOf<F>>,
    ) -> Result<Advance> {
        let target = self.spec.first_open(watermark);
        let (mut left, begun) = (ENTRIES_PER_CALL, self.frontier);
        while left > 0 && self.frontier.saturating_sub(begun) < WINDOWS_PER_CALL {
            match std::mem::replace(&mut self.stage, AggregatorPhase::Next) {
                AggregatorPhase::Next => {
                    if let Some(table) = open.pop_before(self.frontier) {
                        self.stage = self.start_freezing(table);
                    } else if !self.revisions.is_empty() {
                        self.revise(fold, pending);
                        return Ok(Advance::Paused);
                    } else if self.owes_before(target) {
                        self.catch_up(fold, open, target, (pending, kept));
                        return Ok(Advance::Paused);
                    } else if self.skip_to_work(open, target) {
                        self.stage = self.close_slice(open);
                    } else if self.expire(open, watermark, &mut left, kept.as_deref_mut()) {
                        return Ok(Advance::Done);
                    }
                }
                AggregatorPhase::Freezing { table, part, next } => {
                    let at = (table, part, next);
                    self.stage = self.freeze(fold, open, at, &mut left, kept.as_deref_mut());
                }
                AggregatorPhase::Emitting { next_slot } => {
                    let (next_slot, end) = self.emit(fold, next_slot, outbox)?;
                    if next_slot < end {
                        self.stage = AggregatorPhase::Emitting { next_slot };
                        return Ok(Advance::Full);
                    }
                    let first = self.spec.first_slice_of(self.frontier);
                    let parts = self.frozen.range(first..first + 1);
                    self.stage = AggregatorPhase::Leaving {
                        part: parts.start,
                        after: parts.end,
                        next: 0,
                    };
                }
                AggregatorPhase::EmittingTable { table, next_slot } => {
                    let next_slot = self.emit_table(fold, &table.keys, next_slot, outbox)?;
                    if next_slot < table.keys.len() {
                        self.stage = AggregatorPhase::EmittingTable { table, next_slot };
                        return Ok(Advance::Full);
                    }
                    match &mut kept {
                        Some(kept) => kept.drop_table(table, open),
                        None => open.recycle(table),
                    }
                    self.frontier += 1;
                }
                AggregatorPhase::Leaving { part, after, next } => {
                    let at = (part, after, next);
                    self.stage = self.leave(fold, open, at, &mut left, kept.as_deref_mut());
                }
            }
        }
        Ok(Advance::Paused)
    }

    /// Moves the frontier over windows without records. Returns true if a window before `target`
    /// has records to emit.
    fn skip_to_work(&mut self, open: &OpenOf<F>, target: Slice) -> bool {
        if self.running.live_keys() == 0 {
            let next = open.first_slice().map_or(target, |slice| slice.min(target));
            self.frontier = self.frontier.max(next);
        }
        self.frontier < target
    }

    /// Starts the window at the frontier by closing its last slice.
    fn close_slice(&mut self, open: &mut OpenOf<F>) -> AggregatorPhase<F::Key, F::Acc> {
        let nothing_stays = self.spec.is_tumbling() && !self.spec.allows_lateness() && !F::EARLY;
        match open.pop_before(self.frontier + 1) {
            Some(table) if nothing_stays => AggregatorPhase::EmittingTable {
                table,
                next_slot: 0,
            },
            Some(table) => self.start_freezing(table),
            None => AggregatorPhase::Emitting { next_slot: 0 },
        }
    }

    /// Returns true if accumulators are retained, to be deducted, read by key, or checkpointed.
    fn keeps_accs(&self) -> bool {
        F::DEDUCTS || F::EARLY || self.spec.allows_lateness() || self.survives
    }

    fn start_freezing(
        &mut self,
        table: SliceTable<F::Key, F::Acc>,
    ) -> AggregatorPhase<F::Key, F::Acc> {
        let entries = table.keys.len();
        let part = self.frozen.columns(table.id(), entries, self.keeps_accs());
        AggregatorPhase::Freezing {
            table,
            part,
            next: 0,
        }
    }

    /// Assigns slots to the keys of a closed slice, and adds it to the window.
    fn freeze(
        &mut self,
        fold: &F,
        open: &mut OpenOf<F>,
        (mut table, mut part, next): Freezing<F::Key, F::Acc>,
        left: &mut usize,
        kept: WindowStateRef<'_, F>,
    ) -> AggregatorPhase<F::Key, F::Acc> {
        let after = table.keys.len().min(next + *left);
        *left -= after - next;
        for key in &table.keys.keys()[next..after] {
            part.slots
                .push(self.index.find_or_insert(Cow::Borrowed(key)).0);
        }
        let slots = &part.slots[next..after];
        self.running.grow(fold, self.index.slots());
        if part.slice >= self.spec.first_slice_of(self.frontier) {
            let accs = &table.keys.values()[next..after];
            self.running.enter(fold, part.slice, slots, accs);
        }
        if let Some(kept) = kept {
            kept.freeze(&mut table, next, (slots, self.index.slots()));
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
        if after < table.keys.len() {
            return AggregatorPhase::Freezing {
                table,
                part,
                next: after,
            };
        }
        if self.keeps_accs() {
            part.accs.extend(table.keys.drain_values());
        }
        part.stamps = std::mem::take(&mut table.stamps);
        let was_closed = part.slice < self.frontier;
        self.frozen.push(part);
        open.recycle(table);
        if was_closed {
            AggregatorPhase::Next
        } else {
            AggregatorPhase::Emitting { next_slot: 0 }
        }
    }

    /// Emits the results of each window in an order that follows from the input alone, and not from
    /// the slots of keys, which differ after a restore.
    pub(crate) fn emit_in_order(&mut self) {
        self.order = Some(KeyOrder::default());
    }

    /// Emits results of the window at the frontier. Returns the slot to continue from, and the end.
    fn emit(&mut self, fold: &F, first: usize, outbox: &mut Outbox) -> Result<(usize, usize)> {
        let mut lane = outbox.lane::<ResultOf<F>>(Ordinal::FIRST)?;
        let room = lane.room();
        let header = WindowHeader::new(&self.spec, self.frontier, Firing::OnTime);
        let keys = self.index.keys();
        if let Some(order) = &mut self.order {
            if first == 0 {
                let slots = 0..self.running.slots() as u32;
                let running = &self.running;
                order.arrange(&self.index, slots.filter(|slot| running.holds(*slot)));
            }
            lane.rows().extend_columns(|values, times| {
                for slot in order.from(first, room) {
                    let result = self.running.result(fold, slot);
                    values.push(header.result(keys[slot].clone(), result));
                }
                times.resize(values.len(), result_time(header.end));
            });
            return Ok((order.len().min(first + room), order.len()));
        }
        let mut next = first;
        lane.rows().extend_columns(|values, times| {
            next = self.running.results(fold, first, room, |slot, result| {
                values.push(header.result(keys[slot].clone(), result));
            });
            times.resize(values.len(), result_time(header.end));
        });
        Ok((next, self.running.slots()))
    }

    /// Emits results of a single-slice window. Returns the slot to continue from.
    fn emit_table(
        &mut self,
        fold: &F,
        table: &KeyTable<F::Key, F::Acc>,
        first: usize,
        outbox: &mut Outbox,
    ) -> Result<usize> {
        let mut lane = outbox.lane::<ResultOf<F>>(Ordinal::FIRST)?;
        let next = table.len().min(first + lane.room());
        let header = WindowHeader::new(&self.spec, self.frontier, Firing::OnTime);
        if let Some(order) = &mut self.order {
            if first == 0 {
                order.arrange(table.index(), 0..table.len() as u32);
            }
            let (keys, accs) = (table.keys(), table.values());
            lane.rows().extend_columns(|values, times| {
                let slots = order.from(first, next - first);
                values.extend(
                    slots.map(|slot| header.result(keys[slot].clone(), fold.finish(&accs[slot]))),
                );
                times.resize(values.len(), result_time(header.end));
            });
            return Ok(next);
        }
        let entries = table.keys()[first..next]
            .iter()
            .zip(&table.values()[first..next]);
        lane.rows().extend_columns(|values, times| {
            values.extend(entries.map(|(key, acc)| header.result(key.clone(), fold.finish(acc))));
            times.resize(values.len(), result_time(header.end));
        });
        Ok(next)
    }

    /// Removes a part, or some entries of it, from the window. After the last part, the window
    /// advances.
    fn leave(
        &mut self,
        fold: &F,
        open: &OpenOf<F>,
        (position, after, next): (usize, usize, usize),
        left: &mut usize,
        kept: WindowStateRef<'_, F>,
    ) -> AggregatorPhase<F::Key, F::Acc> {
        let stays = self.spec.allows_lateness();
        if position == after {
            if !stays {
                self.drop_before(self.spec.first_slice_of(self.frontier) + 1, kept);
            }
            self.frontier += 1;
            return AggregatorPhase::Next;
        }
        let part = self.frozen.part(position);
        let end = part.slots.len().min(next + *left);
        *left -= end - next;
        let accs = part.accs.get(next..end).unwrap_or_default();
        let (index, triggers) = (&mut self.index, &mut self.triggers);
        let owns_slots = kept.is_none();
        self.running
            .leave(fold, part.slice, &part.slots[next..end], accs, |slot| {
                if !stays {
                    forget::<F>(index, triggers, open, slot, owns_slots);
                }
            });
        match end < part.slots.len() {
            true => AggregatorPhase::Leaving {
                part: position,
                after,
                next: end,
            },
            false => AggregatorPhase::Leaving {
                part: position + 1,
                after,
                next: 0,
            },
        }
    }

    /// Drops the parts of slices before `limit`.
    fn drop_before(&mut self, limit: Slice, mut kept: WindowStateRef<'_, F>) {
        while let Some(part) = self.frozen.pop_before(limit) {
            match &mut kept {
                Some(kept) => kept.drop_part(part, &mut self.frozen, &mut self.index),
                None => self.frozen.recycle(part),
            }
        }
    }

    /// Drops slices that are not needed any more. Returns true if all are dropped.
    fn expire(
        &mut self,
        open: &OpenOf<F>,
        watermark: Watermark,
        left: &mut usize,
        mut kept: WindowStateRef<'_, F>,
    ) -> bool {
        self.kept_from = self.kept_from.max(self.spec.first_kept(watermark));
        let limit = match self.kept_from {
            ALL_SLICES => ALL_SLICES,
            window => self.spec.first_slice_of(window),
        };
        let owns_slots = kept.is_none();
        while self.spec.allows_lateness() && *left > 0 {
            let Some(part) = self.frozen.pop_before(limit) else {
                return true;
            };
            *left = left.saturating_sub(part.slots.len());
            for slot in &part.slots {
                let held = &mut self.held[*slot as usize];
                *held -= 1;
                if *held == 0 {
                    let (index, triggers) = (&mut self.index, &mut self.triggers);
                    forget::<F>(index, triggers, open, *slot, owns_slots);
                }
            }
            match &mut kept {
                Some(kept) => kept.drop_part(part, &mut self.frozen, &mut self.index),
                None => self.frozen.recycle(part),
            }
        }
        *left > 0
    }

    /// Recomputes the emitted windows that late records have changed.
    fn revise(&mut self, fold: &F, pending: &mut VecDeque<ResultOf<F>>) {
        let (index, lag) = (&self.index, &self.lag);
        let whole = (self.kept_from, self.frontier);
        let ranges = self.revisions.take(&self.spec, |slot| match lag {
            Some(lag) => lag.revised(index.key(slot), whole),
            None => whole,
        });
        let mut results = Vec::new();
        for (slot, windows) in ranges {
            self.compute(fold, slot, windows, &mut results);
        }
        self.add_results(results, Firing::Update, pending);
    }

    /// Recomputes closed windows for one key.
    fn compute(
        &mut self,
        fold: &F,
        slot: u32,
        windows: RangeInclusive<Slice>,
        results: &mut Vec<(Slice, u32, F::Out)>,
    ) {
        let slices = self.spec.first_slice_of(*windows.start())..*windows.end() + 1;
        let accs = self.frozen.of_key(slot, slices);
        let accs = accs.map(|(slice, acc)| (slice, acc.clone())).collect();
        sweep(fold, &self.spec, accs, windows, |window, result| {
            results.push((window, slot, result));
        });
    }

    fn add_results(
        &self,
        mut results: Vec<(Slice, u32, F::Out)>,
        firing: Firing,
        pending: &mut VecDeque<ResultOf<F>>,
    ) {
        match &self.order {
            Some(_) => {
                let hash = |slot: u32| self.index.key(slot).key_hash();
                results.sort_by_cached_key(|(window, slot, _)| (*window, hash(*slot)));
            }
            None => results.sort_by_key(|(window, slot, _)| (*window, *slot)),
        }
        pending.extend(results.into_iter().map(|(window, slot, result)| {
            WindowHeader::new(&self.spec, window, firing)
                .result(self.index.key(slot).clone(), result)
        }));
    }

    /// Adds the present results of the open windows of `key` to `pending`.
    pub(crate) fn early_results(
        &mut self,
        fold: &F,
        open: &OpenOf<F>,
        key: &F::Key,
        pending: &mut VecDeque<ResultOf<F>>,
    ) {
        let first = match &self.lag {
            Some(lag) => lag.emitted_before(key).min(self.frontier),
            None => self.frontier,
        };
        let windows = first..=ALL_SLICES - 1;
        let mut accs = Vec::new();
        if let Some(slot) = self.index.find(key) {
            let slices = self.spec.first_slice_of(first)..ALL_SLICES;
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

/// Removes the key at `slot`, which has no closed slice any more.
fn forget<F: KeyedFold>(
    index: &mut KeyIndex<F::Key>,
    triggers: &mut KeyedState<F::Key, F::State>,
    open: &OpenOf<F>,
    slot: u32,
    owns_slots: bool,
) {
    if F::EARLY {
        let key = index.key(slot);
        if !open.iter().any(|(_, table)| table.get(key).is_some())
            && let Some(slot) = triggers.find(key)
        {
            triggers.remove(slot);
        }
    }
    if owns_slots {
        index.remove(slot);
    }
}

/// The common part of all results of a window.
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
