//! Files as sinks of plans.

use std::time::Duration;

use ardea_columns::{ColumnBatch, record_errors, write_json_lines};
use ardea_connectors::files::{self, FileSink};
use ardea_connectors::format::Encode;
use ardea_core::{
    Chunk, Error, ErrorCode, Inbox, InstanceContext, OnError, Ordinal, Outbox, Processor, Result,
    Rows, supplier,
};
use ardea_operators::RecordErrors;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_cast::display::{ArrayFormatter, FormatOptions};

use super::Branch;
use crate::plan::{FileFormat, FileSinkPlan};

/// Writes a stream to files. With `has_lines`, the records are lines of JSON in their only column.
pub(super) fn write_files(input: Branch, plan: FileSinkPlan, has_lines: bool) -> Result<()> {
    let format = match (plan.format, has_lines) {
        (FileFormat::Json, true) => LineFormat::Text,
        (FileFormat::Json, false) => LineFormat::Json,
        (FileFormat::Csv, _) => LineFormat::Csv,
    };
    if has_lines && format == LineFormat::Csv {
        let what = "the records are objects, and CSV is written from columns";
        return Err(Error::new(ErrorCode::InvalidJob, what).hint(
            "give the types to the step that makes them: map(f, schema={…}) or columns({…})",
        ));
    }
    let make = supplier(move || LinesP::new(format));
    let lines = input
        .table
        .into_stream()
        .extend_with::<String>("lines", make);
    match plan.format {
        FileFormat::Json => {
            lines.write_to(with_rotation(files::write_lines(&plan.path), &plan).build())
        }
        FileFormat::Csv => {
            let names = input.schema.fields().iter();
            let names: Vec<_> = names.map(|field| field.name().as_bytes()).collect();
            let header = CsvLines {
                header: csv_line(&names).into(),
                is_begun: false,
            };
            let sink = with_rotation(files::write(&plan.path, header), &plan);
            lines.write_to(sink.build());
        }
    }
    Ok(())
}

fn with_rotation<E: Encode<String>>(
    mut sink: FileSink<String, E>,
    plan: &FileSinkPlan,
) -> FileSink<String, E> {
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

/// Lines of CSV below a header.
#[derive(Clone)]
struct CsvLines {
    header: std::sync::Arc<str>,
    is_begun: bool,
}

impl Encode<String> for CsvLines {
    fn begin(&mut self) {
        self.is_begun = false;
    }

    fn resume(&mut self) {
        self.is_begun = true;
    }

    fn encode(&mut self, record: &String, out: &mut Vec<u8>) -> Result<(), String> {
        if !self.is_begun {
            out.extend_from_slice(self.header.as_bytes());
            out.push(b'\n');
            self.is_begun = true;
        }
        out.extend_from_slice(record.as_bytes());
        out.push(b'\n');
        Ok(())
    }
}

/// The format of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineFormat {
    /// The text of the only column.
    Text,
    Json,
    Csv,
}

/// Converts records to lines.
struct LinesP {
    format: LineFormat,
    errors: RecordErrors<RecordBatch>,
}

impl LinesP {
    fn new(format: LineFormat) -> Self {
        LinesP {
            format,
            errors: record_errors(OnError::DeadLetter),
        }
    }

    /// Returns the line of each record; `None` for a record that the format cannot represent.
    fn lines(&self, records: &RecordBatch, input: Ordinal, at: u64) -> Result<Vec<Option<String>>> {
        match self.format {
            LineFormat::Csv => return csv_lines(records),
            LineFormat::Text => {
                let lines = records.column(0).as_string::<i32>().iter();
                return Ok(lines.map(|line| line.map(str::to_string)).collect());
            }
            LineFormat::Json => {}
        }
        let mut text = Vec::new();
        let mut refused = Vec::new();
        write_json_lines(records, &mut text, |row, reason| {
            refused.push((row, reason))
        })?;
        let text = String::from_utf8_lossy(&text);
        let mut written = text.lines().map(str::to_string);
        let mut lines = Vec::with_capacity(records.num_rows());
        let mut refused = refused.into_iter().peekable();
        for row in 0..records.num_rows() {
            match refused.next_if(|(other, _)| *other == row) {
                None => lines.push(written.next()),
                Some((_, reason)) => {
                    let record = records.slice(row, 1);
                    self.errors
                        .handle(input, at + row as u64, &record, reason)?;
                    lines.push(None);
                }
            }
        }
        Ok(lines)
    }
}

impl Processor for LinesP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.errors.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let position = inbox.position();
        let (records, times) = inbox.batch::<ColumnBatch>()?.take().into_parts();
        let lines = self.lines(&records, input, position)?;
        let rows = lines.into_iter().zip(times);
        let rows: Rows<String> = rows
            .filter_map(|(line, time)| Some((line?, time)))
            .collect();
        if !rows.is_empty() {
            outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(rows))?;
        }
        Ok(())
    }
}

fn csv_lines(records: &RecordBatch) -> Result<Vec<Option<String>>> {
    let options = FormatOptions::new();
    let failed = |error| {
        Error::new(ErrorCode::Internal, "a batch could not be written as CSV").because(error)
    };
    let columns = records.columns().iter();
    let columns = columns.map(|values| ArrayFormatter::try_new(values, &options).map_err(failed));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let rows = (0..records.num_rows()).map(|row| {
        let fields = columns.iter().map(|values| {
            let text = values.value(row).try_to_string().map_err(failed)?;
            Ok(text.into_bytes())
        });
        Ok(Some(csv_line(&fields.collect::<Result<Vec<_>>>()?)))
    });
    rows.collect()
}

/// Returns fields as a line of CSV, without its newline.
fn csv_line<F: AsRef<[u8]>>(fields: &[F]) -> String {
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    // Writing to memory does not fail.
    let _ = writer.write_record(fields);
    let line = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&line)
        .trim_end_matches('\n')
        .to_string()
}
