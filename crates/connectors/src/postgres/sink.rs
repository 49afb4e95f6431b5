//! Writes to a table.

mod checks;
mod desk;
mod ending;
mod fence;
mod lives;
mod own_tables;
mod staging;
mod table;
mod write;
mod writer;

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use ardea_core::{Delivery, Instance, Isolation, OnError, Parallelism, Processor, Result, Sink};

use crate::postgres::address::Address;
use crate::postgres::replaced::OnReplaced;
use crate::postgres::rows::Row;
use crate::postgres::table_name::TableName;
use write::WriteP;

/// Writes each record as a row of `table`, such as `"counts"` or `"shop.counts"`, on the server at `url`, such as
/// `"postgres://user@localhost/shop"`. The function sets the cells of `columns`, all of them, in their order.
/// The names of table and columns are taken as they are; see [`TableName`].
pub fn write<T, F>(
    url: impl Into<String>,
    table: impl Into<TableName>,
    columns: impl IntoIterator<Item = impl Into<String>>,
    fill: F,
) -> PostgresSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Row<'_>) + Send + Sync + 'static,
{
    PostgresSink {
        plan: Plan {
            address: Address::new(url.into()),
            table: table.into(),
            columns: columns.into_iter().map(Into::into).collect(),
            keys: Vec::new(),
            is_once: false,
            on_error: OnError::default(),
            on_replaced: OnReplaced::default(),
        },
        parallelism: Parallelism::ONE,
        fill,
        record: PhantomData,
    }
}

/// A sink that writes rows of a table in batches: what has gathered while the server was busy goes
/// to it at once, in one statement.
///
/// At its end the job waits until all has been written; a job that is cancelled does not.
///
/// # In a job that keeps its state
///
/// | | when rows are seen | after a failure |
/// |---|---|---|
/// | as it is | at once | those since the last snapshot are inserted again: at least once |
/// | [`upsert`](Self::upsert) | at once | so they are, each in the place of the one of its key, which changes nothing |
/// | [`exactly_once`](Self::exactly_once) | when their epoch is committed, together | each is there once |
///
/// Where rows are seen at once, a snapshot waits until all that came before it have been written.
///
/// # Refused before anything is written
///
/// A server that only reads, and a user without the permissions that are needed. In a job that
/// keeps its state also: `upsert` alone through a connection pooler in transaction mode, as it
/// depends on sessions ([`exactly_once`](Self::exactly_once), with or without it, works there);
/// `exactly_once` for unlogged tables, which a crash empties, and for foreign tables. Behind `fsync
/// = off` rows may be lost with the machine, which is said on standard error.
#[derive(Debug)]
pub struct PostgresSink<T, F> {
    plan: Plan,
    parallelism: Parallelism,
    fill: F,
    record: PhantomData<fn(T)>,
}

/// What the instances of a sink have in common.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub address: Address,
    pub table: TableName,
    pub columns: Vec<String>,
    /// By which a row takes the place of an earlier one; none if it does not.
    pub keys: Vec<String>,
    pub is_once: bool,
    pub on_error: OnError,
    pub on_replaced: OnReplaced,
}

impl<T, F> PostgresSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Row<'_>) + Send + Sync + 'static,
{
    /// Has a row take the place of the one that is the same in these columns, if there is one (`insert … on conflict (…) do update`). The table
    /// needs a primary key or a unique index of exactly these columns. Of several rows of a key the one that comes last counts.
    ///
    /// In a job that keeps its state that holds over failures: an instance writes nothing before the sessions of its earlier lives are over, which it waits for and, after
    /// three seconds, sees to (`pg_terminate_backend`). So two runs of one job and user at a time can't be: the later takes over, and the earlier fails.
    pub fn upsert(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.plan.keys = keys.into_iter().map(Into::into).collect();
        self
    }

    /// In a job that keeps its state, shows the rows of each epoch when that is committed, all of them at once, and each once whatever dies.
    ///
    /// Until then they lie in a table beside the one that is written, so neither memory nor the snapshot has to hold them. That table and a small
    /// one, `ardea_lives`, are made where they are missing; their names begin with `ardea_`.
    ///
    /// Rows that a dead run has left in them are removed when the next one of the same job, sink
    /// and table has moved its first rows. Two such runs at a time can't be: one of them fails with
    /// ARD-607. A run whose committed rows were removed by another one while they waited fails when
    /// it goes on, unless [`on_replaced`](Self::on_replaced) says otherwise. Runs that write to
    /// other tables do not concern each other, whatever their names.
    ///
    /// Where the job keeps no state, rows are written at once.
    pub fn exactly_once(mut self) -> Self {
        self.plan.is_once = true;
        self
    }

    /// Sets what becomes of a job whose sink works [exactly once](Self::exactly_once) if the table
    /// that it writes, or one of its own beside that, was dropped since, or another run of the job
    /// has removed rows that waited: rows that had been written, or waited, are gone. The job fails
    /// by default.
    pub fn on_replaced(mut self, on_replaced: OnReplaced) -> Self {
        self.plan.on_replaced = on_replaced;
        self
    }

    /// Encrypts the connection by TLS, to a server that has a certificate for its name that is signed by an authority of this PEM file.
    pub fn authority(mut self, file: impl Into<PathBuf>) -> Self {
        self.plan.address.authority = Some(file.into());
        self
    }

    /// Sets how many instances there are, each with a connection of its own.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets what becomes of a record whose row the server refuses, or that takes more than 256 MiB:
    /// told as a dead letter with its position (the default), dropped and counted, or the job
    /// fails.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// The sink, for a pipeline.
    pub fn build(self) -> Sink<T> {
        let PostgresSink {
            plan,
            parallelism,
            fill,
            ..
        } = self;
        let name = format!("postgres {}", plan.table);
        let delivery = match (plan.is_once, plan.keys.is_empty()) {
            (true, _) => Delivery::ExactlyOnce,
            (false, false) => Delivery::Idempotent,
            (false, true) => Delivery::AtLeastOnce,
        };
        let fill = Arc::new(fill);
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            let fill = Arc::clone(&fill);
            Ok(Box::new(WriteP::<T, F>::new(plan.clone(), fill)))
        };
        Sink::new(name, Arc::new(supply))
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
            .delivering(delivery)
    }
}

impl<T, F> From<PostgresSink<T, F>> for Sink<T>
where
    T: Send + 'static,
    F: Fn(&T, &mut Row<'_>) + Send + Sync + 'static,
{
    fn from(sink: PostgresSink<T, F>) -> Self {
        sink.build()
    }
}
