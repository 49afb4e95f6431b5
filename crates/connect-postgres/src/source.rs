//! Reads a table or a query.

mod pages;
mod read;
mod reader;
mod strands;

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use ardea_core::{Bounded, Instance, Isolation, OnError, Parallelism, Processor, Result, Source};
use serde::de::DeserializeOwned;

use crate::address::Address;
use read::ReadP;

/// Reads the rows of `table`, such as `"orders"` or `"shop.orders"`, in the order of the column `key`; see [`PostgresSource`].
pub fn read<T: DeserializeOwned + Send + 'static>(
    url: impl Into<String>,
    table: impl Into<String>,
    key: impl Into<String>,
) -> PostgresSource<T> {
    let table = table.into();
    PostgresSource::of(
        url.into(),
        format!("select * from {table}"),
        table,
        key.into(),
    )
}

/// Reads what a `select` gives, in the order of its column `key`; see [`PostgresSource`]. The statement may not order or limit by itself.
pub fn query<T: DeserializeOwned + Send + 'static>(
    url: impl Into<String>,
    select: impl Into<String>,
    key: impl Into<String>,
) -> PostgresSource<T> {
    PostgresSource::of(url.into(), select.into(), "query".to_string(), key.into())
}

/// A source that reads rows page by page, in the order of a key, and ends behind the last. A job that keeps its state goes on behind the key of its
/// snapshot.
///
/// * A row becomes a record by [serde](https://serde.rs), from the JSON that the server makes of it: fields by the names of columns, `null`
///   as `None`, `numeric` as a number, dates, times and `uuid` as text, `bytea` as text in hexadecimal, arrays and `json` as they are.
/// * The key has to be unique and never null, with an index; that it is neither fails the job. It may be of any type that can be ordered.
/// * Each page is a statement of its own: rows that change meanwhile are read as they are when it is their turn, and what is added behind
///   the end or between keys that have been read is not. Rows that are neither changed nor removed are read once.
/// * Several [instances](Self::parallelism) share rows by blocks of the key, which has to be a whole number then.
/// * A server that is away is waited for.
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
    pub select: String,
    /// What people call it.
    pub name: String,
    pub key: String,
    /// How many rows are asked for at a time.
    pub page: NonZeroU32,
    /// How many keys lie in a block.
    pub block: NonZeroU32,
}

impl<T: DeserializeOwned + Send + 'static> PostgresSource<T> {
    fn of(url: String, select: String, name: String, key: String) -> Self {
        PostgresSource {
            plan: Plan {
                address: Address::new(url),
                select,
                name,
                key,
                page: const { NonZeroU32::new(1_000).unwrap() },
                block: const { NonZeroU32::new(10_000).unwrap() },
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
    pub fn parallelism(mut self, parallelism: Parallelism) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// Sets how many neighbouring keys one of several instances reads before it goes to its next block: 10,000 by default. Where keys lie far apart,
    /// it should be as much larger. It may not be changed in a job that goes on from a snapshot.
    pub fn blocks_of(mut self, keys: NonZeroU32) -> Self {
        self.plan.block = keys;
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
