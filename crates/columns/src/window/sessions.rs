//! Session windows over records in columns.

mod merged;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Chunk, Error, ErrorCode, Inbox, InstanceContext, OnError, Ordinal, Outbox,
    OutboxRuntime, Processor, Progress, Result, Rows, Timestamp, Watermark,
};
use ardea_operators::{Feed, FeedVisitor, KeyedFold, SessionSpec, SessionWindowP, require_times};
use arrow_array::{ArrayRef, UInt32Array};

use super::{AccumulatorRow, ArgumentValues, BoundAggregate};
use crate::batch::{ColumnBatch, emit, take_if_free};
use crate::key::{EncodedKeys, GroupKey, KeyColumns};
use crate::keyed::state_codecs;
use crate::steps::ExprList;
use merged::SessionMerge;

/// Aggregates each key over sessions: periods of event time without a silence longer than the gap.
///
/// Emits the results of [`SessionWindowP`] over the same records, which holds the state. Records of
/// a batch that are not late are aggregated by key first, so that only one part per key and session
/// of the batch is looked up.
///
/// Late records are counted and sent to the second output, if the vertex has one. A record for
/// which an argument of an aggregate has no value is handled by the error policy; the default is
/// dead letters. The records must have the routing of [`ColumnScatter`](crate::ColumnScatter) by
/// the same key.
pub struct ColumnSessionP {
    key: KeyColumns,
    arguments: ExprList,
    merger: SessionMerge,
    sessions: SessionWindowP<SessionFold>,
}

impl ColumnSessionP {
    /// Creates session windows over these aggregates by key.
    pub fn new(spec: SessionSpec, key: KeyColumns, aggregates: Vec<BoundAggregate>) -> Self {
        let arguments = aggregates.iter().filter_map(|it| it.argument().cloned());
        let fold = SessionFold {
            empty: AccumulatorRow(aggregates.iter().map(BoundAggregate::create).collect()),
        };
        let sessions = SessionWindowP::new(spec, Arc::new(fold));
        ColumnSessionP {
            key,
            arguments: ExprList::new(arguments.collect()),
            merger: SessionMerge::new(spec, aggregates),
            sessions: match state_codecs() {
                Some(codecs) => sessions.with_codecs(codecs),
                None => sessions,
            },
        }
    }

    /// Sets the error policy.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.arguments = self.arguments.on_error(policy);
        self
    }

    /// Returns the parts of a batch. Records that may be late are parts of their own.
    fn parts(
        &mut self,
        times: &[Timestamp],
        keys: &EncodedKeys,
        arguments: &[ArrayRef],
    ) -> Rows<SessionPart> {
        let on_time = self.sessions.on_time_from();
        if times.iter().all(|time| *time >= on_time) {
            return self.merger.merge(times, keys, arguments);
        }
        let aggregates = self.merger.aggregates();
        let values = ArgumentValues::of_all(aggregates, arguments);
        let part = |row: usize| {
            let mut accumulators: Box<[_]> =
                aggregates.iter().map(BoundAggregate::create).collect();
            for (accumulator, values) in accumulators.iter_mut().zip(&values) {
                values.add(accumulator, row);
            }
            SessionPart {
                key: keys.key(row),
                accumulators: Some(AccumulatorRow(accumulators)),
                row: row as u32,
            }
        };
        times
            .iter()
            .enumerate()
            .map(|(row, time)| (part(row), *time))
            .collect()
    }
}

/// A part of a session: the records of a key in a batch that reach each other.
struct SessionPart {
    key: GroupKey,
    /// The accumulators; `None` if the part only extends a session.
    accumulators: Option<AccumulatorRow>,
    /// The record in the batch, if the part is a single record that may be late.
    row: u32,
}

/// The fold of session parts.
struct SessionFold {
    empty: AccumulatorRow,
}

impl Feed for SessionFold {
    type Record = SessionPart;
    type Key = GroupKey;
    type Acc = AccumulatorRow;
    type State = ();

    #[inline]
    fn key<'r>(&self, part: &'r SessionPart) -> Cow<'r, GroupKey> {
        Cow::Borrowed(&part.key)
    }

    #[inline]
    fn accumulate(&self, acc: &mut AccumulatorRow, part: &SessionPart) {
        if let Some(accumulators) = &part.accumulators {
            acc.combine(accumulators);
        }
    }
}

impl KeyedFold for SessionFold {
    type Key = GroupKey;
    type Acc = AccumulatorRow;
    type Out = AccumulatorRow;
    type State = ();

    const DEDUCTS: bool = false;

    fn create(&self) -> AccumulatorRow {
        self.empty.clone()
    }

    fn combine(&self, acc: &mut AccumulatorRow, other: &AccumulatorRow) {
        acc.combine(other);
    }

    fn deduct(&self, acc: &mut AccumulatorRow, other: &AccumulatorRow) {
        acc.deduct(other);
    }

    fn finish(&self, acc: &AccumulatorRow) -> AccumulatorRow {
        acc.clone()
    }

    fn visit<V: FeedVisitor<Self>>(&self, input: Ordinal, visitor: V) -> Result<V::Output> {
        match input {
            Ordinal::FIRST => visitor.visit(self),
            _ => {
                let what = "records arrived on a second input of session windows";
                Err(Error::new(ErrorCode::UnexpectedInput, what))
            }
        }
    }
}

impl Processor for ColumnSessionP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.arguments.attach(context);
        self.sessions.init(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let position = inbox.position();
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::SECOND])? else {
            return Ok(());
        };
        require_times(batch.times(), input, position)?;
        let (batch, arguments) = self.arguments.evaluate(batch, input, position)?;
        let keys = self.key.encode(batch.records())?;
        let parts = self.parts(batch.times(), &keys, &arguments);
        // Only late parts are emitted at once, and their output has room for all of them.
        let mut late = Outbox::new(outbox.lanes().min(2), parts.len().max(1));
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(parts));
        self.sessions
            .process(Ordinal::FIRST, &mut inbox, &mut late)?;
        if late.lanes() <= Ordinal::SECOND.index() {
            return Ok(());
        }
        match late.take_chunk(Ordinal::SECOND.index(), Chunk::default) {
            Some(mut late) => emit_late(&batch, late.rows::<SessionPart>()?, outbox),
            None => Ok(()),
        }
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.sessions.on_watermark(watermark, outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.sessions.complete(outbox)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.sessions.unsaved_state()
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Box::new(self.sessions).hand_over_state()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.sessions.checkpointed()
    }
}

/// Sends the late records of a batch to the second output.
fn emit_late(batch: &ColumnBatch, late: &Rows<SessionPart>, outbox: &mut Outbox) -> Result<()> {
    let rows = late.values().iter().map(|part| part.row);
    let late = batch.take_rows(&UInt32Array::from_iter_values(rows))?;
    emit(outbox, Ordinal::SECOND, late)
}
