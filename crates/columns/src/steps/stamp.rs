//! Event time from a column.

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Inbox, InstanceContext, MicroBatch, OnError, Ordinal,
    Outbox, Processor, Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter,
    StateShape, Timestamp, Watermark, WatermarkPolicy,
};
use ardea_operators::WatermarkEmitter;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, BooleanArray};
use arrow_schema::{DataType, Schema, TimeUnit};

use super::expr_list::ExprList;
use crate::batch::{ColumnBatch, emit, take_if_free};
use crate::expr::Expr;

/// Assigns each record the event time of an expression, and generates watermarks from these times.
///
/// The type of the expression is a timestamp or a date. A record is handled by the error policy if
/// its time is null, or further ahead than the policy's
/// [`max_ahead`](WatermarkPolicy::max_ahead); the default is dead letters. Watermarks follow the
/// [`WatermarkPolicy`] after each batch and replace upstream watermarks. A silent input is declared
/// idle.
pub struct ColumnStampP {
    time: ExprList,
    emitter: WatermarkEmitter,
}

impl ColumnStampP {
    /// Creates a step with the event times `time`, and watermarks by `policy`.
    ///
    /// # Errors
    /// Those of [`Expr::bind`], and [`ErrorCode::InvalidJob`] if the type is no time.
    pub fn new(time: &Expr, schema: &Schema, policy: WatermarkPolicy) -> Result<Self> {
        let bound = time.bind(schema)?;
        let kind = bound.field().data_type();
        if !matches!(kind, DataType::Timestamp(..) | DataType::Date32) {
            let what = format!("the event time {time} has the type {kind}");
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("cast it to a timestamp in its unit: Timestamp(Millisecond, None)"));
        }
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        Ok(ColumnStampP {
            time: ExprList::new(vec![time.clone().cast(micros).bind(schema)?]),
            emitter: WatermarkEmitter::new(policy),
        })
    }

    /// Sets the error policy.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.time = self.time.on_error(policy);
        self
    }

    /// Returns the records with their times, without those that have no valid time, and the latest
    /// time.
    fn stamp(
        &self,
        input: Ordinal,
        position: u64,
        batch: ColumnBatch,
    ) -> Result<(ColumnBatch, Timestamp)> {
        let (batch, values) = self.time.evaluate(batch, input, position)?;
        let values = values[0].as_primitive::<TimestampMicrosecondType>();
        let times: Vec<_> = values
            .values()
            .iter()
            .map(|it| Timestamp::from_micros(*it))
            .collect();
        let (records, _) = batch.into_parts();
        let mut bound = self.emitter.bound();
        let earliest = times.iter().fold(Timestamp::MAX, |a, b| a.min(*b));
        let latest = times.iter().fold(Timestamp::MIN, |a, b| a.max(*b));
        if values.null_count() == 0 && earliest > Timestamp::MIN && latest <= bound.limit() {
            let highest = bound.highest().max(latest);
            return Ok((ColumnBatch::new(records, times)?, highest));
        }
        let mut keep = Vec::with_capacity(times.len());
        for (row, time) in times.iter().enumerate() {
            let taken = match values.is_null(row) {
                true => Err("it has no event time".to_string()),
                false => bound.take(*time).map_err(|reason| reason.to_string()),
            };
            keep.push(taken.is_ok());
            if let Err(reason) = taken {
                let record = records.slice(row, 1);
                let at = position + row as u64;
                self.time.errors().handle(input, at, &record, reason)?;
            }
        }
        let batch = ColumnBatch::new(records, times)?.filter(&BooleanArray::from(keep))?;
        Ok((batch, bound.highest()))
    }
}

impl Processor for ColumnStampP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.time.attach(context);
        self.emitter.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let position = inbox.position();
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::FIRST])? else {
            self.emitter.after_chunk(0, Timestamp::MIN, true, outbox);
            return Ok(());
        };
        let (batch, highest) = self.stamp(input, position, batch)?;
        let passed = batch.len();
        emit(outbox, Ordinal::FIRST, batch)?;
        self.emitter.after_chunk(passed, highest, false, outbox);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        Ok(self.emitter.replace(watermark, outbox))
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.emitter.check_idle(outbox);
        Ok(Progress::DONE)
    }

    fn on_batch_end(&mut self, batch: MicroBatch, outbox: &mut Outbox) -> Result<Progress> {
        Ok(self.emitter.end_batch(batch, outbox))
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.emitter.check_idle(outbox);
        Ok(())
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for ColumnStampP {
    fn states(&mut self) -> Vec<StateShape> {
        WatermarkEmitter::states()
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.emitter.take_snapshot()
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.emitter.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.emitter.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.emitter.restored()?;
        Ok(Progress::DONE)
    }
}
