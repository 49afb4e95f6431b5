//! The first of two stages of a windowed aggregate.

use std::sync::Arc;

use ardea_core::{
    Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, Result, Watermark,
};

use super::intake::Intake;
use super::open_slices::SliceTable;
use super::spec::{ALL_SLICES, Slice, WindowSpec};
use crate::keyed_fold::FIRST_STAGE_KEYS;
use crate::{KeyedFold, Partial};

/// Aggregates each key over slices on the producing side, before the records are exchanged by key.
///
/// Emits a [`Partial`] for each key of a slice when the watermark closes the slice, or sooner when it holds very many keys, or an epoch
/// ends: so it remembers nothing that would have to survive it.
/// A [`SlidingWindowP`](crate::SlidingWindowP) of [`FoldPartials`](crate::FoldPartials), with the same [`WindowSpec`],
/// combines them; together they give what one stage gives. The two agree on which records are late: they are counted and
/// go to their output here, where they are still records.
///
/// Triggers for early results need all records of a key in one place; they are not asked here.
pub struct SliceCombineP<F: KeyedFold> {
    spec: WindowSpec,
    fold: Arc<F>,
    intake: Intake<F>,
    /// How many keys it holds, over all open slices, before it hands them on early.
    keys_max: usize,
    emitting: Option<Emitting<F::Key, F::Acc>>,
    /// Whether all slices are being handed on, closed or not.
    relieving: bool,
}

/// A slice being emitted, from `next` on.
struct Emitting<K, A> {
    table: SliceTable<K, A>,
    next: usize,
}

impl<F: KeyedFold> SliceCombineP<F> {
    /// Aggregates by `fold` over the slices of the windows of `spec`.
    pub fn new(spec: WindowSpec, fold: Arc<F>) -> Self {
        SliceCombineP {
            spec,
            fold,
            intake: Intake::new(spec),
            keys_max: FIRST_STAGE_KEYS,
            emitting: None,
            relieving: false,
        }
    }

    /// Hands keys on early when there are more than `keys`.
    pub fn keys_max(mut self, keys: usize) -> Self {
        self.keys_max = keys;
        self
    }

    /// Emits all slices before `limit`, as far as there is room; whether it came to the end.
    fn emit_before(&mut self, limit: Slice, outbox: &mut Outbox) -> Result<bool> {
        loop {
            let Some(Emitting { table, next }) = &mut self.emitting else {
                let Some(table) = self.intake.open.pop_before(limit) else {
                    return Ok(true);
                };
                self.emitting = Some(Emitting { table, next: 0 });
                continue;
            };
            let mut lane = outbox.lane::<Partial<F::Key, F::Acc>>(Ordinal::FIRST)?;
            let time = self.spec.last_of(table.slice);
            let keys = &mut table.keys;
            let after = keys.len().min(*next + lane.room());
            for slot in *next..after {
                let key = keys.keys()[slot].clone();
                let acc = std::mem::replace(&mut keys.values_mut()[slot], self.fold.create());
                lane.push(Partial { key, acc }, time);
            }
            *next = after;
            if after < keys.len() {
                return Ok(false);
            }
            if let Some(Emitting { table, .. }) = self.emitting.take() {
                self.intake.open.recycle(table);
            }
        }
    }

    fn emit_closed(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if outbox.lanes() > 0 && !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        Ok(Progress::done_if(
            self.emit_before(self.spec.first_open(watermark), outbox)?,
        ))
    }
}

impl<F: KeyedFold> Processor for SliceCombineP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.late.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.relieving |= self.intake.open.keys() > self.keys_max;
        if self.relieving {
            if !self.emit_before(ALL_SLICES, outbox)? {
                return Ok(());
            }
            self.relieving = false;
        }
        self.intake.take(&self.fold, input, (inbox, outbox), None)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.emit_closed(watermark, outbox)?;
        if progress.done {
            self.intake.late.advance(watermark);
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    /// All that it holds goes on, so that it has nothing to remember beyond the end of an epoch.
    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let made = outbox.lanes() == 0 || outbox.has_room(Ordinal::FIRST);
        let done = self.emit_before(ALL_SLICES, outbox)?;
        self.relieving &= !done;
        Ok(Progress { made, done })
    }

    /// The end of the input closes all slices, as its watermark has done before if it came.
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.emit_closed(Watermark::END, outbox)
    }
}
