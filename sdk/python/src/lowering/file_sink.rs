//! Files as sinks of plans.

use std::time::Duration;

use ardea_columns::{ColumnBatch, CsvEncoder, ParquetEncoder, files as column_files};
use ardea_connectors::files::{self, FileSink};
use ardea_core::{
    Chunk, Error, ErrorCode, Inbox, Ordinal, Outbox, Processor, Result, Rows, supplier,
};
use arrow_array::cast::AsArray;

use super::Branch;
use crate::plan::{FileFormat, FileSinkPlan};

/// Writes a stream to files. With `has_lines`, the records are lines of JSON in their only column.
pub(super) fn write_files(input: Branch, plan: FileSinkPlan, has_lines: bool) -> Result<()> {
    let (table, path) = (input.table, &plan.path);
    match plan.format {
        FileFormat::Json if has_lines => {
            let stream = table.into_stream();
            let lines = stream.extend_with::<String>("lines", supplier(|| LinesP));
            lines.write_to(with_rotation(files::write_lines(path), &plan).build());
        }
        FileFormat::Csv | FileFormat::Parquet if has_lines => {
            let what = "the records are objects, and this format is written from columns";
            return Err(Error::new(ErrorCode::InvalidJob, what).hint(
                "give the types to the step that makes them: map(f, schema={…}) or columns({…})",
            ));
        }
        FileFormat::Json => {
            table.write_to(with_rotation(column_files::write_json_lines(path), &plan));
        }
        FileFormat::Csv => {
            let format = match plan.delimiter {
                Some(delimiter) => CsvEncoder::new().delimiter(delimiter),
                None => CsvEncoder::new(),
            };
            table.write_to(with_rotation(column_files::write(path, format), &plan));
        }
        FileFormat::Parquet => {
            let sink = column_files::write(path, ParquetEncoder::new());
            table.write_to(with_rotation(sink, &plan));
        }
    }
    Ok(())
}

fn with_rotation<T, E>(mut sink: FileSink<T, E>, plan: &FileSinkPlan) -> FileSink<T, E> {
    if let Some(bytes) = plan.rotate_bytes {
        sink = sink.rotate_bytes(bytes);
    }
    if let Some(micros) = plan.rotate_micros {
        sink = sink.rotate_after(Duration::from_micros(micros));
    }
    match plan.rotates_with_epochs {
        true => sink.rotate_with_epochs(),
        false => sink,
    }
}

/// Converts records of a text to lines.
struct LinesP;

impl Processor for LinesP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let (records, times) = inbox.batch::<ColumnBatch>()?.take().into_parts();
        let lines = records.column(0).as_string::<i32>().iter().zip(times);
        let rows: Rows<String> = lines
            .filter_map(|(line, time)| Some((line?.to_string(), time)))
            .collect();
        if !rows.is_empty() {
            outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(rows))?;
        }
        Ok(())
    }
}
