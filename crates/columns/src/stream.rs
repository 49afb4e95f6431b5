//! Streams of records in columns.

mod bound_aggregates;
mod joins;
mod keyed;
mod merge;
mod top;
mod windowed;

use std::sync::Arc;

use ardea_core::{
    Boundedness, ChunkCodec, Error, Instance, Processor, ProcessorSupplier, Result, Routing,
    Source, WatermarkPolicy,
};
use ardea_instance::{InstanceCommand, InstanceStep};
use ardea_pipeline::{Pipeline, Stream, Timed, Untimed};
use arrow_schema::{Schema, SchemaRef};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::arrow_format::ArrowFormat;
use crate::batch_codec::ColumnCodec;
use crate::expr::{BoundExpr, Expr};
use crate::key::KeyColumns;
use crate::rows::{ColumnsOfRowsP, RowsOfColumnsP};
use crate::sink::ColumnSink;
use crate::steps::{ColumnFilterP, ColumnStampP, ColumnTeeP, ForwardP, ProjectP};
use crate::window::ColumnArgument;

pub use keyed::KeyedColumns;
pub use windowed::WindowedColumns;

/// A record of a stream whose chunks are [`ColumnBatch`](crate::ColumnBatch)es. It has no values.
#[derive(Clone, Copy, Debug)]
pub enum ColumnRecord {}

/// A stream of records in columns.
///
/// Steps are bound to the schema when they are added. An expression that does not fit fails the job
/// when it starts; see [`schema`](Self::schema).
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ardea_columns::{IntoColumns, col, count, max};
/// use ardea_connectors::collections::items;
/// use ardea_pipeline::{Pipeline, WatermarkPolicy, Window};
/// use arrow_schema::{DataType, Field, Schema, TimeUnit};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Serialize)]
/// struct Bid { auction: u64, price: u64, time: i64 }
/// #[derive(Deserialize, Debug, PartialEq, Eq, PartialOrd, Ord)]
/// struct Hot { auction: u64, bids: i64, price: Option<u64> }
///
/// let bids = Schema::new(vec![
///     Field::new("auction", DataType::UInt64, false),
///     Field::new("price", DataType::UInt64, false),
///     Field::new("time", DataType::Timestamp(TimeUnit::Millisecond, None), false),
/// ]);
/// let bid = |auction, price, time| Bid { auction, price, time };
/// let p = Pipeline::new("hot auctions");
/// let hot = p
///     .read_from(items(vec![bid(1, 20, 0), bid(2, 5, 1), bid(1, 30, 900), bid(1, 15, 1000)]))
///     .into_columns(Arc::new(bids))
///     .filter(col("price").gt(10))
///     .with_timestamps("time", WatermarkPolicy::in_order())
///     .key_by(["auction"])
///     .window(Window::tumbling(Duration::from_secs(1)))
///     .aggregate("hot", [count().alias("bids"), max("price").alias("price")])
///     .rows::<Hot>()
///     .collect();
/// p.run().unwrap();
/// let row = |auction, bids, price| Hot { auction, bids, price: Some(price) };
/// assert_eq!(hot.take_sorted(), [row(1, 1, 15), row(1, 2, 30)]);
/// ```
#[must_use = "a stream does nothing until it is written to a sink"]
pub struct Columns<B, E> {
    stream: Stream<ColumnRecord, B, E>,
    schema: Result<SchemaRef>,
}

/// A source of [`ColumnBatch`](crate::ColumnBatch)es, with their schema.
pub struct ColumnSource<B> {
    source: Source<ColumnRecord, B>,
    schema: Result<SchemaRef>,
}

impl<B> ColumnSource<B> {
    /// Creates a source of batches with this schema.
    pub fn new(source: Source<ColumnRecord, B>, schema: SchemaRef) -> Self {
        ColumnSource {
            source,
            schema: Ok(schema),
        }
    }

    #[cfg(test)]
    pub(crate) fn into_source(self) -> Source<ColumnRecord, B> {
        self.source
    }

    /// Creates a source that fails its job when it starts.
    pub(crate) fn refused(name: String, error: Error) -> Self {
        ColumnSource {
            source: Source::new(name, failing(&error)),
            schema: Err(error),
        }
    }
}

impl<B: Boundedness> Columns<B, Untimed> {
    /// Adds a source to a pipeline, such as [`files::json_lines`](crate::files::json_lines).
    pub fn read_from(pipeline: &Pipeline, source: impl Into<ColumnSource<B>>) -> Self {
        let ColumnSource { source, schema } = source.into();
        Columns {
            stream: pipeline.read_from(source),
            schema,
        }
    }
}

/// A step bound to its input: the schema of its output, and its processors.
type BoundStep = (SchemaRef, Arc<dyn ProcessorSupplier>);

impl<B: Boundedness, E> Columns<B, E> {
    /// Creates a stream of records in columns from the batches of a custom step, which have this
    /// schema.
    pub fn from_stream(stream: Stream<ColumnRecord, B, E>, schema: SchemaRef) -> Self {
        Columns {
            stream,
            schema: Ok(schema),
        }
    }

    /// Returns the columns of the stream.
    ///
    /// # Errors
    /// The error of the first step that does not fit its input.
    pub fn schema(&self) -> Result<&SchemaRef> {
        self.schema.as_ref().map_err(Error::clone)
    }

    /// Adds a step.
    fn step(self, kind: &str, bind: impl FnOnce(&SchemaRef) -> Result<BoundStep>) -> Self {
        let bound = self.schema.and_then(|schema| bind(&schema));
        let (schema, make) = split(bound);
        Columns {
            stream: self.stream.extend_with(kind, make),
            schema,
        }
    }

    /// Emits the records for which the condition is true. Null counts as false.
    pub fn filter(self, condition: impl Into<Expr>) -> Self {
        let condition = condition.into();
        self.step("filter", |schema| {
            let bound = condition.bind_condition(schema)?;
            let make = supplier(move || Ok(ColumnFilterP::new(bound.clone())));
            Ok((Arc::clone(schema), make))
        })
    }

    /// Passes the records to processes of `command`, one per instance, in Arrow batches. Emits the
    /// records that the processes return, which have the columns of `schema`. See
    /// [`Stream::in_process`].
    pub fn in_process(self, command: InstanceCommand, schema: SchemaRef) -> Self {
        let of_results = Arc::clone(&schema);
        let make = move || ArrowFormat::new(Arc::clone(&of_results));
        let make: Arc<dyn ProcessorSupplier> = Arc::new(InstanceStep::stateless(command, make));
        self.step("in-process", |_| Ok((schema, make)))
    }

    /// Replaces the columns by these: names of columns, or expressions.
    pub fn select<A: Into<ColumnArgument>>(self, columns: impl IntoIterator<Item = A>) -> Self {
        let columns: Vec<Expr> = columns
            .into_iter()
            .map(|it| it.into().into_expr())
            .collect();
        self.step("select", |schema| select(&columns, schema))
    }

    /// Adds a column with the value of an expression.
    pub fn with_column(self, column: impl Into<Expr>) -> Self {
        let column = column.into();
        self.step("select", |schema| {
            let known = schema
                .fields()
                .iter()
                .map(|field| Expr::Column(field.name().clone()));
            select(&known.chain([column]).collect::<Vec<_>>(), schema)
        })
    }

    /// Assigns each record the event time of a column or expression. A record without a valid time
    /// becomes a dead letter.
    pub fn with_timestamps(
        self,
        time: impl Into<ColumnArgument>,
        policy: WatermarkPolicy,
    ) -> Columns<B, Timed> {
        let time = time.into().into_expr();
        let timed = self.step("timestamps", |schema| {
            ColumnStampP::new(&time, schema, policy)?;
            let of = Arc::clone(schema);
            let make = supplier(move || ColumnStampP::new(&time, &of, policy));
            Ok((Arc::clone(schema), make))
        });
        Columns {
            stream: timed.stream.with_source_time(),
            schema: timed.schema,
        }
    }

    /// Groups the records by these columns.
    pub fn key_by<S: AsRef<str>>(self, columns: impl IntoIterator<Item = S>) -> KeyedColumns<B, E> {
        let schema = self.schema.as_ref().map_err(Error::clone);
        let key = schema.and_then(|schema| KeyColumns::bind(schema, columns));
        KeyedColumns { columns: self, key }
    }

    /// Distributes the batches evenly over all cores. For expensive steps after a source with one
    /// instance. `name` is that of the step.
    pub fn rebalance(self, name: impl Into<String>) -> Self {
        let way: (_, Arc<dyn ChunkCodec>) = (Routing::RoundRobin, Arc::new(ColumnCodec));
        let make = supplier(|| Ok(ForwardP));
        Columns {
            stream: self.stream.exchange_with(name, way, make),
            schema: self.schema,
        }
    }

    /// Copies the stream: both streams have all records. The copies share their columns in memory.
    ///
    /// Both streams advance together. If one of them is the table of a hash join with the other,
    /// each waits for the other one: read the source twice instead.
    pub fn tee(self) -> (Self, Self) {
        let first = self.step("tee", |schema| {
            Ok((Arc::clone(schema), supplier(|| Ok(ColumnTeeP))))
        });
        let second = Columns {
            stream: first.stream.second_output(),
            schema: first.schema.clone(),
        };
        (first, second)
    }

    /// Converts the records to rows; see [`RowsOfColumnsP`].
    pub fn rows<T: DeserializeOwned + Send + 'static>(self) -> Stream<T, B, E> {
        let make = supplier(|| Ok(RowsOfColumnsP::<T>::default()));
        let (_, make) = split(self.schema.map(|schema| (schema, make)));
        self.stream.extend_with("rows", make)
    }

    /// Writes the records to a sink, such as
    /// [`files::write_json_lines`](crate::files::write_json_lines), and ends this branch.
    pub fn write_to(self, sink: impl Into<ColumnSink>) {
        let sink = sink.into().bound(self.schema);
        self.stream.write_with(sink, Arc::new(ColumnCodec));
    }

    /// Returns the stream of batches, for custom processors.
    pub fn into_stream(self) -> Stream<ColumnRecord, B, E> {
        self.stream
    }
}

/// The conversion of rows to columns.
pub trait IntoColumns<B, E> {
    /// Converts the records to columns; each column is the field of its name.
    fn into_columns(self, schema: SchemaRef) -> Columns<B, E>;
}

impl<T: Serialize + Send + 'static, B: Boundedness, E> IntoColumns<B, E> for Stream<T, B, E> {
    fn into_columns(self, schema: SchemaRef) -> Columns<B, E> {
        let of = Arc::clone(&schema);
        let make = supplier(move || Ok(ColumnsOfRowsP::<T>::new(Arc::clone(&of))));
        Columns {
            stream: self.extend_with("columns", make),
            schema: Ok(schema),
        }
    }
}

fn select(columns: &[Expr], schema: &Schema) -> Result<BoundStep> {
    let bound = columns.iter().map(|column| column.bind(schema));
    let bound = bound.collect::<Result<Vec<BoundExpr>>>()?;
    let schema = ProjectP::schema_of(&bound)?;
    Ok((schema, supplier(move || ProjectP::new(bound.clone()))))
}

/// Returns a supplier of processors that may be refused.
fn supplier<P: Processor + 'static>(
    make: impl Fn() -> Result<P> + Send + Sync + 'static,
) -> Arc<dyn ProcessorSupplier> {
    Arc::new(move |_: Instance| -> Result<Box<dyn Processor>> { Ok(Box::new(make()?)) })
}

/// Returns a supplier that fails the job when it starts.
pub(crate) fn failing(error: &Error) -> Arc<dyn ProcessorSupplier> {
    let error = error.clone();
    Arc::new(move |_: Instance| -> Result<Box<dyn Processor>> { Err(error.clone()) })
}

/// Returns the schema and the supplier of a step, which fails if the step is not bound.
fn split(bound: Result<BoundStep>) -> (Result<SchemaRef>, Arc<dyn ProcessorSupplier>) {
    match bound {
        Ok((schema, make)) => (Ok(schema), make),
        Err(error) => {
            let make = failing(&error);
            (Err(error), make)
        }
    }
}
