//! Drives processors of columns by the test kit, whose inputs and outputs are rows.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Chunk, Epoch, Inbox, InstanceContext, Marker, Ordinal, Outbox, OutboxRuntime,
    Processor, Progress, Result, SourceControl, Timestamp, Watermark,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::ColumnBatch;

/// A record of the tests: a number, a nullable price, and a text.
pub(crate) type Row = (i64, Option<u64>, String);

/// Returns the schema of [`Row`]s: `number`, `price` and `text`.
pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("number", DataType::Int64, false),
        Field::new("price", DataType::UInt64, true),
        Field::new("text", DataType::Utf8, false),
    ]))
}

pub(crate) fn row(number: i64, price: impl Into<Option<u64>>, text: &str) -> Row {
    (number, price.into(), text.to_string())
}

pub(crate) fn to_columns(rows: &[Row]) -> RecordBatch {
    let columns: [ArrayRef; 3] = [
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))),
        Arc::new(rows.iter().map(|r| r.1).collect::<UInt64Array>()),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r.2))),
    ];
    RecordBatch::try_new(schema(), columns.to_vec()).unwrap()
}

/// A record of an output.
pub(crate) trait FromColumns: Send + Sized + 'static {
    fn from_columns(records: &RecordBatch) -> Vec<Self>;
}

impl FromColumns for Row {
    fn from_columns(records: &RecordBatch) -> Vec<Row> {
        let numbers = records.column(0).as_primitive::<Int64Type>();
        let prices = records.column(1).as_primitive::<UInt64Type>();
        let texts = records.column(2).as_string::<i32>();
        let price = |at: usize| prices.is_valid(at).then(|| prices.value(at));
        let row = |at| row(numbers.value(at), price(at), texts.value(at));
        (0..records.num_rows()).map(row).collect()
    }
}

/// Converts the input of a processor that emits at most one record for each to columns, and its
/// output to rows of `U`.
pub(crate) struct Around<P, U> {
    inner: P,
    output: PhantomData<fn() -> U>,
}

/// Converts the input of a processor that emits rows to columns, and its late records to rows.
pub(crate) struct Before<P>(pub(crate) P);

impl<P, U> Around<P, U> {
    pub(crate) fn new(inner: P) -> Self {
        Around {
            inner,
            output: PhantomData,
        }
    }

    pub(crate) fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }
}

/// Returns an inbox with the first records of another, as columns.
fn converted(inbox: &mut Inbox, count: usize) -> Result<Inbox> {
    // The position of the records goes to the processor too.
    let mut columns = Inbox::default();
    let position = inbox.position() as usize;
    let before = to_columns(&vec![row(0, None, ""); position]);
    columns.fill(Chunk::new(ColumnBatch::untimed(before)));
    columns.batch::<ColumnBatch>()?.take();
    let rows = inbox.rows::<Row>()?;
    let batch = to_columns(&rows.values()[..count]);
    let times = rows.times()[..count].to_vec();
    columns.fill(Chunk::new(ColumnBatch::new(batch, times)?));
    Ok(columns)
}

impl<P: Processor, U: FromColumns> Around<P, U> {
    /// Calls the processor with an empty output of its own, and moves its content to `outbox`.
    fn call<R>(
        &mut self,
        outbox: &mut Outbox,
        call: impl FnOnce(&mut P, &mut Outbox) -> Result<R>,
    ) -> Result<R> {
        let mut own = Outbox::new(1, usize::MAX);
        let result = call(&mut self.inner, &mut own)?;
        if let Some(mut chunk) = own.take_chunk(0, Chunk::default) {
            let batch = chunk.batch::<ColumnBatch>()?;
            let rows = U::from_columns(batch.records());
            let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
            for (row, time) in rows.into_iter().zip(batch.times()) {
                lane.push(row, *time);
            }
        }
        while let Some(marker) = own.take_marker(0) {
            outbox.marker(marker);
        }
        if let Some(deadline) = own.take_wake_at() {
            outbox.wake_at(deadline);
        }
        Ok(result)
    }
}

impl<P: Processor, U: FromColumns> Processor for Around<P, U> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.inner.init(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let count = outbox.lane::<U>(Ordinal::FIRST)?.room().min(inbox.len());
        if count == 0 {
            return Ok(());
        }
        let mut columns = converted(inbox, count)?;
        self.call(outbox, |inner, own| inner.process(input, &mut columns, own))?;
        inbox.rows::<Row>()?.discard_front(count - columns.len());
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.call(outbox, |inner, own| inner.on_watermark(watermark, own))
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.call(outbox, |inner, own| inner.on_epoch(epoch, own))
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.call(outbox, |inner, own| inner.on_wake(own))
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.inner.unsaved_state()
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Box::new(self.inner).hand_over_state()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.inner.checkpointed()
    }
}

impl<P: Processor> Processor for Before<P> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.0.init(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if outbox.lanes() > 1 {
            return self.process_and_late(input, inbox, outbox);
        }
        let mut columns = converted(inbox, inbox.len())?;
        let before = columns.len();
        self.0.process(input, &mut columns, outbox)?;
        inbox.rows::<Row>()?.discard_front(before - columns.len());
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.0.on_watermark(watermark, outbox)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.0.on_epoch(epoch, outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.0.complete(outbox)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.0.unsaved_state()
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Box::new(self.0).hand_over_state()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.0.checkpointed()
    }
}

impl<P: Processor> Before<P> {
    /// Calls a processor that emits late records only, and converts them to rows.
    fn process_and_late(
        &mut self,
        input: Ordinal,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
    ) -> Result<()> {
        let mut lane = outbox.lane::<Row>(Ordinal::SECOND)?;
        let count = lane.room().min(inbox.len());
        let mut columns = converted(inbox, count)?;
        let mut own = Outbox::new(2, usize::MAX);
        self.0.process(input, &mut columns, &mut own)?;
        assert!(columns.is_empty() && own.take_chunk(0, Chunk::default).is_none());
        if let Some(mut late) = own.take_chunk(1, Chunk::default) {
            let batch = late.batch::<ColumnBatch>()?.take();
            let rows = Row::from_columns(batch.records()).into_iter();
            rows.zip(batch.times())
                .for_each(|(row, time)| lane.push(row, *time));
        }
        inbox.rows::<Row>()?.discard_front(count);
        Ok(())
    }
}

/// Converts the batches of a source to rows of `U`. Its batches have one record.
pub(crate) struct RowsOf<U> {
    inner: Box<dyn Processor>,
    output: PhantomData<fn() -> U>,
}

impl<U: FromColumns> RowsOf<U> {
    pub(crate) fn new(inner: Box<dyn Processor>) -> Self {
        RowsOf {
            inner,
            output: PhantomData,
        }
    }

    fn call(
        &mut self,
        outbox: &mut Outbox,
        call: impl FnOnce(&mut dyn Processor, &mut Outbox) -> Result<Progress>,
    ) -> Result<Progress> {
        let mut own = Outbox::new(1, 1);
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        own.set_budget(lane.room());
        let progress = call(&mut *self.inner, &mut own)?;
        if let Some(mut chunk) = own.take_chunk(0, Chunk::default) {
            let batch = chunk.batch::<ColumnBatch>()?.take();
            let rows = U::from_columns(batch.records()).into_iter();
            rows.for_each(|row| lane.push(row, Timestamp::MIN));
        }
        Ok(progress)
    }
}

impl<U: FromColumns> Processor for RowsOf<U> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.inner.init(context)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.call(outbox, |inner, own| inner.complete(own))
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.inner.checkpointed()
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }

    fn close(&mut self) {
        self.inner.close();
    }
}

impl<U: FromColumns> SourceControl for RowsOf<U> {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.call(outbox, |inner, own| inner.source().on_drain(own))
    }
}

/// Calls a processor once with a batch, and returns its output and markers.
pub(crate) fn call_once(
    processor: &mut impl Processor,
    records: RecordBatch,
) -> (Option<ColumnBatch>, Vec<Marker>) {
    let mut inbox = Inbox::default();
    inbox.fill(Chunk::new(ColumnBatch::untimed(records)));
    let mut outbox = Outbox::new(1, 1024);
    processor
        .process(Ordinal::FIRST, &mut inbox, &mut outbox)
        .unwrap();
    let batch = outbox.take_chunk(0, Chunk::default);
    let batch = batch.map(|mut chunk| chunk.batch::<ColumnBatch>().unwrap().take());
    let markers = std::iter::from_fn(|| outbox.take_marker(0)).collect();
    (batch, markers)
}

pub(crate) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}
