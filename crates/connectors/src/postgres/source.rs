//! Reads a table or a query.

mod digits;
mod json;
mod json_items;
mod page;
mod pages;
mod position;
mod read;
mod reader;
mod statements;
mod strands;

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use ardea_core::{
    Bounded, Instance, Isolation, OnError, OnLostPosition, Parallelism, Processor, Result, Source,
};
use serde::de::DeserializeOwned;

use crate::postgres::address::Address;
use crate::postgres::table_name::TableName;
use read::ReadP;

/// Reads the rows of `table`, such as `"orders"` or `"shop.orders"`, in the order of the column `key`; see [`PostgresSource`].
/// Both names are taken as they are; see [`TableName`].
pub fn read<T: DeserializeOwned + Send + 'static>(
    url: impl Into<String>,
    table: impl Into<TableName>,
    key: impl Into<String>,
) -> PostgresSource<T> {
    let table = table.into();
    let name = table.to_string();
    PostgresSource::of(url.into(), Some(table), String::new(), name, key.into())
}

/// Reads the rows of a `select`, in the order of its column `key`; see [`PostgresSource`]. The
/// statement may not order or limit by itself. The key's name is taken as it is: unless it is
/// quoted in the statement it is in small letters.
pub fn query<T: DeserializeOwned + Send + 'static>(
    url: impl Into<String>,
    select: impl Into<String>,
    key: impl Into<String>,
) -> PostgresSource<T> {
    let select = select.into();
    let select = select.trim_end().trim_end_matches(';').to_string();
    PostgresSource::of(url.into(), None, select, "query".to_string(), key.into())
}

/// A source that reads rows page by page, in the order of a key, and ends behind the last. A job
/// that keeps its state goes on behind the key of its snapshot.
///
/// * A row becomes a record by [serde](https://serde.rs), from the JSON that the server makes of
///   it: fields by the names of columns, `null` as `None`, numbers as numbers or text, dates,
///   times, intervals and `uuid` as text, arrays and `json` as they are. `bytea` is text in
///   hexadecimal, or bytes for a type that asks for bytes. So a record is a struct or a map; a
///   tuple is none, as it has no names.
/// * No digit is lost. `numeric` is read exactly as `String`, or as a decimal type that reads text.
///   A number that a field of type `f64`, `f32` or `i64` can't hold makes its row no record. `NaN`
///   and the infinities are floats or text; `infinity` of dates and times is text.
/// * A row that is no record, or that the server can't make, is dealt with as
///   [`on_error`](Self::on_error) says. The others are read.
/// * The key has to be unique and never null, with an index; that it is neither fails the job. It
///   may be of any type that can be ordered.
/// * Each page is a statement of its own: rows that change meanwhile are read as they are when it
///   is their turn, and what is added behind the end or between keys that have been read is not.
///   Rows that are neither changed nor removed are read once.
/// * A table that is dropped and created again, truncated, or that ends before the last key, while
///   it is read or between two runs of the job, fails the job, or is read on from there, as
///   [`on_lost_position`](Self::on_lost_position) says. Of a query only its end is compared.
/// * Several [instances](Self::parallelism) share rows by blocks of the key, which has to be a
///   whole number then.
/// * A server that is away is waited for. The source works through a connection pooler in any mode
///   but `statement`.
#[derive(Debug)]
pub struct PostgresSource<T> {
    plan: Plan,
    parallelism: Parallelism,
    on_error: OnError,
    record: PhantomData<fn() -> T>,
}

/// What the instances of a source have in common.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub address: Address,
    /// `None` for a query.
    pub table: Option<TableName>,
    /// The query; empty for a table.
    pub select: String,
    /// What people call it.
    pub name: String,
    pub key: String,
    /// How many rows are asked for at a time.
    pub page: NonZeroU32,
    /// How many keys lie in a block.
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
            plan: Plan {
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

    /// Sets how many rows are asked for at a time: 1,000 by default. Two pages at most wait in memory.
    pub fn page(mut self, rows: NonZeroU32) -> Self {
        self.plan.page = rows;
        self
    }

    /// Sets how many instances share the rows, each with a connection of its own. Where there are several the key has to be a whole number.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets how many neighbouring keys one of several instances reads before it goes to its next block: 10,000 by default. Where keys lie far apart,
    /// it should be as much larger. It may not be changed in a job that goes on from a snapshot.
    pub fn blocks_of(mut self, keys: NonZeroU32) -> Self {
        self.plan.block = keys;
        self
    }

    /// Sets what to do when the table is not the one that was read before: it was dropped and
    /// created again, truncated, or ends before the last key. The job fails by default.
    /// [`OnLostPosition::Continue`] goes on behind the key that was read last.
    pub fn on_lost_position(mut self, on_lost: OnLostPosition) -> Self {
        self.plan.on_lost = on_lost;
        self
    }

    /// Encrypts the connection by TLS, to a server that has a certificate for its name that is signed by an authority of this PEM file.
    pub fn authority(mut self, file: impl Into<PathBuf>) -> Self {
        self.plan.address.authority = Some(file.into());
        self
    }

    /// Sets what becomes of a row that is no record: kept aside with its key (the default), dropped and counted, or the job fails.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// The source, for a pipeline.
    pub fn build(self) -> Source<T, Bounded> {
        let PostgresSource {
            plan,
            parallelism,
            on_error,
            ..
        } = self;
        let name = format!("postgres {}", plan.name);
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(ReadP::<T>::new(plan.clone(), on_error)))
        };
        Source::new(name, Arc::new(supply))
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
    }
}

impl<T: DeserializeOwned + Send + 'static> From<PostgresSource<T>> for Source<T, Bounded> {
    fn from(source: PostgresSource<T>) -> Self {
        source.build()
    }
}
