//! PostgreSQL sink.

mod checks;
mod ending;
mod fence;
mod own_tables;
mod sink_attempts;
mod staging;
mod table;
mod write;
mod writer;

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use ardea_core::{Delivery, OnError, Parallelism, Sink};

use crate::postgres::address::Address;
use crate::postgres::replaced::OnReplaced;
use crate::postgres::rows::Row;
use crate::postgres::table_name::TableName;
use crate::sink_builder::SinkBuilder;
use write::PostgresWriter;

/// Creates a sink that writes each record as a row of `table`, such as `"counts"` or
/// `"shop.counts"`, on the server at `url`, such as `"postgres://user@localhost/shop"`. `fill` must
/// set the cells of all `columns` in order. The names of table and columns are case-sensitive; see
/// [`TableName`].
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
        plan: PostgresSinkConfig {
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

/// A sink that writes rows of a table in batches: rows queued while the server was busy are sent in
/// the next statement.
///
/// At the end of the job the sink waits until all rows are written. A cancelled job does not wait.
///
/// # Jobs with checkpoints
///
/// | | rows visible | after a failure |
/// |---|---|---|
/// | default | at once | rows since the last checkpoint are inserted again: at least once |
/// | [`upsert`](Self::upsert) | at once | rows are written again and replace the row of their key, which has no further effect |
/// | [`exactly_once`](Self::exactly_once) | together when their epoch is committed | each row is there once |
///
/// If rows are visible at once, an epoch completes when all its rows are written.
///
/// # Checks before the first write
///
/// A read-only server and a user without the required permissions are refused. A job with
/// checkpoints also refuses `upsert` without [`exactly_once`](Self::exactly_once) through a
/// connection pooler in transaction mode, because fencing depends on sessions. `exactly_once` works
/// there, with or without `upsert`. `exactly_once` is refused for unlogged tables, which a crash
/// truncates, and for foreign tables. With `fsync = off` rows may be lost if the machine crashes;
/// the sink logs a warning on standard error.
#[derive(Debug)]
pub struct PostgresSink<T, F> {
    plan: PostgresSinkConfig,
    parallelism: Parallelism,
    fill: F,
    record: PhantomData<fn(T)>,
}

/// Configuration shared by the instances of a sink.
#[derive(Clone, Debug)]
pub(crate) struct PostgresSinkConfig {
    pub address: Address,
    pub table: TableName,
    pub columns: Vec<String>,
    /// Upsert key columns; empty without upsert.
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
    /// Replaces the row that has the same values in the columns `keys`, if any (`insert … on
    /// conflict (…) do update`). The table needs a primary key or a unique index of exactly these
    /// columns. The last of several rows with the same key wins.
    ///
    /// In a job with checkpoints, the last row also wins across failures: an instance writes
    /// nothing before the database sessions of its earlier attempts have ended. It waits three
    /// seconds and then terminates these sessions (`pg_terminate_backend`). So two runs of the same
    /// job and user cannot write at the same time: the later run takes over, and the earlier run
    /// fails.
    pub fn upsert(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.plan.keys = keys.into_iter().map(Into::into).collect();
        self
    }

    /// Publishes the rows of each epoch atomically and exactly once when the epoch is committed, in
    /// a job with checkpoints.
    ///
    /// Until the commit, the rows are stored in a staging table beside the target table, so neither
    /// memory nor the checkpoint contains them. The staging table and a small table
    /// `ardea_attempts` are created if missing; the names of both begin with `ardea_`.
    ///
    /// Rows left by a dead run are removed when the next run of the same job, sink and table has
    /// published its first rows. Two runs of the same job, sink and table cannot write at the same
    /// time: one of the two fails with ARD-607. If a run's committed rows were removed by another
    /// run before they were published, the run fails on restore, unless
    /// [`on_replaced`](Self::on_replaced) is changed. Runs that write to other tables do not affect
    /// each other, even with the same name.
    ///
    /// Without checkpoints, rows are written at once.
    pub fn exactly_once(mut self) -> Self {
        self.plan.is_once = true;
        self
    }

    /// Sets the policy for lost rows of an [exactly-once](Self::exactly_once) sink. Rows are lost
    /// if the target table or one of the sink's own tables was dropped, or if another run of the
    /// job removed staged rows. The job fails by default.
    pub fn on_replaced(mut self, on_replaced: OnReplaced) -> Self {
        self.plan.on_replaced = on_replaced;
        self
    }

    /// Encrypts the connection with TLS. The server's certificate must match the server's host name
    /// and be signed by an authority in the PEM file `file`.
    pub fn authority(mut self, file: impl Into<PathBuf>) -> Self {
        self.plan.address.authority = Some(file.into());
        self
    }

    /// Sets the number of instances, each with its own connection.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets the policy for records whose row exceeds 256 MiB or is refused by the server. By
    /// default such a record becomes a dead letter with its position.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// Builds the sink for a pipeline.
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
        SinkBuilder::new(name)
            .parallelism(parallelism)
            .blocking()
            .writer(move |_| PostgresWriter::new(plan.clone(), Arc::clone(&fill)))
            .with_delivery(delivery)
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
