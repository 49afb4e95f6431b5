//! Running aggregates: one result per record.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Inbox, InstanceContext, OnError, Ordinal, Outbox, Processor, Progress, Result,
    Timestamp, Watermark,
};
use ardea_state::KeyedState;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Schema, SchemaRef};

use super::{EXPIRED_PER_CALL, find_slots, keyed_state, missing_state};
use crate::batch::{ColumnBatch, emit, take_if_free};
use crate::error::arrow_error;
use crate::key::{GroupKey, KeyColumns};
use crate::steps::ExprList;
use crate::window::{
    AccumulatorRow, ArgumentValues, BoundAggregate, ResultColumn, schema_of_results,
};

/// Aggregates the records of each key so far. Emits every record with its event time, its columns,
/// and the aggregates over the records of its key up to it.
///
/// With a time-to-live (TTL), the state of a key is reset when the key has had no record for longer
/// than the TTL, in event time. A record for which an argument of an aggregate has no value is
/// handled by the error policy; the default is dead letters.
///
/// The records must have the routing of [`ColumnScatter`](crate::ColumnScatter) by the same key.
/// Cost per record: a lookup of its key, and an addition for each aggregate.
pub struct ColumnRollingP {
    key: KeyColumns,
    aggregates: Vec<BoundAggregate>,
    arguments: ExprList,
    schema: SchemaRef,
    state: KeyedState<GroupKey, AccumulatorRow>,
    /// The span of event time without records after which a key has expired.
    expires_after: Option<Duration>,
    /// The slots of the records of a batch; empty between calls.
    slots: Vec<u32>,
}

impl ColumnRollingP {
    /// Creates running aggregates by key of records with the columns of `input`.
    ///
    /// # Errors
    /// Those of [`schema_of`](Self::schema_of).
    pub fn new(input: &Schema, key: KeyColumns, aggregates: Vec<BoundAggregate>) -> Result<Self> {
        let arguments = aggregates.iter().filter_map(|it| it.argument().cloned());
        Ok(ColumnRollingP {
            key,
            arguments: ExprList::new(arguments.collect()),
            schema: ColumnRollingP::schema_of(input, &aggregates)?,
            aggregates,
            state: keyed_state(),
            expires_after: None,
            slots: Vec::new(),
        })
    }

    /// Returns the schema of the results: the columns of the input, and the aggregates.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if two columns would have one
    /// name.
    pub fn schema_of(input: &Schema, aggregates: &[BoundAggregate]) -> Result<SchemaRef> {
        let aggregates = aggregates.iter().map(BoundAggregate::field);
        schema_of_results(input.fields().iter().chain(aggregates).cloned().collect())
    }

    /// Sets the time-to-live: a key without records for longer than `ttl` of event time is reset.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        let expires_after = ttl.saturating_add(Duration::from_micros(1));
        self.expires_after = Some(expires_after);
        self.state.set_ttl(expires_after);
        self
    }

    /// Sets the error policy.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.arguments = self.arguments.on_error(policy);
        self
    }

    /// Adds the records of a batch, and returns the columns of the results.
    fn add(&mut self, batch: &ColumnBatch, arguments: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let keys = self.key.encode(batch.records())?;
        let aggregates = &self.aggregates;
        let create = || AccumulatorRow(aggregates.iter().map(BoundAggregate::create).collect());
        self.slots.clear();
        find_slots(&mut self.state, &keys, &mut self.slots, create)?;
        let values = ArgumentValues::of_all(aggregates, arguments);
        let results = aggregates.iter();
        let mut results: Vec<_> = results
            .map(|aggregate| ResultColumn::new(aggregate, batch.len()))
            .collect();
        for (row, (slot, time)) in self.slots.iter().zip(batch.times()).enumerate() {
            let is_expired = self
                .expires_after
                .is_some_and(|after| is_expired(self.state.last_used(*slot), after, *time));
            let found = self.state.use_at(*slot, *time);
            let (_, accumulators, _) = found.ok_or_else(missing_state)?;
            if is_expired {
                *accumulators = create();
            }
            let columns = values.iter().zip(&mut results);
            for (accumulator, (values, results)) in accumulators.0.iter_mut().zip(columns) {
                values.add(accumulator, row);
                results.push(Some(accumulator));
            }
        }
        let results = results.into_iter().zip(aggregates);
        results.map(|(results, of)| results.finish(of)).collect()
    }
}

/// Returns true if the state of a key has expired at `time`.
fn is_expired(last: Option<Timestamp>, after: Duration, time: Timestamp) -> bool {
    last.is_some_and(|last| last + after <= time)
}

impl Processor for ColumnRollingP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.arguments.attach(context);
        self.state.open(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.state.spill()?;
        let position = inbox.position();
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::FIRST])? else {
            return Ok(());
        };
        let (batch, arguments) = self.arguments.evaluate(batch, input, position)?;
        let results = self.add(&batch, &arguments)?;
        self.state.report_size();
        let (records, times) = batch.into_parts();
        let columns = records.columns().iter().cloned().chain(results).collect();
        let records = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|error| arrow_error("rolling results do not form a batch", error))?;
        emit(outbox, Ordinal::FIRST, ColumnBatch::new(records, times)?)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.state.set_watermark(watermark);
        self.state.spill()?;
        if !self.state.remove_expired(EXPIRED_PER_CALL)? {
            return Ok(Progress::MADE);
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.state.unsaved_state()
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        self.state.into_memory()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }
}
