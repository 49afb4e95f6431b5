//! PostgreSQL source.

mod digits;
mod json;
mod json_items;
mod key_splits;
mod page;
mod pages;
mod position;
mod read;
mod reader;
mod statements;

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::path::PathBuf;

use ardea_core::{Bounded, OnError, OnLostPosition, Parallelism, Source};
use serde::de::DeserializeOwned;

use crate::postgres::address::Address;
use crate::postgres::table_name::TableName;
use crate::source_builder::SourceBuilder;
use read::PostgresReader;

/// Creates a source that reads the rows of `table`, such as `"orders"` or `"shop.orders"`, in the
/// order of the column `key`; see [`PostgresSource`]. The names of table and column are
/// case-sensitive; see [`TableName`].
pub fn read<T: DeserializeOwned + Send + 'static>(
    url: impl Into<String>,
    table: impl Into<TableName>,
    key: impl Into<String>,
) -> PostgresSource<T> {
    let table = table.into();
    let name = table.to_string();
    PostgresSource::of(url.into(), Some(table), String::new(), name, key.into())
}

/// Creates a source that reads the rows of a `select`, in the order of its column `key`; see
/// [`PostgresSource`]. The statement must have no `order by` or `limit`. `key` is case-sensitive;
/// the server converts a name without quotes in `select` to lower case.
pub fn query<T: DeserializeOwned + Send + 'static>(
    url: impl Into<String>,
    select: impl Into<String>,
    key: impl Into<String>,
) -> PostgresSource<T> {
    let select = select.into();
    let select = select.trim_end().trim_end_matches(';').to_string();
    PostgresSource::of(url.into(), None, select, "query".to_string(), key.into())
}

/// A bounded source that reads rows page by page in the order of a key. A job with checkpoints
/// resumes after the key in its checkpoint.
///
/// * A row is deserialized by [serde](https://serde.rs) from the server's JSON: fields by column
///   names, `null` as `None`; numbers as numbers or text; dates, times, intervals and `uuid` as
///   text; arrays and `json` unchanged; `bytea` as hexadecimal text, or as bytes for a type that
///   requests bytes. Records must be structs or maps; a tuple has no field names.
/// * No digit is lost. `numeric` is exact as `String` or as a decimal type that parses text. A
///   number that a field of type `f64`, `f32` or `i64` cannot represent is a bad record. `NaN` and
///   the infinities are floats or text; `infinity` of dates and times is text.
/// * A row that cannot be deserialized, or that the server cannot convert to JSON, is handled as
///   set by [`on_error`](Self::on_error). The other rows are read.
/// * The key must be unique and not null, and should have an index; a duplicate or null key fails
///   the job. It may be of any ordered type.
/// * Each page is a separate statement. Rows changed while the source runs are read in their
///   current state. Rows added before the current key, or added after the end was reached, are not
///   read. Each row that is neither changed nor removed is read once.
/// * The job fails if the table was dropped and created again, was truncated, or ends before the
///   last key read, unless [`on_lost_position`](Self::on_lost_position) is changed. For a query,
///   only the last key is compared.
/// * Several [instances](Self::parallelism) share the rows by blocks of the key, which must then be
///   an integer.
/// * The source waits for an unavailable server. It supports a connection pooler in any mode except
///   `statement`.
#[derive(Debug)]
pub struct PostgresSource<T> {
    plan: PostgresSourceConfig,
    parallelism: Parallelism,
    on_error: OnError,
    record: PhantomData<fn() -> T>,
}

/// Configuration shared by the instances of a source.
#[derive(Clone, Debug)]
pub(crate) struct PostgresSourceConfig {
    pub address: Address,
    /// Table to read; `None` for a query.
    pub table: Option<TableName>,
    /// The query; empty for a table.
    pub select: String,
    /// Name of the table or query in messages.
    pub name: String,
    pub key: String,
    /// Rows per page.
    pub page: NonZeroU32,
    /// Keys per block.
    pub block: NonZeroU32,
    pub on_lost: OnLostPosition,
}

impl<T: DeserializeOwned + Send + 'static> PostgresSource<T> {
    fn of(
        url: String,
        table: Option<TableName>,
        select: String,
        name: String,
        key: String,
    ) -> Self {
        PostgresSource {
            plan: PostgresSourceConfig {
                address: Address::new(url),
                table,
                select,
                name,
                key,
                page: const { NonZeroU32::new(1_000).unwrap() },
                block: const { NonZeroU32::new(10_000).unwrap() },
                on_lost: OnLostPosition::default(),
            },
            parallelism: Parallelism::ONE,
            on_error: OnError::default(),
            record: PhantomData,
        }
    }

    /// Sets the number of rows per page: 1,000 by default. At most two pages are buffered.
    pub fn page(mut self, rows: NonZeroU32) -> Self {
        self.plan.page = rows;
        self
    }

    /// Sets the number of instances that share the rows, each with its own connection. With several
    /// instances, the key must be an integer.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets the size of the blocks that several instances share, as a number of consecutive keys:
    /// 10,000 by default. Sparse keys need larger blocks. The size must not change in a job
    /// restored from a checkpoint.
    pub fn blocks_of(mut self, keys: NonZeroU32) -> Self {
        self.plan.block = keys;
        self
    }

    /// Sets the policy for a table that has changed since it was read: it was dropped and created
    /// again, was truncated, or ends before the last key read. The job fails by default.
    /// [`OnLostPosition::Continue`] continues after the last key read.
    pub fn on_lost_position(mut self, on_lost: OnLostPosition) -> Self {
        self.plan.on_lost = on_lost;
        self
    }

    /// Encrypts the connection with TLS. The server's certificate must match the server's host name
    /// and be signed by an authority in the PEM file `file`.
    pub fn authority(mut self, file: impl Into<PathBuf>) -> Self {
        self.plan.address.authority = Some(file.into());
        self
    }

    /// Sets the policy for rows that cannot be deserialized. By default such a row becomes a dead
    /// letter with its key.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, Bounded> {
        let PostgresSource {
            plan,
            parallelism,
            on_error,
            ..
        } = self;
        let name = format!("postgres {}", plan.name);
        SourceBuilder::batch(name)
            .parallelism(parallelism)
            .blocking()
            .reader(move |_| PostgresReader::new(plan.clone(), on_error))
    }
}

impl<T: DeserializeOwned + Send + 'static> From<PostgresSource<T>> for Source<T, Bounded> {
    fn from(source: PostgresSource<T>) -> Self {
        source.build()
    }
}
