//! Streams of records in columns, grouped by a key.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Boundedness, ChunkCodec, Ends, Error, Processor, ProcessorSupplier, Result, Routing, Timestamp,
};
use ardea_instance::{InstanceCommand, InstanceStep};
use ardea_operators::{Firing, WindowResult};
use ardea_pipeline::{HasEventTime, Stream, Window};
use arrow_schema::{Schema, SchemaRef};

use super::bound_aggregates::{BoundAggregates, PartialRow, bind};
use super::windowed::WindowedColumns;
use super::{BoundStep, Columns, failing, supplier};
use crate::arrow_format::ArrowFormat;
use crate::batch_codec::ColumnCodec;
use crate::key::{ColumnScatter, KeyColumns};
use crate::keyed::{ColumnDistinctP, ColumnRollingP};
use crate::window::{AccumulatorCombine, AggregateExpr};

/// A stream of records in columns, grouped by a key.
#[must_use = "a grouped stream does nothing until it is aggregated"]
pub struct KeyedColumns<B, E> {
    pub(super) columns: Columns<B, E>,
    pub(super) key: Result<KeyColumns>,
}

impl<B, E> KeyedColumns<B, E> {
    /// Returns the schema and the key.
    pub(super) fn bound(&self) -> Result<(&Schema, &KeyColumns)> {
        let schema = self.columns.schema.as_ref().map_err(Error::clone)?;
        Ok((schema, self.key.as_ref().map_err(Error::clone)?))
    }
}

impl<B: Boundedness, E> KeyedColumns<B, E> {
    /// Adds a custom step whose instances receive the batches of their keys, and emit batches of
    /// `schema`. Each key has the partition of the same key in Rust.
    pub fn custom<P: Processor + 'static>(
        self,
        name: impl Into<String>,
        schema: SchemaRef,
        make: impl Fn(&KeyColumns) -> Result<P> + Send + Sync + 'static,
    ) -> Columns<B, E> {
        self.step(name, |key, _| {
            let key = key.clone();
            Ok((schema, supplier(move || make(&key))))
        })
    }

    /// Passes the records to processes of `command`, with all records of a key in one process.
    /// Emits the records that the processes return, which have the columns of `schema`. The
    /// processes may have state per key, which is part of checkpoints. See
    /// [`Columns::in_process`].
    pub fn in_process(
        self,
        name: impl Into<String>,
        command: InstanceCommand,
        schema: SchemaRef,
    ) -> Columns<B, E> {
        self.step(name, |key, _| {
            let (key, of_results) = (key.clone(), Arc::clone(&schema));
            let make = move || ArrowFormat::keyed(Arc::clone(&of_results), key.clone());
            let make: Arc<dyn ProcessorSupplier> = Arc::new(InstanceStep::keyed(command, make));
            Ok((schema, make))
        })
    }

    /// Emits each record with its columns and the aggregates over the records of its key up to it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ardea_columns::{IntoColumns, sum};
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    /// use arrow_schema::{DataType, Field, Schema};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Clone, Serialize)]
    /// struct Booking { name: String, amount: i64 }
    /// #[derive(Deserialize, Debug, PartialEq, Eq, PartialOrd, Ord)]
    /// struct Balance { name: String, amount: i64, balance: Option<i64> }
    ///
    /// let schema = Schema::new(vec![
    ///     Field::new("name", DataType::Utf8, false),
    ///     Field::new("amount", DataType::Int64, false),
    /// ]);
    /// let booking = |name: &str, amount| Booking { name: name.into(), amount };
    /// let p = Pipeline::new("balances");
    /// let balances = p
    ///     .read_from(items(vec![booking("ann", 5), booking("bob", 1), booking("ann", -2)]))
    ///     .into_columns(Arc::new(schema))
    ///     .key_by(["name"])
    ///     .rolling("balance", [sum("amount").alias("balance")])
    ///     .rows::<Balance>()
    ///     .collect();
    /// p.run().unwrap();
    /// let row = |name: &str, amount, balance| Balance { name: name.into(), amount, balance: Some(balance) };
    /// assert_eq!(balances.take_sorted(), [row("ann", -2, 3), row("ann", 5, 5), row("bob", 1, 1)]);
    /// ```
    pub fn rolling(
        self,
        name: impl Into<String>,
        aggregates: impl IntoIterator<Item = AggregateExpr>,
    ) -> Columns<B, E> {
        self.rolling_step(name, aggregates.into_iter().collect(), None)
    }

    /// Works like [`rolling`](Self::rolling), but resets a key that has had no record for longer
    /// than `ttl` of event time.
    pub fn rolling_with_ttl(
        self,
        name: impl Into<String>,
        ttl: Duration,
        aggregates: impl IntoIterator<Item = AggregateExpr>,
    ) -> Columns<B, E>
    where
        E: HasEventTime,
    {
        self.rolling_step(name, aggregates.into_iter().collect(), Some(ttl))
    }

    /// Emits the first record of each key. All keys are retained; on an unbounded stream, use
    /// [`distinct_within`](Self::distinct_within).
    pub fn distinct(self, name: impl Into<String>) -> Columns<B, E> {
        self.step(name, |key, schema| {
            let key = key.clone();
            let make = supplier(move || Ok(ColumnDistinctP::new(key.clone())));
            Ok((Arc::clone(schema), make))
        })
    }

    /// Emits the records of a key that are at least `span` of event time after the last emitted
    /// one. A key is removed when `span` has passed since then.
    pub fn distinct_within(self, name: impl Into<String>, span: Duration) -> Columns<B, E> {
        self.step(name, |key, schema| {
            let key = key.clone();
            let make = supplier(move || Ok(ColumnDistinctP::new(key.clone()).within(span)));
            Ok((Arc::clone(schema), make))
        })
    }

    fn rolling_step(
        self,
        name: impl Into<String>,
        aggregates: Vec<AggregateExpr>,
        ttl: Option<Duration>,
    ) -> Columns<B, E> {
        self.step(name, |key, schema| {
            let (key, input) = (key.clone(), Arc::clone(schema));
            let bound = aggregates.iter().map(|it| it.bind(schema));
            let aggregates = bound.collect::<Result<Vec<_>>>()?;
            let schema = ColumnRollingP::schema_of(schema, &aggregates)?;
            let make = supplier(move || {
                let step = ColumnRollingP::new(&input, key.clone(), aggregates.clone())?;
                Ok(match ttl {
                    Some(ttl) => step.ttl(ttl),
                    None => step,
                })
            });
            Ok((schema, make))
        })
    }

    /// Adds a step on the records of each key, bound to the key and to the schema.
    fn step(
        self,
        name: impl Into<String>,
        bind: impl FnOnce(&KeyColumns, &SchemaRef) -> Result<BoundStep>,
    ) -> Columns<B, E> {
        let (stream, schema) = self.exchange(name, bind);
        Columns {
            stream,
            schema,
            filters: None,
        }
    }

    /// Works like [`step`](Self::step) for a step that emits records in another layout.
    pub(super) fn exchange<U, S>(
        self,
        name: impl Into<String>,
        bind: impl FnOnce(&KeyColumns, &SchemaRef) -> Result<(S, Arc<dyn ProcessorSupplier>)>,
    ) -> (Stream<U, B, E>, Result<S>) {
        let codec: Arc<dyn ChunkCodec> = Arc::new(ColumnCodec);
        let bound = self.columns.schema.and_then(|schema| {
            let key = self.key?;
            let (bound, make) = bind(&key, &schema)?;
            let by_key = Routing::Keyed(Arc::new(ColumnScatter::new(key)));
            Ok((bound, by_key, make))
        });
        let (bound, routing, make) = match bound {
            Ok((bound, routing, make)) => (Ok(bound), routing, make),
            Err(error) => {
                let make = failing(&error);
                (Err(error), Routing::AllToOne, make)
            }
        };
        let stream = self.columns.stream;
        (stream.exchange_with(name, (routing, codec), make), bound)
    }
}

impl<B: Ends, E> KeyedColumns<B, E> {
    /// Aggregates all records of each key at the end of a bounded stream: one record with the key
    /// and the aggregates. Without records there is no result. For unbounded streams, use windows.
    pub fn aggregate(
        self,
        name: impl Into<String>,
        aggregates: impl IntoIterator<Item = AggregateExpr>,
    ) -> Columns<B, E> {
        let aggregates: Vec<_> = aggregates.into_iter().collect();
        let Columns { stream, schema, .. } = self.columns;
        let bound = schema.and_then(|schema| bind(self.key?, &schema, None, &aggregates));
        let (bound, schema) = BoundAggregates::or_failing(bound);
        let by_key = stream
            .extend_with::<PartialRow>("partial", bound.first)
            .key_by(|partial| partial.key.clone());
        let whole = |(key, value)| WindowResult {
            start: Timestamp::MIN,
            end: Timestamp::MAX,
            key,
            value,
            firing: Firing::OnTime,
        };
        let results = match bound.deducts {
            true => by_key.aggregate(name, AccumulatorCombine::<true>::new(&bound.aggregates)),
            false => by_key.aggregate(name, AccumulatorCombine::<false>::new(&bound.aggregates)),
        };
        Columns {
            stream: results.map(whole).extend_with("results", bound.results),
            schema,
            filters: None,
        }
    }
}

impl<B: Boundedness, E: HasEventTime> KeyedColumns<B, E> {
    /// Assigns the records of each key to event-time windows.
    pub fn window(self, window: Window) -> WindowedColumns<B, E> {
        WindowedColumns::new(self, window)
    }
}
