//! Copies of streams in columns.

use std::sync::Arc;

use ardea_columns::{ColumnBatch, ColumnRecord, Columns};
use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Result, supplier};
use arrow_schema::SchemaRef;

use super::Table;

/// Returns `count` copies of a stream. The columns are shared.
pub(super) fn tee(table: Table, schema: &SchemaRef, count: usize) -> Vec<Table> {
    let mut tables = Vec::with_capacity(count);
    let mut rest = table;
    while tables.len() + 1 < count {
        let first = rest
            .into_stream()
            .extend_with::<ColumnRecord>("tee", supplier(|| TeeBatchP));
        let second = first.second_output();
        tables.push(Columns::from_stream(first, Arc::clone(schema)));
        rest = Columns::from_stream(second, Arc::clone(schema));
    }
    tables.push(rest);
    tables
}

/// Emits each batch to two outputs.
struct TeeBatchP;

impl Processor for TeeBatchP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let outputs = [Ordinal::FIRST, Ordinal::SECOND];
        if !outputs.iter().all(|output| outbox.accepts_chunk(*output)) {
            return Ok(());
        }
        let batch = inbox.batch::<ColumnBatch>()?.take();
        for output in outputs {
            outbox.offer_chunk(output, &mut Chunk::new(batch.clone()))?;
        }
        Ok(())
    }
}
