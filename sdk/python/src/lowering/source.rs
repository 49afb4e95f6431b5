//! Sources of plans.

use std::path::Path;
use std::sync::Arc;

use ardea_columns::files::{self, ColumnFiles};
use ardea_columns::{ColumnRecord, ColumnSource, Columns, ParquetFiles};
use ardea_connectors::collections;
use ardea_core::{Bounded, Error, ErrorCode, Result, supplier};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::batch_rows::UnpackP;
use super::{EventTime, Lowering, SourceTable};
use crate::connectors;
use crate::plan::{FieldList, FileFormat, FileSourcePlan, SourcePlan};
use crate::row_reader::OBJECT_COLUMN;
use crate::row_writer::RowWriter;

impl Lowering<'_> {
    /// Reads from a source.
    pub(super) fn read(&self, source: SourcePlan) -> Result<SourceTable> {
        let pipeline = &self.compiled.pipeline;
        let table = match source {
            SourcePlan::Files(plan) => {
                let table = Columns::read_from(pipeline, files_of(plan));
                let schema = Arc::clone(table.schema()?);
                let stream = table.into_stream().with_source_time();
                Columns::from_stream(stream, schema)
            }
            SourcePlan::Items {
                fields,
                values,
                batch_rows,
                repeat,
            } => {
                let values = self.object(values)?;
                let batches = batches_of(&fields, values.bind(self.py), batch_rows.max(1))?;
                let all = std::iter::repeat_n(batches, repeat).flatten();
                let stream = pipeline
                    .read_from(collections::items(all))
                    .extend_with::<ColumnRecord>("columns", supplier(|| UnpackP))
                    .with_source_time();
                Columns::from_stream(stream, fields.schema())
            }
            system => return connectors::read(pipeline, system),
        };
        Ok(SourceTable {
            table,
            time: EventTime::Absent,
            is_bounded: true,
        })
    }
}

fn files_of(plan: FileSourcePlan) -> ColumnSource<Bounded> {
    let path = Path::new(&plan.path);
    match plan.format {
        FileFormat::Json => text_files(files::json_lines(path), plan).into(),
        FileFormat::Csv => text_files(files::csv(path), plan).into(),
        FileFormat::Parquet => parquet_files(files::parquet(path), plan).into(),
    }
}

/// Applies the options of a plan to files.
macro_rules! with_options {
    ($source:ident, $plan:ident) => {
        $source = $source.on_error($plan.on_error.into());
        if let Some(columns) = $plan.columns {
            $source = $source.columns(columns);
        }
        if let Some(fields) = $plan.fields {
            $source = $source.schema(fields.schema());
        }
        if let Some(suffix) = $plan.suffix {
            $source = $source.suffix(suffix);
        }
        if $plan.in_order {
            $source = $source.in_order();
        }
    };
}

fn text_files(mut source: ColumnFiles, plan: FileSourcePlan) -> ColumnFiles {
    if let Some(delimiter) = plan.delimiter {
        source = source.delimiter(delimiter);
    }
    with_options!(source, plan);
    source
}

fn parquet_files(mut source: ParquetFiles, plan: FileSourcePlan) -> ParquetFiles {
    with_options!(source, plan);
    source
}

/// Returns the values of a collection as batches of up to `batch_rows` records.
fn batches_of(
    fields: &FieldList,
    values: &Bound<'_, PyAny>,
    batch_rows: usize,
) -> Result<Vec<RecordBatch>> {
    let invalid = |what: String| {
        Error::new(ErrorCode::InvalidJob, what).hint("give the types with items(…, schema={…})")
    };
    let schema: SchemaRef = fields.schema();
    let has_objects = schema.fields().len() == 1 && schema.field(0).name() == OBJECT_COLUMN;
    let values = values
        .cast::<PyList>()
        .map_err(|error| invalid(error.to_string()))?;
    let mut batches = Vec::new();
    let mut index = 0;
    while index < values.len() {
        let count = batch_rows.min(values.len() - index);
        let mut writer = RowWriter::new(values.py(), &schema, count)
            .map_err(|error| invalid(error.to_string()))?;
        for _ in 0..count {
            let value = values.get_item(index);
            let value = value.map_err(|error| invalid(error.to_string()))?;
            let written = match has_objects {
                true => writer.append_value(&value),
                false => writer.append(&value),
            };
            written.map_err(|why| invalid(format!("item {index} does not fit: {why}")))?;
            index += 1;
        }
        batches.push(writer.finish()?);
    }
    Ok(batches)
}
