//! Generated numbers.

use std::sync::Arc;

use ardea_columns::{ColumnBatch, ColumnRecord, Columns};
use ardea_connectors::generate;
use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Parallelism, Processor, Result, supplier};
use ardea_pipeline::Pipeline;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::as_bounded;
use crate::lowering::{EventTime, SourceTable};
use crate::plan::GeneratePlan;

/// The column of the numbers.
const NUMBER_COLUMN: &str = "number";

/// Generates the numbers from zero on.
pub(super) fn read(pipeline: &Pipeline, plan: &GeneratePlan) -> SourceTable {
    let parallelism = plan.parallelism.map_or(Parallelism::ONE, Parallelism::from);
    let limit = plan.limit.unwrap_or(u64::MAX);
    let source = match plan.rate {
        None => generate::sequence(0..limit, |number| number).parallelism(parallelism),
        Some(rate) => {
            let source = generate::at_rate(rate, |number| number).parallelism(parallelism);
            match plan.limit {
                Some(limit) => source.limit(limit).build(),
                None => as_bounded(source.build()),
            }
        }
    };
    let schema = Schema::new(vec![Field::new(NUMBER_COLUMN, DataType::Int64, false)]);
    let stream = pipeline
        .read_from(source)
        .extend_with::<ColumnRecord>("numbers", supplier(|| NumbersP))
        .with_source_time();
    SourceTable {
        table: Columns::from_stream(stream, Arc::new(schema)),
        time: match plan.rate {
            None => EventTime::Absent,
            Some(_) => EventTime::OfSource,
        },
        is_bounded: plan.limit.is_some(),
    }
}

/// Converts numbers to a column.
struct NumbersP;

impl Processor for NumbersP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let rows = inbox.rows::<u64>()?;
        let numbers = rows.values().iter().map(|number| number.cast_signed());
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        let records = RecordBatch::try_from_iter([(NUMBER_COLUMN, numbers)]);
        let records = records.map_err(|error| {
            ardea_core::Error::new(ardea_core::ErrorCode::Internal, error.to_string())
        })?;
        let batch = ColumnBatch::new(records, rows.times().to_vec())?;
        rows.clear();
        if !batch.is_empty() {
            outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(batch))?;
        }
        Ok(())
    }
}
