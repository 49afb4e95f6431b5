//! Tables of PostgreSQL.

use std::num::NonZeroU32;

use ardea_columns::Expr;
use ardea_connectors::postgres::{self, OnReplaced};
use ardea_core::{Error, ErrorCode, Result};
use ardea_pipeline::Pipeline;
use arrow_schema::DataType;
use serde_json::{Map, Value};

use super::sink_message::{MessageParts, MessageValue, SinkMessage, messages};
use super::source_message::{SourceMessage, read_messages};
use crate::lowering::{Branch, EventTime, SourceTable};
use crate::plan::{MessageFormat, MessagePlan, PostgresSinkPlan, PostgresSourcePlan};

/// A row of a table, by the names of columns.
type Row = Map<String, Value>;

/// Reads a table or a query.
pub(super) fn read(pipeline: &Pipeline, plan: PostgresSourcePlan) -> Result<SourceTable> {
    let mut source = match (plan.table, plan.query) {
        (Some(table), _) => postgres::read::<Row>(plan.url, table, plan.key),
        (None, query) => postgres::query::<Row>(plan.url, query.unwrap_or_default(), plan.key),
    }
    .on_lost_position(plan.on_lost_position.into())
    .on_error(plan.on_error.into());
    if let Some(rows) = plan.page {
        source = source.page(positive("page", rows)?);
    }
    if let Some(keys) = plan.blocks_of {
        source = source.blocks_of(positive("blocks_of", keys)?);
    }
    if let Some(parallelism) = plan.parallelism {
        source = source.parallelism(parallelism);
    }
    if let Some(file) = plan.authority {
        source = source.authority(file);
    }
    let messages = MessagePlan {
        format: MessageFormat::Json(plan.fields),
        metadata: Vec::new(),
        on_error: plan.on_error,
    };
    let rows = pipeline.read_from(source).map(|row| SourceMessage {
        // A row is text already, which always can be written.
        value: serde_json::to_vec(&row).ok(),
        metadata: Vec::new(),
        origin: None,
    });
    read_messages(rows, &messages, (EventTime::Absent, true))
}

fn positive(option: &str, value: u32) -> Result<NonZeroU32> {
    NonZeroU32::new(value).ok_or_else(|| {
        let what = format!("{option} of a PostgreSQL source is zero");
        Error::new(ErrorCode::InvalidJob, what).hint("give a positive number")
    })
}

/// Writes to a table.
pub(super) fn write(input: Branch, plan: PostgresSinkPlan, has_lines: bool) -> Result<()> {
    let schema = input.schema.clone();
    let columns = plan.columns.unwrap_or_else(|| {
        let fields = schema.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    });
    let cells: Vec<Expr> = columns.iter().cloned().map(Expr::Column).collect();
    let is_binary = |name: &String| {
        let kind = schema
            .field_with_name(name)
            .map(|it| it.data_type().clone());
        matches!(
            kind,
            Ok(DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
        )
    };
    let are_binary: Vec<bool> = columns.iter().map(is_binary).collect();
    let parts = MessageParts {
        value: MessageValue::Absent,
        cells,
        required_cells: 0,
        policy: plan.on_error.into(),
    };
    let stream = messages(input, parts, has_lines)?;
    let fill = move |message: &SinkMessage, row: &mut postgres::Row<'_>| {
        for (cell, is_binary) in message.cells.iter().zip(&are_binary) {
            match cell {
                None => row.null(),
                Some(bytes) if *is_binary => row.set(bytes),
                Some(text) => row.set(&*String::from_utf8_lossy(text)),
            };
        }
    };
    let mut sink =
        postgres::write(plan.url, plan.table, columns, fill).on_error(plan.on_error.into());
    if let Some(keys) = plan.upsert {
        sink = sink.upsert(keys);
    }
    if plan.exactly_once {
        sink = sink.exactly_once();
    }
    if plan.continues_if_replaced {
        sink = sink.on_replaced(OnReplaced::Continue);
    }
    if let Some(parallelism) = plan.parallelism {
        sink = sink.parallelism(parallelism);
    }
    if let Some(file) = plan.authority {
        sink = sink.authority(file);
    }
    stream.write_to(sink.build());
    Ok(())
}
