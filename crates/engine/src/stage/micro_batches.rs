//! The micro-batches of a stage: a source ends them, and other stages pass their ends on.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Marker, MicroBatch, OutboxRuntime, Result, VertexId, Watermark};

use super::{Phase, ProcessorStage};
use crate::SourceLog;
use crate::micro_batch::{BatchClock, SourceBatches, SourceTime};

impl ProcessorStage {
    /// Lets the stage process micro-batches, if there is a `clock`, and a source end them unless it
    /// `feeds_urgent` inputs. An end of such a source would wait for inputs that are not read yet.
    /// The source adds its micro-batches to `log`, and repeats those of its predecessor.
    ///
    /// The state is then restored whole before the first record: the order of records that wait for
    /// state would not follow from the input alone.
    pub(crate) fn with_batches(
        mut self,
        clock: Option<&Arc<BatchClock>>,
        feeds_urgent: bool,
        log: Option<(Arc<SourceLog>, VertexId)>,
    ) -> Self {
        self.restores_lazily &= clock.is_none();
        let clock = clock.filter(|_| self.is_source() && !feeds_urgent);
        let records = self.context.metrics.records_out();
        self.batches = clock.map(|clock| {
            let batches = SourceBatches::new(Arc::clone(clock), records);
            Box::new(match log {
                Some((log, vertex)) => {
                    let instance = self.context.instance.index;
                    batches.logged(log, (vertex.index() as u32, instance))
                }
                None => batches,
            })
        });
        self
    }

    /// Returns true if the source repeats micro-batches of its predecessor.
    pub(super) fn repeats_batches(&self) -> bool {
        let batches = self.batches.as_ref();
        batches.is_some_and(|batches| batches.is_repeating())
    }

    /// Returns true if the source waits for the micro-batches that it must repeat.
    pub(super) fn awaits_batches(&mut self) -> bool {
        let batches = self.batches.as_mut();
        batches.is_some_and(|batches| batches.is_waiting())
    }

    /// Returns the time at which a source ends a micro-batch by itself.
    pub(crate) fn batch_deadline(&self) -> Option<Duration> {
        // In other phases the source ends none.
        let batches = self.batches.as_ref();
        let batches = batches.filter(|_| self.phase == Phase::Completing)?;
        batches.deadline()
    }

    /// Ends the micro-batch of a source if it is due, or if it has begun and a barrier follows.
    /// Returns true if it ended.
    pub(super) fn end_batch_of_source(&mut self, is_before_barrier: bool) -> bool {
        let Some(batches) = &mut self.batches else {
            return false;
        };
        let records = self.context.metrics.records_out();
        let due = match is_before_barrier {
            true => batches.before_barrier(),
            false => batches.due(records),
        };
        let Some(batch) = due else { return false };
        let time = batches.end(batch, records);
        self.pass_time(time);
        self.context.metrics.count_batch(Duration::ZERO);
        self.outbox.marker(Marker::BatchEnd(batch));
        true
    }

    /// Retains the watermarks and idle markers of a source until its micro-batch ends. Passes them
    /// on if the source `has_ended`.
    pub(super) fn hold_time(&mut self, has_ended: bool) {
        let Some(batches) = &mut self.batches else {
            return;
        };
        self.outbox
            .retain_markers(&mut |marker| !batches.hold(marker));
        if has_ended {
            let time = batches.take_time();
            self.pass_time(time);
        }
    }

    /// Sends the event time of a source.
    fn pass_time(&mut self, time: SourceTime) {
        if time.watermark > Watermark::NONE {
            self.outbox.watermark(time.watermark);
        }
        if time.is_idle {
            self.outbox.marker(Marker::Idle);
        }
    }

    /// Calls the processor at the end of a micro-batch. Passes the end on when the processor has
    /// written the output that found no room before, for which it has requested a call. Returns
    /// true if there was progress.
    ///
    /// # Errors
    /// If a recording cannot be written, and errors of the processor.
    pub(super) fn end_batch_of_step(
        &mut self,
        batch: MicroBatch,
        waited: Duration,
    ) -> Result<bool> {
        let requests = [self.wake_at, self.outbox.take_wake_at()];
        self.wake_at = requests.into_iter().flatten().min();
        let now = self.context.clock.now();
        if self.owes_wake || self.wake_at.is_some_and(|deadline| deadline <= now) {
            return Ok(false);
        }
        if !self.has_ended_batch {
            let progress = self.code.on_batch_end(batch, &mut self.outbox)?;
            self.is_at_snapshot &= !progress.made;
            self.has_ended_batch = progress.done;
            if progress.made || !progress.done {
                return Ok(progress.made);
            }
        }
        if !self.code.end_batch(batch, &mut self.outbox)? {
            return Ok(!self.outbox.is_empty());
        }
        self.context.metrics.count_batch(waited);
        self.has_ended_batch = false;
        self.phase = Phase::Reading;
        Ok(true)
    }

    /// Before a call of a source: limits its records to those that its micro-batch has room for.
    pub(super) fn limit_batch(&mut self) {
        if let Some(batches) = &mut self.batches {
            let records = self.context.metrics.records_out();
            let outputs = self.outbox.lanes();
            let budget = batches.begin_call(records, outputs, self.context.chunk_records);
            self.outbox.set_budget(budget);
        }
    }
}
