//! The source of the columns of Parquet files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_connectors::OnDamage;
use ardea_core::{
    Bounded, Error, ErrorCode, FileUse, Instance, Isolation, OnError, Parallelism, Processor,
    Result, Source,
};
use arrow_schema::{Field, Schema, SchemaRef};

use super::file_columns::{FileColumn, column_type};
use super::listing::SharedList;
use super::open_file::OpenFile;
use super::read_groups::{GroupReading, ReadGroupsP};
use crate::decode::BATCH_ROWS;
use crate::files::ColumnSelection;
use crate::stream::{ColumnRecord, ColumnSource, SourceFilters};

/// A source that reads Parquet files: a file, or the files of a directory in the order of their
/// names.
///
/// * Only the chosen columns are read and decompressed. The types are those of the first file,
///   unless [`schema`](Self::schema) gives them. A field of a struct is a column that is named by
///   its path, `bid.price`. Lists are passed on as they are, and maps are left out. Timestamps are
///   read as UTC, without a time zone.
/// * Row groups without a record that a [`filter`](crate::Columns::filter) directly after the
///   source accepts are not read. Their statistics show it for comparisons of integers, texts,
///   dates and timestamps with constants.
/// * The instances share the row groups: each reads every n-th one, in the order of the files. By
///   default there is one instance per core.
/// * All footers are read at the start of the job. A file is refused if it lacks a column, or has a
///   type of which some values do not fit: it is cut off, encrypted or not supported. Then the job
///   fails, unless [`on_damage`](Self::on_damage) is `Keep`: the file or the rest of the row group
///   becomes a dead letter, and all other records are read.
/// * A null in a column that is not nullable makes a bad record.
/// * A restored job continues with the next record. It reads the files listed when the job first
///   started, and fails if one of them was replaced. After a rescale the remaining row groups are
///   redistributed.
///
/// ```
/// use ardea_columns::{Columns, col, count, files};
/// use ardea_pipeline::Pipeline;
///
/// #[derive(serde::Deserialize, Debug, PartialEq)]
/// struct Bids { auction: Option<i64>, bids: i64 }
///
/// let folder = tempfile::tempdir()?;
/// let (csv, bids) = (folder.path().join("bids.csv"), folder.path().join("bids.parquet"));
/// std::fs::write(&csv, "auction,price,by\n1,20,ann\n2,5,bob\n1,30,eve\n")?;
/// let p = Pipeline::new("convert");
/// Columns::read_from(&p, files::csv(&csv)).write_to(files::write_parquet(&bids));
/// p.run()?;
///
/// let p = Pipeline::new("bids");
/// let bids = Columns::read_from(&p, files::parquet(&bids).columns(["auction", "price"]))
///     .filter(col("price").gt(10))
///     .key_by(["auction"])
///     .aggregate("bids", [count().alias("bids")])
///     .rows::<Bids>()
///     .collect();
/// p.run()?;
/// assert_eq!(bids.take(), [Bids { auction: Some(1), bids: 2 }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a source does nothing until it is read"]
pub struct ParquetFiles {
    path: PathBuf,
    columns: ColumnSelection,
    suffix: Option<String>,
    parallelism: Parallelism,
    batch_rows: usize,
    on_error: OnError,
    on_damage: OnDamage,
}

impl ParquetFiles {
    pub(crate) fn new(path: &Path) -> Self {
        ParquetFiles {
            path: path.to_path_buf(),
            columns: ColumnSelection::All,
            suffix: None,
            parallelism: Parallelism::Auto,
            batch_rows: BATCH_ROWS,
            on_error: OnError::DeadLetter,
            on_damage: OnDamage::Fail,
        }
    }

    /// Reads only these columns, with the types of the first file.
    pub fn columns<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.columns = ColumnSelection::Named(names.into_iter().map(Into::into).collect());
        self
    }

    /// Reads the columns of a schema. A column may have a wider type than in a file. The files need
    /// not exist yet.
    pub fn schema(mut self, schema: SchemaRef) -> Self {
        self.columns = ColumnSelection::Schema(schema);
        self
    }

    /// Reads only the files of the directory whose names end in `suffix`, such as `".parquet"`.
    pub fn suffix(mut self, suffix: impl Into<String>) -> Self {
        self.suffix = Some(suffix.into());
        self
    }

    /// Sets the number of instances, which share the row groups.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Reads all records in order, with one instance.
    pub fn in_order(self) -> Self {
        self.parallelism(Parallelism::ONE)
    }

    /// Sets the maximum number of records of a batch, at least one; [`BATCH_ROWS`] by default.
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows.max(1);
        self
    }

    /// Sets the treatment of a record with a null in a column that is not nullable. By default such
    /// a record becomes a dead letter.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets the treatment of a file or row group that cannot be read; see [`OnDamage`].
    pub fn on_damage(mut self, on_damage: OnDamage) -> Self {
        self.on_damage = on_damage;
        self
    }

    /// Returns the columns.
    fn bind(&self) -> Result<SchemaRef> {
        let first = || OpenFile::first_of(&self.path, self.suffix.as_deref());
        let fields = match &self.columns {
            ColumnSelection::All => {
                let columns = first()?.columns();
                let field = |column: FileColumn| {
                    let kind = column_type(&column.kind)?;
                    Some(Field::new(column.name, kind, column.is_nullable))
                };
                columns.into_iter().filter_map(field).collect::<Vec<_>>()
            }
            ColumnSelection::Named(names) => {
                let first = first()?;
                let named = names.iter().map(|name| named_column(&first, name));
                named.collect::<Result<_>>()?
            }
            ColumnSelection::Schema(schema) => return Ok(Arc::clone(schema)),
        };
        Ok(Arc::new(Schema::new(fields)))
    }

    /// Sets up the source of bound columns.
    fn source(self, schema: SchemaRef, filters: SourceFilters) -> Source<ColumnRecord, Bounded> {
        let name = format!("read {}", self.path.display());
        let parallelism = self.parallelism;
        let reading = GroupReading {
            columns: Arc::clone(&schema),
            batch_rows: self.batch_rows,
            on_error: self.on_error,
            on_damage: self.on_damage,
            filters,
        };
        let list = Arc::new(SharedList::new(
            (self.path, self.suffix),
            schema,
            self.on_damage,
        ));
        let listed = Arc::clone(&list);
        let files = move |_: u32| listed.now().into_iter().map(FileUse::Reads).collect();
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            // An error of the list is reported later: a restored job does not use the present one.
            let list = list.of(instance);
            Ok(Box::new(ReadGroupsP::new(list, reading.clone(), instance)))
        };
        Source::new(name, Arc::new(supply))
            .using_files(files)
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
    }
}

/// Returns the column of this name, with the type of the file.
fn named_column(file: &OpenFile, name: &str) -> Result<Field> {
    let columns = file.columns();
    let found = columns.iter().find(|column| column.name == name);
    let kind = found.and_then(|column| column_type(&column.kind));
    let (Some(found), Some(kind)) = (found, kind) else {
        let (path, known) = (file.path().display(), columns.iter());
        let known = known.filter(|column| column_type(&column.kind).is_some());
        let known: Vec<_> = known.map(|column| column.name.as_str()).collect();
        let what = format!("{path} has no column {name:?} of a value or a list");
        let error = Error::new(ErrorCode::InvalidJob, what);
        return Err(error.hint(format!("its columns are {}", known.join(", "))));
    };
    Ok(Field::new(name, kind, found.is_nullable))
}

impl From<ParquetFiles> for ColumnSource<Bounded> {
    fn from(files: ParquetFiles) -> Self {
        match files.bind() {
            Ok(schema) => {
                let filters = SourceFilters::default();
                let source = files.source(Arc::clone(&schema), filters.clone());
                ColumnSource::new(source, schema).with_filters(filters)
            }
            Err(error) => ColumnSource::refused(format!("read {}", files.path.display()), error),
        }
    }
}
