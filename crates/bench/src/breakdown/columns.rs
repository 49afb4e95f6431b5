//! The job's steps over columns.

use std::sync::Arc;

use ardea_columns::arrow_schema::{DataType, Field, Schema};
use ardea_columns::{Columns, col, kafka, sum};
use ardea_connectors::kafka::KafkaSource;
use ardea_core::Bounded;
use ardea_pipeline::{Pipeline, Stream, Timed, Window};
use serde::Deserialize;

use super::work;

/// The sum of a campaign in a window.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct CampaignSum {
    pub(super) campaign: u32,
    pub(super) sum: Option<i64>,
}

/// Reads, filters and sums the events, as over rows.
pub(super) fn aggregate<T, F>(
    p: &Pipeline,
    messages: KafkaSource<T, F, Bounded>,
) -> Stream<CampaignSum, Bounded, Timed> {
    let fields = vec![
        Field::new("campaign", DataType::UInt32, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("amount", DataType::Int64, false),
    ];
    let schema = Arc::new(Schema::new(fields));
    Columns::read_from(p, kafka::json(messages, schema))
        .filter(col("kind").eq("view"))
        .with_source_time()
        .key_by(["campaign"])
        .window(Window::tumbling(work::WINDOW))
        .aggregate("sum", [sum("amount").alias("sum")])
        .select(["campaign", "sum"])
        .rows::<CampaignSum>()
}
