//! Files of JSON lines, CSV, text and Parquet as sources and sinks of columns.
//!
//! Reading: [`json_lines`], [`csv()`], [`lines`], and with the feature `parquet` `parquet`.
//! Writing: [`write_json_lines`], [`write_csv`], `write_parquet`, or [`write()`] with the options
//! of a format. The sinks are [`FileSink`]s: they rotate, compress, and write each record exactly
//! once in a job with state.

mod inferred_columns;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_connectors::OnDamage;
use ardea_connectors::files::{self, FileSink, FileSource};
use ardea_connectors::inference::{InferredFormat, infer_file};
use ardea_core::{Bounded, Error, ErrorCode, OnError, Parallelism, Result, Source};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::batch::ColumnBatch;
use crate::decode::{BATCH_ROWS, ColumnDecoder, FieldPath};
use crate::encode::{ColumnEncode, CsvEncoder, JsonEncoder};
#[cfg(feature = "parquet")]
use crate::parquet::{ParquetEncoder, ParquetFiles};
use crate::sink::ColumnSink;
use crate::stream::{ColumnRecord, ColumnSource};
use inferred_columns::InferredColumns;

/// The number of records from which types are inferred.
const SAMPLE_RECORDS: usize = 1000;

/// Returns a source of the columns of files with one JSON object per line.
pub fn json_lines(path: impl AsRef<Path>) -> ColumnFiles {
    ColumnFiles::new(path.as_ref(), TextFormat::JsonLines)
}

/// Returns a source of the lines of files of text, in the column `line`; see
/// [`Columns::split_words`](crate::Columns::split_words).
pub fn lines(path: impl AsRef<Path>) -> ColumnFiles {
    let line = Field::new("line", DataType::Utf8, false);
    let files = ColumnFiles::new(path.as_ref(), TextFormat::Lines);
    files.schema(Arc::new(Schema::new(vec![line])))
}

/// Returns a source of the columns of CSV files with a header.
pub fn csv(path: impl AsRef<Path>) -> ColumnFiles {
    let csv = CsvOptions {
        delimiter: b',',
        single_line: false,
    };
    ColumnFiles::new(path.as_ref(), TextFormat::Csv(csv))
}

/// Returns a sink that writes each record as a line of JSON; see [`JsonEncoder`].
///
/// ```
/// use ardea_columns::{Columns, col, files};
/// use ardea_pipeline::Pipeline;
///
/// let folder = tempfile::tempdir()?;
/// let (bids, euros) = (folder.path().join("bids.csv"), folder.path().join("euros.jsonl"));
/// std::fs::write(&bids, "auction,price\n1,20\n2,5\n")?;
///
/// let p = Pipeline::new("euros");
/// Columns::read_from(&p, files::csv(&bids))
///     .filter(col("price").gt(10))
///     .select([col("auction"), (col("price") * 0.5).alias("euros")])
///     .write_to(files::write_json_lines(&euros));
/// p.run()?;
/// assert_eq!(std::fs::read_to_string(&euros)?, "{\"auction\":1,\"euros\":10.0}\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_json_lines(path: impl AsRef<Path>) -> FileSink<ColumnBatch, JsonEncoder> {
    write(path, JsonEncoder::new())
}

/// Returns a sink that writes CSV with a header; see [`CsvEncoder`].
pub fn write_csv(path: impl AsRef<Path>) -> FileSink<ColumnBatch, CsvEncoder> {
    write(path, CsvEncoder::new())
}

/// Returns a source of the columns of Parquet files.
#[cfg(feature = "parquet")]
pub fn parquet(path: impl AsRef<Path>) -> ParquetFiles {
    ParquetFiles::new(path.as_ref())
}

/// Returns a sink that writes Parquet; see [`ParquetEncoder`].
#[cfg(feature = "parquet")]
pub fn write_parquet(path: impl AsRef<Path>) -> FileSink<ColumnBatch, ParquetEncoder> {
    write(path, ParquetEncoder::new())
}

/// Returns a sink that writes columns in any format.
pub fn write<E: ColumnEncode>(path: impl AsRef<Path>, encoder: E) -> FileSink<ColumnBatch, E> {
    files::write_batches(path, encoder)
}

impl<E: ColumnEncode> From<FileSink<ColumnBatch, E>> for ColumnSink {
    fn from(sink: FileSink<ColumnBatch, E>) -> Self {
        ColumnSink::new(sink.name(), move |schema| {
            let compression = sink.output_compression();
            let sink = sink.with_encoder(|encoder| encoder.bind(schema, compression))?;
            Ok(sink.build_batches())
        })
    }
}

/// The columns that are read.
#[derive(Clone, Debug)]
pub(crate) enum ColumnSelection {
    /// All fields, with the types of the first file.
    All,
    /// These fields, with the types of the first file.
    Named(Vec<String>),
    /// The fields of a schema, with its types.
    Schema(SchemaRef),
}

/// The format of the files.
#[derive(Clone, Copy, Debug)]
enum TextFormat {
    JsonLines,
    Csv(CsvOptions),
    /// Lines of text, with one column.
    Lines,
}

#[derive(Clone, Copy, Debug)]
struct CsvOptions {
    delimiter: u8,
    single_line: bool,
}

/// A source that reads a file, or the files of a directory, into columns.
///
/// It reads as [`FileSource`] does: instances share large files of lines, compressed files are
/// decompressed, a restored job continues with the next record, and bad records become dead letters
/// with their file and line. Only the chosen columns are decoded; see [`ColumnDecoder`]. Snapshots
/// are taken between batches.
///
/// A column of JSON lines is named by its path: `bid.price` is the field `price` of the object
/// `bid`. Types are inferred from the first 1,000 records of the first file, unless
/// [`schema`](Self::schema) gives them. All inferred columns are nullable. A later record of other
/// types is a bad record. Types are inferred where and when the job is described: give a schema if
/// the files may differ by then on the hosts of a cluster.
///
/// ```
/// use ardea_columns::{Columns, col, count, files};
/// use ardea_pipeline::Pipeline;
///
/// #[derive(serde::Deserialize, Debug, PartialEq, Eq, PartialOrd, Ord)]
/// struct Bids { auction: Option<i64>, bids: i64 }
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("bids.jsonl");
/// let lines = r#"{"auction":1,"bid":{"price":20,"by":"ann"}}
/// {"auction":2,"bid":{"price":5}}
/// {"auction":1,"bid":{"price":30}}"#;
/// std::fs::write(&path, lines)?;
///
/// let p = Pipeline::new("bids");
/// let bids = Columns::read_from(&p, files::json_lines(&path).columns(["auction", "bid.price"]))
///     .filter(col("bid.price").gt(10))
///     .key_by(["auction"])
///     .aggregate("bids", [count().alias("bids")])
///     .rows::<Bids>()
///     .collect();
/// p.run()?;
/// assert_eq!(bids.take_sorted(), [Bids { auction: Some(1), bids: 2 }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a source does nothing until it is read"]
pub struct ColumnFiles {
    path: PathBuf,
    format: TextFormat,
    columns: ColumnSelection,
    suffix: Option<String>,
    parallelism: Option<Parallelism>,
    block_bytes: Option<u64>,
    max_line: Option<usize>,
    max_quoted: Option<usize>,
    batch_rows: usize,
    on_error: OnError,
    on_damage: OnDamage,
}

impl ColumnFiles {
    fn new(path: &Path, format: TextFormat) -> Self {
        ColumnFiles {
            path: path.to_path_buf(),
            format,
            columns: ColumnSelection::All,
            suffix: None,
            parallelism: None,
            block_bytes: None,
            max_line: None,
            max_quoted: None,
            batch_rows: BATCH_ROWS,
            on_error: OnError::DeadLetter,
            on_damage: OnDamage::Fail,
        }
    }

    /// Reads only these columns, with inferred types.
    pub fn columns<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.columns = ColumnSelection::Named(names.into_iter().map(Into::into).collect());
        self
    }

    /// Reads the columns of a schema. No type is inferred, and the files need not exist yet.
    pub fn schema(mut self, schema: SchemaRef) -> Self {
        self.columns = ColumnSelection::Schema(schema);
        self
    }

    /// Sets the delimiter of CSV, such as `b';'` or `b'\t'`.
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        if let TextFormat::Csv(csv) = &mut self.format {
            csv.delimiter = delimiter;
        }
        self
    }

    /// Reads each line of CSV as a record, so that instances can share large files; see
    /// [`ColumnDecoder::single_line`].
    pub fn single_line(mut self) -> Self {
        if let TextFormat::Csv(csv) = &mut self.format {
            csv.single_line = true;
        }
        self
    }

    /// Reads only the files of the directory whose names end in `suffix`, such as `".jsonl"`.
    pub fn suffix(mut self, suffix: impl Into<String>) -> Self {
        self.suffix = Some(suffix.into());
        self
    }

    /// Sets the number of instances, which share the input.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = Some(parallelism.into());
        self
    }

    /// Reads all records in order, with one instance; see [`FileSource::in_order`].
    pub fn in_order(self) -> Self {
        self.parallelism(Parallelism::ONE)
    }

    /// Sets the size of the blocks of files that instances share; 1 MiB by default.
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = Some(bytes);
        self
    }

    /// Sets the maximum number of records of a batch, at least one; [`BATCH_ROWS`] by default.
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows.max(1);
        self
    }

    /// Sets the maximum line length; see [`FileSource::max_line`].
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.max_line = Some(bytes);
        self
    }

    /// Sets the maximum length of a quoted CSV field that spans lines; see
    /// [`FileSource::max_quoted`].
    pub fn max_quoted(mut self, bytes: usize) -> Self {
        self.max_quoted = Some(bytes);
        self
    }

    /// Sets the treatment of a record that cannot be decoded. By default such a record becomes a
    /// dead letter with its position, bytes and reason.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets the treatment of an input that cannot be read to its end; see [`OnDamage`].
    pub fn on_damage(mut self, on_damage: OnDamage) -> Self {
        self.on_damage = on_damage;
        self
    }

    /// Returns the columns, and the path of each.
    fn bind(&self) -> Result<(SchemaRef, Vec<FieldPath>)> {
        let inferred = || -> Result<InferredColumns> {
            let format = match &self.format {
                TextFormat::JsonLines => InferredFormat::JsonLines,
                TextFormat::Csv(csv) => InferredFormat::Csv(csv.delimiter),
                TextFormat::Lines => {
                    let what = "columns of lines of text were chosen";
                    return Err(Error::new(ErrorCode::InvalidJob, what)
                        .because("the only column is \"line\"")
                        .hint("leave columns(…) out"));
                }
            };
            let first = files::first_listed(&self.path, self.suffix.as_deref())?;
            if std::fs::metadata(&first).is_ok_and(|of| !of.is_file()) {
                // The sample would be lost.
                let what = format!("{} is a pipe or a device", first.display());
                return Err(Error::new(ErrorCode::InvalidJob, what)
                    .because("its types cannot be inferred without reading from it")
                    .hint("give the types with schema(…)"));
            }
            let schema = infer_file(&first, format, SAMPLE_RECORDS)?;
            Ok(InferredColumns::of(schema.fields()))
        };
        let (schema, paths) = match &self.columns {
            ColumnSelection::All => inferred()?.all(),
            ColumnSelection::Named(names) => inferred()?.named(names)?,
            ColumnSelection::Schema(schema) => {
                let names = schema.fields().iter().map(|field| field.name().as_str());
                return Ok((Arc::clone(schema), names.map(FieldPath::from).collect()));
            }
        };
        Ok((Arc::new(schema), paths))
    }

    /// Sets up the source of bound columns.
    fn source(
        &self,
        schema: SchemaRef,
        paths: Vec<FieldPath>,
    ) -> Result<Source<ColumnRecord, Bounded>> {
        let decoder = match &self.format {
            TextFormat::JsonLines => ColumnDecoder::json_at(schema, &paths)?,
            TextFormat::Lines => ColumnDecoder::lines(schema)?,
            TextFormat::Csv(csv) => {
                let decoder = ColumnDecoder::csv(schema, csv.delimiter)?;
                match csv.single_line {
                    true => decoder.single_line(),
                    false => decoder,
                }
            }
        };
        let decoder = decoder.batch_rows(self.batch_rows);
        let mut source: FileSource<(), _> = files::read(&self.path, decoder)
            .on_error(self.on_error)
            .on_damage(self.on_damage);
        if let Some(suffix) = &self.suffix {
            source = source.suffix(suffix);
        }
        if let Some(parallelism) = self.parallelism {
            source = source.parallelism(parallelism);
        }
        if let Some(bytes) = self.block_bytes {
            source = source.block_bytes(bytes);
        }
        if let Some(bytes) = self.max_line {
            source = source.max_line(bytes);
        }
        if let Some(bytes) = self.max_quoted {
            source = source.max_quoted(bytes);
        }
        Ok(source.build_batches())
    }
}

impl From<ColumnFiles> for ColumnSource<Bounded> {
    fn from(files: ColumnFiles) -> Self {
        let bound = files.bind().and_then(|(schema, paths)| {
            let source = files.source(Arc::clone(&schema), paths)?;
            Ok((source, schema))
        });
        match bound {
            Ok((source, schema)) => ColumnSource::new(source, schema),
            Err(error) => ColumnSource::refused(format!("read {}", files.path.display()), error),
        }
    }
}

#[cfg(test)]
mod sink_tests;
#[cfg(test)]
mod tests;
