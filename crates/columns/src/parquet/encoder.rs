//! Parquet as the format of sinks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_connectors::files::{Compression as FileCompression, OutputContent};
use ardea_connectors::format::BatchEncode;
use ardea_core::{Error, ErrorCode, Result};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::footer::{moved, parts_of};
use crate::batch::ColumnBatch;
use crate::encode::{ColumnEncode, Refuse, other_batch};
use crate::error::arrow_error;

/// The default maximum number of records of a row group.
const ROW_GROUP_ROWS: usize = 128 << 10;

/// The maximum size of a row group, which is in memory until it is complete.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// The number of records between two checks of the size of a file that rotates by size.
const ROWS_PER_CHECK: usize = 1024;

/// The compression of the pages of a Parquet file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ParquetCompression {
    /// No compression.
    None,
    /// Snappy, which is the fastest to read.
    #[default]
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstd, which makes the smallest files.
    Zstd,
}

/// The format of Parquet files.
///
/// A row group has up to 131,072 records or 64 MiB, and is in memory until it is complete. Columns
/// of timestamps in seconds are written in milliseconds, since Parquet has no seconds.
///
/// In a job with state, each epoch ends a row group, and a part of the file: a Parquet file by
/// itself. A restored job continues after the last part of a committed epoch. The footer at the end
/// lists the row groups of all parts. So a file that spans many short epochs has many small row
/// groups: end files by age or size, and prefer long epochs.
///
/// ```
/// use ardea_columns::{ParquetCompression, ParquetEncoder, files};
///
/// let format = ParquetEncoder::new().compression(ParquetCompression::Zstd);
/// let sink = files::write("bids.parquet", format).rotate_bytes(256 << 20);
/// ```
#[derive(Default)]
pub struct ParquetEncoder {
    compression: ParquetCompression,
    row_group_rows: Option<usize>,
    /// The columns of the stream, and those of the files.
    input: Option<(SchemaRef, SchemaRef)>,
    /// The writer of the present part. The mutex is never locked: it lets threads share a format
    /// without a writer.
    part: Mutex<Option<ArrowWriter<Vec<u8>>>>,
    /// The size of the records that are in the writer.
    held_bytes: u64,
    /// The parts of the present output before the present one.
    before: CompleteParts,
}

/// The parts of an output that are complete.
#[derive(Default)]
struct CompleteParts {
    count: usize,
    bytes: u64,
    groups: Vec<RowGroupMetaData>,
    /// The file metadata of the last part.
    last: Option<FileMetaData>,
}

impl CompleteParts {
    fn add(&mut self, last: FileMetaData, groups: &[RowGroupMetaData]) -> Result<()> {
        let moved = moved(groups, self.bytes, self.groups.len());
        self.groups.extend(moved.map_err(parquet_error)?);
        self.count += 1;
        self.last = Some(last);
        Ok(())
    }
}

impl ParquetEncoder {
    /// Creates the format.
    pub fn new() -> Self {
        ParquetEncoder::default()
    }

    /// Sets the compression.
    pub fn compression(mut self, compression: ParquetCompression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets the maximum number of records of a row group, at least one. The instances of a source
    /// share the row groups of a file.
    pub fn row_group_rows(mut self, rows: usize) -> Self {
        self.row_group_rows = Some(rows.max(1));
        self
    }

    fn properties(&self) -> Result<WriterProperties> {
        let compression = match self.compression {
            ParquetCompression::None => Compression::UNCOMPRESSED,
            ParquetCompression::Snappy => Compression::SNAPPY,
            ParquetCompression::Lz4 => Compression::LZ4_RAW,
            ParquetCompression::Zstd => {
                Compression::ZSTD(ZstdLevel::try_new(1).map_err(parquet_error)?)
            }
        };
        let builder = WriterProperties::builder()
            .set_created_by(concat!("ardea version ", env!("CARGO_PKG_VERSION")).to_string())
            .set_compression(compression)
            .set_max_row_group_row_count(Some(self.row_group_rows.unwrap_or(ROW_GROUP_ROWS)))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            // Indexes of pages have offsets in the file, which are those of the part here.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true);
        Ok(builder.build())
    }

    fn schemas(&self) -> Result<&(SchemaRef, SchemaRef)> {
        let unbound = || Error::new(ErrorCode::Internal, "a format without columns");
        self.input.as_ref().ok_or_else(unbound)
    }

    /// Returns the place of the writer of the present part.
    fn slot(&mut self) -> &mut Option<ArrowWriter<Vec<u8>>> {
        self.part.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the writer of the present part, begun now if there is none.
    fn part(&mut self) -> Result<&mut ArrowWriter<Vec<u8>>> {
        let part = match self.slot().take() {
            Some(part) => part,
            None => {
                let (_, schema) = self.schemas()?;
                let options = ArrowWriterOptions::new()
                    .with_properties(self.properties()?)
                    .with_skip_arrow_metadata(true);
                let schema = Arc::clone(schema);
                let part = ArrowWriter::try_new_with_options(Vec::new(), schema, options);
                part.map_err(parquet_error)?
            }
        };
        Ok(self.slot().insert(part))
    }

    /// Ends the present part, if it has been begun.
    fn end_part(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(mut part) = self.slot().take() else {
            return Ok(());
        };
        self.held_bytes = 0;
        let metadata = part.finish().map_err(parquet_error)?;
        out.append(part.inner_mut());
        let file = metadata.file_metadata().clone();
        self.before.add(file, metadata.row_groups())?;
        self.before.bytes += part.bytes_written() as u64;
        Ok(())
    }

    /// Appends a footer of the row groups of all parts.
    fn write_footer(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let CompleteParts { groups, last, .. } = std::mem::take(&mut self.before);
        let Some(last) = last else { return Ok(()) };
        let metadata = ParquetMetaDataBuilder::new(last);
        let metadata = metadata.set_row_groups(groups).build();
        let writer = ParquetMetaDataWriter::new(out, &metadata);
        writer.finish().map_err(parquet_error)
    }
}

impl Clone for ParquetEncoder {
    /// Returns the settings, without an output.
    fn clone(&self) -> Self {
        ParquetEncoder {
            compression: self.compression,
            row_group_rows: self.row_group_rows,
            input: self.input.clone(),
            part: Mutex::default(),
            held_bytes: 0,
            before: CompleteParts::default(),
        }
    }
}

impl fmt::Debug for ParquetEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParquetEncoder({:?})", self.compression)
    }
}

impl ColumnEncode for ParquetEncoder {
    fn bind(mut self, schema: &SchemaRef, compression: FileCompression) -> Result<Self> {
        if compression != FileCompression::None {
            let what = "a Parquet file is not compressed as a whole";
            return Err(Error::new(ErrorCode::InvalidJob, what).hint(
                "leave out .gz or .zst; the pages are compressed: ParquetEncoder::compression",
            ));
        }
        if schema.fields().is_empty() {
            let what = "records without columns cannot be written as Parquet";
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("select(…) a column"));
        }
        self.input = Some((Arc::clone(schema), file_schema(schema)));
        self.part()?;
        self.begin();
        Ok(self)
    }
}

impl BatchEncode for ParquetEncoder {
    type Batch = ColumnBatch;

    const HAS_END: bool = true;

    fn begin(&mut self) {
        *self.slot() = None;
        self.held_bytes = 0;
        self.before = CompleteParts::default();
    }

    fn resume_from(&mut self, output: &mut OutputContent) -> Result<()> {
        let unreadable = |error| {
            let what = "what has been written so far cannot be read";
            Error::new(ErrorCode::ReadFailed, what).because(error)
        };
        let file = output.file().map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let parts = parts_of(file, length).map_err(unreadable)?;
        let (_, schema) = self.schemas()?;
        if let Some(part) = parts.last() {
            let written = part.metadata.file_metadata().schema();
            let expected = ArrowSchemaConverter::new().convert(schema);
            if written != expected.map_err(parquet_error)?.root_schema() {
                let what = "it has other columns than the job writes";
                return Err(Error::new(ErrorCode::WriteFailed, what).permanent());
            }
        }
        for part in parts {
            self.before.bytes = part.start;
            let file = part.metadata.file_metadata().clone();
            self.before.add(file, part.metadata.row_groups())?;
        }
        self.before.bytes = length;
        Ok(())
    }

    fn encode(
        &mut self,
        batch: &mut ColumnBatch,
        room: u64,
        out: &mut Vec<u8>,
        _: &mut Refuse<'_>,
    ) -> Result<()> {
        let size = |this: &Self, out: &Vec<u8>| out.len() as u64 + this.held_bytes;
        let before = size(self, out);
        let (input, schema) = self.schemas()?.clone();
        if batch.records().schema_ref().fields() != input.fields() {
            return Err(other_batch(&input));
        }
        while !batch.is_empty() && size(self, out).saturating_sub(before) < room {
            let rows = match room {
                u64::MAX => batch.len(),
                _ => ROWS_PER_CHECK,
            };
            let (records, _) = batch.take_front(rows).into_parts();
            let records = converted(&records, &schema)?;
            let part = self.part()?;
            part.write(&records).map_err(parquet_error)?;
            part.sync().map_err(|error| parquet_error(error.into()))?;
            out.append(part.inner_mut());
            self.held_bytes = part.in_progress_size() as u64;
        }
        Ok(())
    }

    fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    fn seal(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.end_part(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if self.before.count == 0 {
            self.part()?;
        }
        self.end_part(out)?;
        if self.before.count > 1 {
            self.write_footer(out)?;
        }
        Ok(())
    }
}

/// Returns the columns of the files.
fn file_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            let kind = DataType::Timestamp(TimeUnit::Millisecond, zone.clone());
            Arc::new(Field::new(field.name(), kind, field.is_nullable()))
        }
        _ => Arc::clone(field),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns a batch with the types of a schema.
fn converted(records: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if records.schema_ref().fields() == schema.fields() {
        return Ok(records.clone());
    }
    let columns = records.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
    columns
        .collect::<Result<Vec<_>, ArrowError>>()
        .and_then(|columns| {
            RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        })
        .map_err(|error| arrow_error("a batch could not be converted for Parquet", error))
}

/// Returns an internal error: Parquet refuses what this crate has checked.
#[cold]
fn parquet_error(error: ParquetError) -> Error {
    match error {
        ParquetError::NYI(_) | ParquetError::ArrowError(_) => {
            let what = "a column has a type that cannot be written as Parquet";
            let error = Error::new(ErrorCode::InvalidJob, what).because(error);
            error.hint("cast it to another type")
        }
        error => Error::new(ErrorCode::Internal, "Parquet could not be written").because(error),
    }
}
