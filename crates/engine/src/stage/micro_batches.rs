//! The micro-batches of a stage: a source ends them, and other stages pass their ends on.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Marker, MicroBatch, OutboxRuntime, Result};

use super::{Phase, ProcessorStage};
use crate::micro_batch::{BatchClock, SourceBatches};

impl ProcessorStage {
    /// Lets the stage process micro-batches, if there is a `clock`, and a source end them unless it
    /// `feeds_urgent` inputs. An end of such a source would wait for inputs that are not read yet.
    ///
    /// The state is then restored whole before the first record: the order of records that wait for
    /// state would not follow from the input alone.
    pub(crate) fn with_batches(
        mut self,
        clock: Option<&Arc<BatchClock>>,
        feeds_urgent: bool,
    ) -> Self {
        self.restores_lazily &= clock.is_none();
        let clock = clock.filter(|_| self.is_source() && !feeds_urgent);
        self.batches = clock.map(|clock| Box::new(SourceBatches::new(Arc::clone(clock))));
        self
    }

    /// Returns the time at which a source ends a micro-batch by itself.
    pub(crate) fn batch_deadline(&self) -> Option<Duration> {
        // In other phases the source ends none.
        let batches = self.batches.as_ref();
        let batches = batches.filter(|_| self.phase == Phase::Completing)?;
        Some(batches.deadline())
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
        batches.end(batch, records);
        self.context.metrics.count_batch(Duration::ZERO);
        self.outbox.marker(Marker::BatchEnd(batch));
        true
    }

    /// Passes the end of a micro-batch on when the processor has written the output that found no
    /// room before, for which it has requested a call. Returns true if the micro-batch has ended.
    ///
    /// # Errors
    /// If a recording cannot be written, and errors of a recorded processor.
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
        if !self.code.end_batch(batch, &mut self.outbox)? {
            return Ok(!self.outbox.is_empty());
        }
        self.context.metrics.count_batch(waited);
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
