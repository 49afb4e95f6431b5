//! The first stage of a two-stage windowed aggregation.

use std::sync::Arc;

use ardea_core::{
    Epoch, Inbox, InstanceContext, MicroBatch, Ordinal, Outbox, Processor, Progress, Result,
    Watermark,
};

use crate::keyed_fold::FIRST_STAGE_KEYS;
use crate::window::slice_assigner::SliceAssigner;
use crate::window::spec::{ALL_SLICES, Slice, WindowSpec};
use crate::window::state::open_slices::SliceTable;
use crate::{KeyedFold, Partial};

/// Aggregates each key over slices on the producing side, before the exchange by key.
///
/// Emits a [`Partial`] per key of a slice when the watermark closes the slice, at the end of an
/// epoch, or when it holds more than [`keys_max`](Self::keys_max) keys, in micro-batches at the
/// end of one. It therefore has no state
/// to checkpoint. A [`SlidingWindowP`](crate::SlidingWindowP) of
/// [`FoldPartials`](crate::FoldPartials) with the same [`WindowSpec`] combines the partial results;
/// the final results are the same as with one stage. Both stages apply the same rule for late
/// records. Late records are counted and sent to their output here, where they are still individual
/// records.
///
/// Early triggers need all records of a key in one place and are ignored here.
pub struct SliceCombineP<F: KeyedFold> {
    spec: WindowSpec,
    fold: Arc<F>,
    assigner: SliceAssigner<F>,
    /// The maximum number of keys over all open slices. With more, all slices are emitted early.
    keys_max: usize,
    emitting: Option<Emitting<F::Key, F::Acc>>,
    /// True while all slices are emitted, closed or not.
    relieving: bool,
    /// True if slices are emitted early at the end of a micro-batch only.
    in_micro_batches: bool,
}

/// A slice being emitted, from `next` on.
struct Emitting<K, A> {
    table: SliceTable<K, A>,
    next: usize,
}

impl<F: KeyedFold> SliceCombineP<F> {
    /// Creates a first stage that aggregates by `fold` over the slices of `spec`.
    pub fn new(spec: WindowSpec, fold: Arc<F>) -> Self {
        SliceCombineP {
            spec,
            fold,
            assigner: SliceAssigner::new(spec),
            keys_max: FIRST_STAGE_KEYS,
            emitting: None,
            relieving: false,
            in_micro_batches: false,
        }
    }

    /// Sets the maximum number of keys over all open slices. With more, all slices are emitted
    /// early.
    pub fn keys_max(mut self, keys: usize) -> Self {
        self.keys_max = keys;
        self
    }

    /// Emits slices before `limit` while there is room. Returns true if all are emitted.
    fn emit_before(&mut self, limit: Slice, outbox: &mut Outbox) -> Result<bool> {
        loop {
            let Some(Emitting { table, next }) = &mut self.emitting else {
                let Some(table) = self.assigner.open.pop_before(limit) else {
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
                self.assigner.open.recycle(table);
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
        self.assigner.late.attach(context);
        self.in_micro_batches = context.micro_batches.is_some();
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !self.in_micro_batches {
            self.relieving |= self.assigner.open.keys() > self.keys_max;
        }
        if self.relieving {
            if !self.emit_before(ALL_SLICES, outbox)? {
                return Ok(());
            }
            self.relieving = false;
        }
        self.assigner.take(&self.fold, input, (inbox, outbox), None)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.emit_closed(watermark, outbox)?;
        if progress.done {
            self.assigner.late.advance(watermark);
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    fn on_batch_end(&mut self, _: MicroBatch, outbox: &mut Outbox) -> Result<Progress> {
        self.relieving |= self.assigner.open.keys() > self.keys_max;
        if !self.relieving {
            return Ok(Progress::IDLE);
        }
        let made = outbox.lanes() == 0 || outbox.has_room(Ordinal::FIRST);
        let done = self.emit_before(ALL_SLICES, outbox)?;
        self.relieving = !done;
        Ok(Progress { made, done })
    }

    /// Emits all slices, so that no state remains at the end of an epoch.
    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let made = outbox.lanes() == 0 || outbox.has_room(Ordinal::FIRST);
        let done = self.emit_before(ALL_SLICES, outbox)?;
        self.relieving &= !done;
        Ok(Progress { made, done })
    }

    /// Closes all slices, in case no watermark at the end of time has closed them.
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.emit_closed(Watermark::END, outbox)
    }
}
