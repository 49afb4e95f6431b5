//! Batches as the records of a stream, for sources and sinks of rows, and the end of batches.

use ardea_columns::{ColumnBatch, ColumnRecord};
use ardea_core::{
    Chunk, Delivery, Inbox, Ordinal, Outbox, Processor, Result, Rows, Sink, Timestamp, supplier,
};
use arrow_array::RecordBatch;

/// Converts records that are batches to the records of these batches.
pub(super) struct UnpackP;

impl Processor for UnpackP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let rows = inbox.rows::<RecordBatch>()?;
        if let Some((records, _)) = rows.drain_front(1).next() {
            let mut batch = Chunk::new(ColumnBatch::untimed(records));
            outbox.offer_chunk(Ordinal::FIRST, &mut batch)?;
        }
        Ok(())
    }
}

/// Converts each batch to a record.
pub(super) struct PackP;

impl Processor for PackP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let (records, _) = inbox.batch::<ColumnBatch>()?.take().into_parts();
        let row = Rows::from_iter([(records, Timestamp::MIN)]);
        outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(row))?;
        Ok(())
    }
}

/// Returns a sink that drops batches.
pub(super) fn discard() -> Sink<ColumnRecord> {
    Sink::new("discard", supplier(|| DiscardP)).with_delivery(Delivery::Nothing)
}

/// Drops batches.
struct DiscardP;

impl Processor for DiscardP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        inbox.batch::<ColumnBatch>()?.take();
        Ok(())
    }
}
