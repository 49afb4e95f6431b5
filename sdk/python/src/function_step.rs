//! The step that calls a function with each batch.

use ardea_columns::{ColumnBatch, record_errors};
use ardea_core::{
    Chunk, Error, ErrorCode, Inbox, InstanceContext, OnError, Ordinal, Outbox, Processor, Result,
    Timestamp,
};
use ardea_operators::RecordErrors;
use arrow_array::RecordBatch;

use crate::function::{BatchFunction, FunctionResult};
use crate::user_metrics::EmbeddedMetrics;

/// Emits the results of a function for each batch. A result has the event time of its record.
pub(crate) struct FunctionP<F> {
    name: String,
    function: F,
    errors: RecordErrors<RecordBatch>,
    metrics: EmbeddedMetrics,
    /// True if the job uses the event times of the records.
    has_time: bool,
}

impl<F> FunctionP<F> {
    /// Creates the step `name`, with a policy for records on which the function fails.
    pub(crate) fn new(name: String, function: F, policy: OnError, has_time: bool) -> Self {
        FunctionP {
            name,
            function,
            errors: record_errors(policy),
            metrics: EmbeddedMetrics::default(),
            has_time,
        }
    }

    /// Returns the event times of the results.
    fn times(&self, result: &FunctionResult, times: Vec<Timestamp>) -> Result<Vec<Timestamp>> {
        let (count, before) = (result.records.num_rows(), times.len());
        if let Some(rows) = &result.rows {
            let of = rows.iter().map(|row| times.get(*row as usize).copied());
            let of = of.collect::<Option<Vec<_>>>();
            return of
                .filter(|of| of.len() == count)
                .ok_or_else(|| Error::new(ErrorCode::Internal, "a result has no record"));
        }
        if count == before {
            return Ok(times);
        }
        if !self.has_time {
            return Ok(vec![Timestamp::MIN; count]);
        }
        let what = format!(
            "the function {:?} returned {count} records for {before}, whose event times are then unknown",
            self.name
        );
        Err(Error::new(ErrorCode::UserError, what)
            .hint("assign timestamps after this step, or return as many records")
            .permanent())
    }
}

impl<F: BatchFunction> Processor for FunctionP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.errors.attach(context);
        self.metrics.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let position = inbox.position();
        let (records, times) = inbox.batch::<ColumnBatch>()?.take().into_parts();
        let function = &mut self.function;
        let called = self.metrics.during(|| function.call(&records));
        let result = called.map_err(|failure| failure.into_error(&self.name, position))?;
        for (row, reason) in &result.failures {
            let at = position + u64::from(*row);
            let record = records.slice(*row as usize, 1);
            self.errors.handle(input, at, &record, reason)?;
        }
        let times = self.times(&result, times)?;
        if !times.is_empty() {
            let batch = ColumnBatch::new(result.records, times)?;
            outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(batch))?;
        }
        Ok(())
    }
}
