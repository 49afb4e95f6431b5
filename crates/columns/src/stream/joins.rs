//! Joins of streams of records in columns.

use std::sync::Arc;

use ardea_aggregate::{collect_list, mapping};
use ardea_core::{Boundedness, Ends, Error, Join, ProcessorSupplier, Result};
use ardea_pipeline::{HasEventTime, JoinInterval, Stream, Timed};
use arrow_schema::SchemaRef;

use super::{Columns, KeyedColumns, WindowedColumns, failing, supplier};
use crate::join::{
    ColumnHashJoinP, JoinedColumnsP, JoinedLayout, JoinedRecord, KeyedRecordsP, WindowPairsP,
};
use crate::key::{GroupKey, KeyColumns};
use crate::record::{EncodedRecord, KeyedRecord};

impl<B: Boundedness, E> Columns<B, E> {
    /// Joins with a table: emits one record for each record and each row of the table with an equal
    /// key, with the columns of the record and those of the row that are no key columns. Records
    /// without a match are dropped.
    ///
    /// The table is read to its end first, and every instance receives the whole table. The stream
    /// is not repartitioned. Null keys are equal: filter them first where they should not match.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ardea_columns::IntoColumns;
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    /// use arrow_schema::{DataType, Field, Schema};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Clone, Serialize)]
    /// struct Flight { carrier: String, delay: i64 }
    /// #[derive(Clone, Serialize)]
    /// struct Carrier { code: String, name: String }
    /// #[derive(Deserialize, Debug, PartialEq)]
    /// struct Named { name: String, delay: i64 }
    ///
    /// let schema = |text: &[&str], number: Option<&str>| {
    ///     let text = text.iter().map(|name| Field::new(*name, DataType::Utf8, false));
    ///     let number = number.map(|name| Field::new(name, DataType::Int64, false));
    ///     Arc::new(Schema::new(text.chain(number).collect::<Vec<_>>()))
    /// };
    /// let p = Pipeline::new("names");
    /// let flight = |carrier: &str, delay| Flight { carrier: carrier.into(), delay };
    /// let flights = p.read_from(items(vec![flight("UA", 15), flight("XX", 16)]));
    /// let carrier = |code: &str, name: &str| Carrier { code: code.into(), name: name.into() };
    /// let carriers = p.read_from(items(vec![carrier("UA", "United"), carrier("B6", "JetBlue")]));
    /// let named = flights
    ///     .into_columns(schema(&["carrier"], Some("delay")))
    ///     .hash_join("carriers", ["carrier"], carriers.into_columns(schema(&["code", "name"], None)), ["code"])
    ///     .rows::<Named>()
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(named.take(), [Named { name: "United".into(), delay: 15 }]);
    /// ```
    ///
    /// # Panics
    /// If the table belongs to another pipeline.
    pub fn hash_join<B2: Ends, E2, S: AsRef<str>, S2: AsRef<str>>(
        self,
        name: impl Into<String>,
        key: impl IntoIterator<Item = S>,
        table: Columns<B2, E2>,
        table_key: impl IntoIterator<Item = S2>,
    ) -> Columns<B, E> {
        self.hash_join_with(name, key, table.key_by(table_key), false)
    }

    /// Works like [`hash_join`](Self::hash_join), but a record without a match is emitted with null
    /// in the columns of the table.
    ///
    /// # Panics
    /// If the table belongs to another pipeline.
    pub fn hash_join_outer<B2: Ends, E2, S: AsRef<str>, S2: AsRef<str>>(
        self,
        name: impl Into<String>,
        key: impl IntoIterator<Item = S>,
        table: Columns<B2, E2>,
        table_key: impl IntoIterator<Item = S2>,
    ) -> Columns<B, E> {
        self.hash_join_with(name, key, table.key_by(table_key), true)
    }

    fn hash_join_with<B2: Ends, E2, S: AsRef<str>>(
        self,
        name: impl Into<String>,
        key: impl IntoIterator<Item = S>,
        table: KeyedColumns<B2, E2>,
        is_outer: bool,
    ) -> Columns<B, E> {
        let (stream, table) = (self.key_by(key), table);
        let bound = BoundJoin::bind(&stream, &table, is_outer);
        let records = bound.as_ref().map(BoundJoin::right_records);
        let make = bound.as_ref().map(|bound| {
            let bound = bound.clone();
            supplier(move || {
                let (key, layout) = (bound.left_key.clone(), bound.layout.clone());
                Ok(ColumnHashJoinP::new(key, layout, is_outer))
            })
        });
        let table = records_of(table, records);
        let make = make.unwrap_or_else(failing);
        Columns {
            stream: stream.columns.stream.extend_with_table(name, table, make),
            schema: bound.map(|bound| Arc::clone(bound.layout.schema())),
            filters: None,
        }
    }
}

/// The bound sides of a join.
#[derive(Clone)]
struct BoundJoin {
    left_key: KeyColumns,
    right_key: KeyColumns,
    layout: JoinedLayout,
}

impl BoundJoin {
    fn bind<B, E, B2, E2>(
        left: &KeyedColumns<B, E>,
        right: &KeyedColumns<B2, E2>,
        is_outer: bool,
    ) -> Result<Self> {
        let (left_schema, left_key) = left.bound()?;
        let (right_schema, right_key) = right.bound()?;
        let (left_key, right_key) = left_key.clone().aligned(right_key.clone())?;
        let layout = JoinedLayout::new(left_schema, (right_schema, &right_key), is_outer)?;
        Ok(BoundJoin {
            left_key,
            right_key,
            layout,
        })
    }

    /// Returns the step that encodes left records.
    fn left_records(&self) -> Arc<dyn ProcessorSupplier> {
        let (key, layout) = (self.left_key.clone(), self.layout.left().clone());
        supplier(move || Ok(KeyedRecordsP::new(key.clone(), layout.clone())))
    }

    /// Returns the step that encodes right records.
    fn right_records(&self) -> Arc<dyn ProcessorSupplier> {
        let (key, layout) = (self.right_key.clone(), self.layout.right().clone());
        supplier(move || Ok(KeyedRecordsP::new(key.clone(), layout.clone())))
    }
}

/// Adds the step that encodes the records of one side.
fn records_of<B: Boundedness, E>(
    side: KeyedColumns<B, E>,
    make: Result<Arc<dyn ProcessorSupplier>, &Error>,
) -> Stream<KeyedRecord, B, E> {
    let make = make.unwrap_or_else(failing);
    side.columns.stream.extend_with("records", make)
}

impl<B: Boundedness, E: HasEventTime> KeyedColumns<B, E> {
    /// Joins two streams where keys are equal and event times are within an interval: emits one
    /// record for every such pair when its second record arrives, with the later of their event
    /// times. It has the columns of this stream's record, and those of the other one that are no
    /// key columns.
    ///
    /// A record is held until the watermark rules out further matches. A record behind the
    /// watermark is late: it is counted and dropped. Null keys are equal: filter them first where
    /// they should not match.
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    pub fn interval_join<B2: Boundedness>(
        self,
        name: impl Into<String>,
        other: KeyedColumns<B2, E>,
        interval: JoinInterval,
    ) -> Columns<<B as Join<B2>>::Out, E>
    where
        B: Join<B2>,
    {
        let bound = BoundJoin::bind(&self, &other, false);
        let (left, right) = encoded_sides(self, other, &bound);
        let pairs = left.key_by(key_of).interval_join(
            name,
            right.key_by(key_of),
            interval,
            |left: &KeyedRecord, right: &KeyedRecord| JoinedRecord {
                left: left.record.clone(),
                right: Some(right.record.clone()),
            },
        );
        pairs_in_columns(pairs, bound)
    }

    /// Works like [`interval_join`](Self::interval_join), but emits an unmatched record of this
    /// stream when no match can arrive any more, with null in the columns of the other stream.
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    pub fn interval_join_outer<B2: Boundedness>(
        self,
        name: impl Into<String>,
        other: KeyedColumns<B2, E>,
        interval: JoinInterval,
    ) -> Columns<<B as Join<B2>>::Out, E>
    where
        B: Join<B2>,
    {
        let bound = BoundJoin::bind(&self, &other, true);
        let (left, right) = encoded_sides(self, other, &bound);
        let pairs = left.key_by(key_of).interval_join_outer(
            name,
            right.key_by(key_of),
            interval,
            |left: &KeyedRecord, right: Option<&KeyedRecord>| JoinedRecord {
                left: left.record.clone(),
                right: right.map(|right| right.record.clone()),
            },
        );
        pairs_in_columns(pairs, bound)
    }
}

impl<B: Boundedness, E: HasEventTime> WindowedColumns<B, E> {
    /// Joins both streams: emits one record for every pair of records with equal keys in the same
    /// window, with the event time of the window. It has the columns of this stream's record, and
    /// those of the other one that are no key columns.
    ///
    /// Late records are counted. Null keys are equal: filter them first where they should not
    /// match.
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    pub fn join<B2: Boundedness, E2: HasEventTime>(
        self,
        name: impl Into<String>,
        other: KeyedColumns<B2, E2>,
    ) -> Columns<<B as Join<B2>>::Out, Timed>
    where
        B: Join<B2>,
    {
        let (keyed, window) = self.into_parts();
        let bound = BoundJoin::bind(&keyed, &other, false);
        let (left, right) = encoded_sides(keyed, other, &bound);
        let records = || mapping(record_of, collect_list());
        let pairs = left
            .with_source_time()
            .key_by(key_of)
            .window(window)
            .co_group(
                name,
                right.with_source_time().key_by(key_of),
                records(),
                records(),
            );
        let make = bound.as_ref().map(|bound| {
            let layout = bound.layout.clone();
            supplier(move || Ok(WindowPairsP::new(layout.clone())))
        });
        Columns {
            stream: pairs.extend_with("pairs", make.unwrap_or_else(failing)),
            schema: bound.map(|bound| Arc::clone(bound.layout.schema())),
            filters: None,
        }
    }
}

fn key_of(record: &KeyedRecord) -> GroupKey {
    record.key.clone()
}

fn record_of(record: &KeyedRecord) -> EncodedRecord {
    record.record.clone()
}

/// Adds the steps that encode the records of both sides.
fn encoded_sides<B: Boundedness, E, B2: Boundedness, E2>(
    left: KeyedColumns<B, E>,
    right: KeyedColumns<B2, E2>,
    bound: &Result<BoundJoin>,
) -> (Stream<KeyedRecord, B, E>, Stream<KeyedRecord, B2, E2>) {
    let left = records_of(left, bound.as_ref().map(BoundJoin::left_records));
    let right = records_of(right, bound.as_ref().map(BoundJoin::right_records));
    (left, right)
}

/// Returns the pairs of an interval join to columns.
fn pairs_in_columns<B: Boundedness, E>(
    pairs: Stream<JoinedRecord, B, E>,
    bound: Result<BoundJoin>,
) -> Columns<B, E> {
    let make = bound.as_ref().map(|bound| {
        let layout = bound.layout.clone();
        supplier(move || Ok(JoinedColumnsP::new(layout.clone())))
    });
    let schema: Result<SchemaRef> = match &bound {
        Ok(bound) => Ok(Arc::clone(bound.layout.schema())),
        Err(error) => Err(error.clone()),
    };
    Columns {
        stream: pairs.extend_with("pairs", make.unwrap_or_else(failing)),
        schema,
        filters: None,
    }
}
