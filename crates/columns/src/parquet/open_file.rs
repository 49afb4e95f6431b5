//! Open Parquet files, checked against the columns of a source.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_connectors::files;
use ardea_core::{Error, ErrorCode, Result, panic_message};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::file_columns::{FileColumn, columns_of, converts, values_at};
use super::footer::{FOOTER_END_BYTES, MAGIC};
use super::group_filter::GroupFilter;

/// The bytes at the beginning of an encrypted file, or at its end if its footer is encrypted.
const ENCRYPTED_MAGIC: &[u8; 4] = b"PARE";

/// The highest supported version of the format.
const LATEST_VERSION: i32 = 2;

/// The identity of a file: its footer contains the position and size of all other content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ParquetIdentity {
    length: u64,
    footer_hash: u64,
}

/// An open Parquet file.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
    pub identity: ParquetIdentity,
}

/// Returns the error of a file that cannot be read.
pub(super) fn cannot_read(path: &Path, why: impl fmt::Display) -> Error {
    let what = format!("cannot read {}", path.display());
    Error::new(ErrorCode::ReadFailed, what).because(why.to_string())
}

impl OpenFile {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if it cannot be read, or is no Parquet file that this program can
    /// read.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| {
            cannot_read(path, error).hint("check that it exists and may be read")
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            let error = cannot_read(path, "it is no plain file");
            return Err(error
                .hint("Parquet is read from its end: give a plain file")
                .permanent());
        }
        let identity = identify(path, &file, metadata.len())?;
        // The embedded Arrow schema adds no type that can be a column.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let loaded = decode(|| ArrowReaderMetadata::load(&file, options));
        let metadata = loaded.map_err(|reason| {
            let error = cannot_read(path, format!("its footer cannot be decoded: {reason}"));
            error
                .hint("restore it, or write it again in version 2.6 of the format")
                .permanent()
        })?;
        check_metadata(path, metadata.metadata(), identity.length)?;
        Ok(OpenFile {
            path: path.to_path_buf(),
            file,
            metadata,
            identity,
        })
    }

    /// Opens the first of the files of a path.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); [`ErrorCode::InvalidConfig`] if the path is in a bucket.
    pub fn first_of(path: &Path, suffix: Option<&str>) -> Result<Self> {
        let files = files::local_files(path, suffix)?;
        OpenFile::open(files.first().map_or(path, PathBuf::as_path))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the columns of the file, as Arrow reads them.
    pub fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// Returns the number of row groups.
    pub fn row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Returns the number of records.
    pub fn rows(&self) -> u64 {
        let file = self.metadata.metadata().file_metadata();
        file.num_rows().unsigned_abs()
    }

    /// Returns a reader of the records of a row group from `row` on, in batches.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if the file lacks a column, or has it with another type; or if
    /// the row group cannot be read.
    pub fn read(
        &self,
        group: usize,
        row: u64,
        (columns, batch_rows): (&SchemaRef, usize),
    ) -> Result<GroupReader> {
        let paths = self.check_columns(columns)?;
        let failed = |error: &dyn fmt::Display| self.damaged(group, error);
        let file = self.file.try_clone().map_err(|error| failed(&error))?;
        let leaves = paths.iter().flat_map(|path| self.leaves_at(path));
        let mask = ProjectionMask::leaves(self.metadata.parquet_schema(), leaves);
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_row_groups(vec![group])
                .with_projection(mask)
                .with_batch_size(batch_rows)
                .with_offset(usize::try_from(row).unwrap_or(usize::MAX));
        let reader = decode(|| builder.build()).map_err(|reason| failed(&reason))?;
        Ok(GroupReader {
            reader,
            paths,
            schema: Arc::clone(columns),
        })
    }

    /// Returns the columns of the file.
    pub fn columns(&self) -> Vec<FileColumn> {
        columns_of(self.schema())
    }

    /// Returns true if a filter accepts no record of a row group.
    pub fn is_excluded(&self, group: usize, filter: &GroupFilter) -> bool {
        filter.excludes(&self.metadata, group)
    }

    /// Returns the numbers of the stored columns with the values at a path.
    fn leaves_at(&self, path: &[String]) -> impl Iterator<Item = usize> {
        let schema = self.metadata.parquet_schema();
        let leaves = 0..schema.num_columns();
        leaves.filter(move |leaf| schema.column(*leaf).path().parts().starts_with(path))
    }

    /// Returns the error of a row group that cannot be read.
    pub fn damaged(&self, group: usize, why: &dyn fmt::Display) -> Error {
        let why = format!("its row group {group} cannot be decoded: {why}");
        cannot_read(&self.path, why)
            .hint("restore the file, or skip the rest of the row group: on_damage(OnDamage::Keep)")
            .permanent()
    }

    /// Returns the paths of these columns in the file.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if the file lacks a column, has it twice, or with another type.
    pub fn check_columns(&self, columns: &Schema) -> Result<Vec<Vec<String>>> {
        let known = self.columns();
        let paths = columns.fields().iter().map(|column| {
            let name = column.name();
            let mut found = known.iter().filter(|it| it.name == *name);
            let found = match (found.next(), found.next()) {
                (Some(found), None) => found,
                (None, _) => {
                    let known: Vec<_> = known.iter().map(|it| it.name.as_str()).collect();
                    let known = known.join(", ");
                    let why = format!("it has no column {name:?}; its columns are {known}");
                    return Err(self.unfit(&why));
                }
                (Some(_), Some(_)) => {
                    return Err(self.unfit(&format!("it has two columns {name:?}")));
                }
            };
            let (kind, wanted) = (&found.kind, column.data_type());
            if !converts(kind, wanted) {
                let why = format!("its column {name:?} has the type {kind}, not {wanted}");
                return Err(self.unfit(&why));
            }
            self.check_compression(&found.path)?;
            Ok(found.path.clone())
        });
        paths.collect()
    }

    fn unfit(&self, why: &str) -> Error {
        let hint = "choose the files with suffix(…), the columns with columns([…]), or give the types with schema(…)";
        cannot_read(&self.path, why).hint(hint).permanent()
    }

    /// Checks that a column of the file can be decompressed.
    fn check_compression(&self, path: &[String]) -> Result<()> {
        let metadata = self.metadata.metadata();
        for leaf in self.leaves_at(path) {
            let chunks = metadata.row_groups().iter();
            let mut chunks = chunks.filter_map(|group| group.columns().get(leaf));
            let unsupported = |chunk: &&ColumnChunkMetaData| {
                matches!(
                    chunk.compression(),
                    Compression::LZO | Compression::BROTLI(_)
                )
            };
            if let Some(chunk) = chunks.find(unsupported) {
                let (name, kind) = (chunk.column_path().string(), chunk.compression());
                let why = format!("its column {name:?} is compressed by {kind}");
                let error = cannot_read(&self.path, why);
                return Err(error
                    .hint("write it again with Snappy, LZ4, Zstd or gzip")
                    .permanent());
            }
        }
        Ok(())
    }
}

/// A reader of the records of a row group, in batches of the columns of a source.
pub(super) struct GroupReader {
    reader: ParquetRecordBatchReader,
    /// The path of each column in the batches of `reader`.
    paths: Vec<Vec<String>>,
    schema: SchemaRef,
}

impl GroupReader {
    /// Returns the next batch. The columns may have nulls although their fields are not nullable.
    ///
    /// # Errors
    /// The reason why the records cannot be decoded, or do not fit their columns.
    pub fn next(&mut self) -> Result<Option<(Vec<ArrayRef>, usize)>, String> {
        decode(|| {
            let batch = self.reader.next().transpose()?;
            batch.map(|batch| self.columns(&batch)).transpose()
        })
    }

    fn columns(&self, batch: &RecordBatch) -> Result<(Vec<ArrayRef>, usize), ArrowError> {
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let columns = self.paths.iter().zip(self.schema.fields());
        let columns = columns.map(|(path, field)| {
            let column = values_at(batch, path)?;
            match column.data_type() == field.data_type() {
                true => Ok(column),
                false => cast_with_options(&column, field.data_type(), &options),
            }
        });
        Ok((columns.collect::<Result<_, _>>()?, batch.num_rows()))
    }

    /// Returns a batch of these columns.
    ///
    /// # Errors
    /// If a column that is not nullable has nulls.
    pub fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

/// Calls a function of the decoder, which panics on some damage.
///
/// # Errors
/// The reason of a failure or panic. After a panic the decoder must not be used.
fn decode<T, E: fmt::Display>(function: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(payload) => Err(panic_message(&*payload).to_string()),
    }
}

/// Checks the first and last bytes of a file, and returns its identity.
fn identify(path: &Path, file: &File, length: u64) -> Result<ParquetIdentity> {
    let failed =
        |error: io::Error| cannot_read(path, error).hint("check the disk, and that it may be read");
    let refused =
        |why: &str, hint: &'static str| Err(cannot_read(path, why).hint(hint).permanent());
    if length < MAGIC.len() as u64 + FOOTER_END_BYTES {
        return refused(
            &format!("it has {length} bytes, which is less than any Parquet file"),
            "restore it; a file that is still being written is read when it is complete",
        );
    }
    let (mut head, mut tail) = ([0; 4], [0; FOOTER_END_BYTES as usize]);
    file.read_exact_at(&mut head, 0).map_err(failed)?;
    let tail_start = length - FOOTER_END_BYTES;
    file.read_exact_at(&mut tail, tail_start).map_err(failed)?;
    let [a, b, c, d, magic @ ..] = tail;
    if head == *ENCRYPTED_MAGIC || magic == *ENCRYPTED_MAGIC {
        return refused(
            "it is encrypted",
            "decrypt it first; keys are not supported",
        );
    }
    if head != *MAGIC {
        return refused(
            "it does not begin as a Parquet file",
            "check its format; CSV and JSON are read with files::csv and files::json_lines",
        );
    }
    if magic != *MAGIC {
        return refused(
            "it has no footer: it was cut off, or is still being written",
            "restore it, or read it when it is complete",
        );
    }
    let footer = u64::from(u32::from_le_bytes([a, b, c, d]));
    let Some(start) = tail_start.checked_sub(footer) else {
        return refused("its footer is longer than the file", "restore it");
    };
    let mut bytes = vec![0; footer as usize];
    file.read_exact_at(&mut bytes, start).map_err(failed)?;
    Ok(ParquetIdentity {
        length,
        footer_hash: xxh3_64(&bytes),
    })
}

/// Checks what the decoder relies on.
fn check_metadata(path: &Path, metadata: &ParquetMetaData, length: u64) -> Result<()> {
    let damaged = |what: String| {
        let error = cannot_read(path, what);
        Err(error
            .hint("restore it, or write it again in version 2.6 of the format")
            .permanent())
    };
    let version = metadata.file_metadata().version();
    if version > LATEST_VERSION {
        return damaged(format!("it has version {version} of the format"));
    }
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let is_inside = |column: &ColumnChunkMetaData| {
            let starts = [
                Some(column.data_page_offset()),
                column.dictionary_page_offset(),
            ];
            let mut ends = starts.into_iter().flatten().map(|start| {
                let (start, bytes) = (
                    u64::try_from(start),
                    u64::try_from(column.compressed_size()),
                );
                start.ok().zip(bytes.ok())
            });
            ends.all(|range| range.is_some_and(|(start, _)| start <= length))
                && column.num_values() >= 0
                && column
                    .dictionary_page_offset()
                    .or(Some(column.data_page_offset()))
                    .and_then(|start| start.checked_add(column.compressed_size()))
                    .is_some_and(|end| end.unsigned_abs() <= length)
        };
        if group.num_rows() < 0 || !group.columns().iter().all(is_inside) {
            return damaged(format!(
                "the positions of its row group {number} are invalid"
            ));
        }
    }
    Ok(())
}
