//! The queries that join events of different kinds, by columns.

use std::sync::Arc;
use std::time::Duration;

use ardea_columns::{IntoColumns, col};
use ardea_connectors::collections;
use ardea_core::{FileUse, Result};
use ardea_pipeline::{JoinInterval, Pipeline};
use arrow_schema::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};

use super::super::QueryRun;
use super::super::joins::{LocalItem, WithSide};
use super::{bids, events, of_kind, timed};
use crate::SIDE_KEYS;
use crate::catalogue::FIRST_CATEGORY;

pub(super) fn q3(run: &QueryRun, p: &Pipeline) {
    let fields = [
        "id",
        "name",
        "city",
        "state",
        "seller",
        "category",
        "date_time",
    ];
    let state = |state: &str| col("state").eq(state);
    let is_local = state("OR").or(state("ID")).or(state("CA"));
    let is_wanted = col("category").eq(FIRST_CATEGORY);
    let wanted = events(run, p, &fields).filter(is_local.or(is_wanted));
    let (persons, auctions) = timed(run, wanted).tee();
    let persons = of_kind(persons, "person", ["id", "name", "city", "state"]);
    let auctions = of_kind(auctions, "auction", ["id", "seller"])
        .select([col("seller"), col("id").alias("auction")]);
    let at_any_time = JoinInterval::between(Duration::MAX, Duration::MAX);
    let results = persons
        .key_by(["id"])
        .interval_join("sellers", auctions.key_by(["seller"]), at_any_time)
        .select(["name", "city", "state", "auction"]);
    run.write::<LocalItem, _>(results);
}

/// A row of the table of query 13.
#[derive(Clone, Serialize, Deserialize)]
struct SideRow {
    key: u64,
    value: String,
}

pub(super) fn q13(run: &QueryRun, p: &Pipeline) -> Result<()> {
    let (path, rows) = run.side()?;
    let rows = rows.into_iter().map(|(key, value)| SideRow { key, value });
    // Declares the table file as read, as over rows.
    let files = vec![FileUse::Reads(path.to_path_buf())];
    let table = collections::items(rows).using_files(move |_| files.clone());
    let schema = Schema::new(vec![
        Field::new("key", DataType::UInt64, false),
        Field::new("value", DataType::Utf8, false),
    ]);
    let table = p.read_from(table).into_columns(Arc::new(schema));
    let results = bids(run, p, &["auction", "bidder", "price", "date_time"])
        .with_column((col("auction") % SIDE_KEYS).alias("side_key"))
        .hash_join("side", ["side_key"], table, ["key"])
        .select(["auction", "bidder", "price", "date_time", "value"]);
    run.write::<WithSide, _>(results);
    Ok(())
}
