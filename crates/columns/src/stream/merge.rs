//! Merges of streams of records in columns.

use std::sync::Arc;

use ardea_core::{
    Boundedness, Error, ErrorCode, Inbox, Join, Ordinal, Outbox, Processor, ProcessorSupplier,
    Result,
};
use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};

use super::{Columns, failing, supplier};
use crate::batch::{ColumnBatch, emit, take_if_free};
use crate::batch_codec::ColumnCodec;
use crate::error::arrow_error;

impl<B: Boundedness, E> Columns<B, E> {
    /// Merges two streams: emits the records of both. The columns have the same names and types, in
    /// the same order. A column is nullable if it is in one of the streams.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ardea_columns::IntoColumns;
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    /// use arrow_schema::{DataType, Field, Schema};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Clone, Serialize, Deserialize, Debug, PartialEq, Eq, PartialOrd, Ord)]
    /// struct Bid { price: u64 }
    ///
    /// let schema = Arc::new(Schema::new(vec![Field::new("price", DataType::UInt64, false)]));
    /// let p = Pipeline::new("bids");
    /// let web = p.read_from(items(vec![Bid { price: 5 }])).into_columns(Arc::clone(&schema));
    /// let app = p.read_from(items(vec![Bid { price: 7 }])).into_columns(schema);
    /// let bids = web.merge(app).rows::<Bid>().collect();
    /// p.run().unwrap();
    /// assert_eq!(bids.take_sorted(), [Bid { price: 5 }, Bid { price: 7 }]);
    /// ```
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    pub fn merge<B2: Boundedness>(self, other: Columns<B2, E>) -> Columns<<B as Join<B2>>::Out, E>
    where
        B: Join<B2>,
    {
        let schemas = self.schema.and_then(|first| Ok((first, other.schema?)));
        let schema = schemas.and_then(|(first, second)| common_schema(&first, &second));
        let make: Arc<dyn ProcessorSupplier> = match &schema {
            Err(error) => failing(error),
            Ok(schema) => {
                let schema = Arc::clone(schema);
                supplier(move || {
                    let schema = Arc::clone(&schema);
                    Ok(ColumnMergeP { schema })
                })
            }
        };
        let codec = Arc::new(ColumnCodec);
        Columns {
            stream: self.stream.merge_with(other.stream, codec, make),
            schema,
            filters: None,
        }
    }
}

/// Returns the columns of two merged streams.
fn common_schema(first: &SchemaRef, second: &SchemaRef) -> Result<SchemaRef> {
    let listed = |schema: &Schema| {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| format!("{}: {}", field.name(), field.data_type()));
        fields.collect::<Vec<_>>().join(", ")
    };
    let is_same = |(one, other): (&Arc<Field>, &Arc<Field>)| {
        one.name() == other.name() && one.data_type() == other.data_type()
    };
    let fields = || first.fields().iter().zip(second.fields());
    if first.fields().len() != second.fields().len() || !fields().all(is_same) {
        let what = format!(
            "two merged streams have different columns: {}, and {}",
            listed(first),
            listed(second)
        );
        return Err(Error::new(ErrorCode::InvalidJob, what)
            .hint("select the same columns of both before, in the same order"));
    }
    let fields = fields().map(|(one, other)| {
        let is_nullable = one.is_nullable() || other.is_nullable();
        one.as_ref().clone().with_nullable(is_nullable)
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Emits the batches of two inputs, with their common columns.
struct ColumnMergeP {
    schema: SchemaRef,
}

impl Processor for ColumnMergeP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::FIRST])? else {
            return Ok(());
        };
        if batch.records().schema_ref() == &self.schema {
            return emit(outbox, Ordinal::FIRST, batch);
        }
        let (records, times) = batch.into_parts();
        let columns = records.columns().to_vec();
        let records = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|error| arrow_error("a batch has other columns than its merge", error))?;
        emit(outbox, Ordinal::FIRST, ColumnBatch::new(records, times)?)
    }
}
