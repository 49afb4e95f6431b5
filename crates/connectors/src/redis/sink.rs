//! Redis sink.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Checkpointed, Delivery, Epoch, Error, ErrorCode, InstanceContext, OnError,
    Parallelism, Progress, RestoredState, Result, Sink, SnapshotRequest, SnapshotWriter, Timestamp,
    thread_cpu_time,
};

use crate::blocking_worker::CANCEL_CHECK_INTERVAL;
use crate::redis::checks::SinkGuarantee;
use crate::redis::commands::Commands;
use crate::redis::connection_worker::{ConnectionWorker, RedisWorker, WorkerCommand};
use crate::redis::cpu_accounting::SinkCosts;
use crate::redis::place::Address;
use crate::redis::transactions::Transactions;
use crate::sink_builder::{SinkBuilder, SinkWriter};

/// Description of a refused record.
const REFUSED: &str = "the Redis server refused its command";
/// Time in seconds after which the marker of an earlier attempt expires.
const MARKER_SECONDS: u32 = 7 * 24 * 60 * 60;

/// Creates a sink that sends the commands written by `commands` for each record to the server at
/// `url`.
///
/// | address | servers |
/// |---|---|
/// | `redis://user:password@host:6379/0` | one server, or a cluster that has this node |
/// | `redis://host:7000,host:7001` | a cluster; nodes are tried in turn |
/// | `redis+sentinel://user:password@host:26379,other/main/0` | the primary server that the sentinels name `main` |
/// | `rediss://…`, `rediss+sentinel://…` | the same with TLS |
///
/// The function may write no commands or several. Commands of other records may be executed between
/// the commands of one record.
pub fn write<T, F>(url: impl Into<String>, commands: F) -> RedisSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    RedisSink {
        address: Address {
            url: url.into(),
            ..Address::default()
        },
        tag: None,
        parallelism: Parallelism::ONE,
        on_error: OnError::default(),
        repeats: Repeats::Unknown,
        held: HELD,
        costs: None,
        commands,
        record: PhantomData,
    }
}

/// Default limit of buffered commands in bytes.
const HELD: usize = 256 << 20;

/// Effect of commands that are sent again after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repeats {
    /// Commands are executed again, with unknown effect.
    Unknown,
    /// Commands are executed again, without effect.
    Harmless,
    /// Commands are not executed again.
    Never,
}

/// A sink that sends commands to a Redis server; see the [module documentation](crate::redis) for
/// its guarantees.
///
/// Commands queued while the server was busy are sent in the next batch. At the end of the job the
/// sink waits for all responses. A cancelled job does not wait.
///
/// # Jobs with checkpoints
///
/// | | commands executed | after a failure |
/// |---|---|---|
/// | default | at once | commands since the last checkpoint are executed again: at least once |
/// | [`idempotent`](Self::idempotent) | at once | commands are executed again without effect: for `SET`, `HSET` … |
/// | [`exactly_once`](Self::exactly_once) | together when their epoch is committed | each counts once: for `INCRBY`, `LPUSH`, `XADD` … |
///
/// If commands are executed at once, an epoch completes when the server has responded to all of
/// them.
#[derive(Debug)]
pub struct RedisSink<T, F> {
    address: Address,
    tag: Option<String>,
    parallelism: Parallelism,
    on_error: OnError,
    repeats: Repeats,
    held: usize,
    costs: Option<Arc<SinkCosts>>,
    commands: F,
    record: PhantomData<fn(T)>,
}

impl<T, F> RedisSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    /// Sets the number of instances, each with its own connection.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets the policy for records whose command the server refuses. By default such a record
    /// becomes a dead letter with its position.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Declares that all commands are idempotent. A command not known to be idempotent fails the
    /// job.
    pub fn idempotent(mut self) -> Self {
        self.repeats = Repeats::Harmless;
        self
    }

    /// Executes the commands of each epoch exactly once, in a job with checkpoints: in one
    /// transaction (`MULTI`) when the epoch is committed. Until the commit, the commands are
    /// buffered in memory, [within a limit](Self::hold_at_most), and are part of the checkpoint.
    ///
    /// The sink stores the last epoch of each instance in Redis, under a key that begins with
    /// `ardea:` and the names of job and sink. A run restored from a checkpoint lets the keys of
    /// the previous run expire after a week; the keys of the last run stay. The server must not
    /// lose acknowledged writes. Without checkpoints, commands are executed at once.
    pub fn exactly_once(mut self) -> Self {
        self.repeats = Repeats::Never;
        self
    }

    /// Declares that all keys have the hash tag `tag` (`orders` in `{orders}:7`), so that a cluster
    /// stores them in one slot. An [exactly-once](Self::exactly_once) sink requires it in a
    /// cluster, because a transaction is executed by one node. A record with another key is handled
    /// like a record that the server refuses. The tag must not change in a job restored from a
    /// checkpoint.
    pub fn hash_tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Trusts only certificates signed by an authority in the PEM file `file`, if the address uses
    /// TLS. By default the system's trusted certificates are used.
    pub fn authority(mut self, file: impl Into<PathBuf>) -> Self {
        self.address.authority = Some(file.into());
        self
    }

    /// Sets the client certificate and its key, from PEM files.
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.address.certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the password of the sentinels, and the user if required. The login in the address
    /// applies to the server.
    pub fn sentinel_login(mut self, user: Option<&str>, password: impl Into<String>) -> Self {
        self.address.sentinel_login = Some((user.map(str::to_string), password.into()));
        self
    }

    /// Sets the maximum bytes of commands that an instance buffers until their epochs are
    /// committed, if the sink works [exactly once](Self::exactly_once); 256 MiB by default. At the
    /// limit the sink waits while commands are being executed or a commit is pending. If the
    /// current epoch alone exceeds the limit, the job fails. A shorter checkpoint interval
    /// (`checkpoints.every`) needs less memory.
    pub fn hold_at_most(mut self, bytes: usize) -> Self {
        self.held = bytes;
        self
    }

    /// Adds the sink's CPU time to `costs`, with two system calls per chunk.
    pub fn measure(mut self, costs: Arc<SinkCosts>) -> Self {
        self.costs = Some(costs);
        self
    }

    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T> {
        let RedisSink {
            address,
            tag,
            parallelism,
            on_error,
            repeats,
            held,
            costs,
            commands,
            ..
        } = self;
        let write = Arc::new(commands);
        let delivery = match repeats {
            Repeats::Unknown => Delivery::AtLeastOnce,
            Repeats::Harmless => Delivery::Idempotent,
            Repeats::Never => Delivery::ExactlyOnce,
        };
        SinkBuilder::new("redis")
            .parallelism(parallelism)
            .blocking()
            .writer(move |_| RedisWriter {
                address: address.clone(),
                tag: tag.clone(),
                has_begun: false,
                write: Arc::clone(&write),
                bad: BadRecords::new(on_error),
                repeats,
                held,
                costs: costs.clone(),
                begun: Duration::ZERO,
                count: 0,
                commands: Commands::default(),
                transactions: None,
                link: None,
                record: PhantomData::<fn(T)>,
            })
            .with_delivery(delivery)
    }
}

impl<T, F> From<RedisSink<T, F>> for Sink<T>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    fn from(sink: RedisSink<T, F>) -> Self {
        sink.build()
    }
}

/// Writer that converts records to commands and passes them to the connection worker.
struct RedisWriter<T, F> {
    address: Address,
    tag: Option<String>,
    /// True if the connection has been requested.
    has_begun: bool,
    write: Arc<F>,
    bad: BadRecords,
    repeats: Repeats,
    held: usize,
    costs: Option<Arc<SinkCosts>>,
    /// CPU time at the first of the current records, if it is measured, and their number.
    begun: Duration,
    count: usize,
    /// Commands of the current records.
    commands: Commands,
    /// Buffered transactions of an exactly-once sink; `None` if commands are executed at once.
    transactions: Option<Transactions>,
    link: Option<RedisWorker>,
    record: PhantomData<fn(T)>,
}

impl<T, F> RedisWriter<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    /// Waits up to `timeout` until all transactions handed to the worker are executed.
    fn await_executed(&mut self, timeout: Duration) -> Result<Progress> {
        let (Some(transactions), Some(link)) = (&mut self.transactions, &self.link) else {
            return Ok(Progress::DONE);
        };
        let is_done = !transactions.is_under_way() || link.is_done(timeout)?;
        if is_done {
            transactions.note_carried_out();
        }
        link.report_refused(&self.bad, REFUSED)?;
        Ok(Progress::done_if(is_done))
    }

    /// Requests a connection, and with it the checks of the server, on the first call.
    fn begin(&mut self) {
        if let (Some(link), false) = (&self.link, self.has_begun) {
            link.send(WorkerCommand::Connect);
            self.has_begun = true;
        }
    }
}

impl<T, F> SinkWriter for RedisWriter<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    type Record = T;

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        let mut promise = SinkGuarantee::AtLeastOnce;
        if self.repeats == Repeats::Never && context.guarantee.keeps_state() {
            let tag = self.tag.clone().unwrap_or_default();
            let key = match &self.tag {
                Some(tag) => format!("ardea:{{{tag}}}:{}:{}", context.job, context.vertex),
                None => format!("ardea:{}:{}", context.job, context.vertex),
            };
            promise = SinkGuarantee::Once {
                key: key.clone(),
                tag: self.tag.clone(),
            };
            self.transactions = Some(Transactions::new(key, tag, context.instance));
        }
        let link = ConnectionWorker::start(&self.address, promise, context.waker.clone())?;
        self.link = Some(link);
        Ok(())
    }

    fn has_room(&mut self) -> Result<bool> {
        self.begin();
        let Some(link) = &self.link else {
            return Ok(false);
        };
        let has_room = link.has_room()?;
        let now = self.bad.context().clock.now();
        if let Some(transactions) = &self.transactions
            && !transactions.has_room(self.held, now)?
        {
            // Wait until an executed transaction frees space or a commit arrives.
            if transactions.is_under_way() {
                link.is_done(CANCEL_CHECK_INTERVAL)?;
            }
            return Ok(false);
        }
        if self.repeats == Repeats::Harmless {
            self.commands.check();
        }
        self.begun = (self.costs.as_ref()).map_or(Duration::ZERO, |_| thread_cpu_time());
        Ok(has_room)
    }

    fn write(&mut self, record: &T, _: Timestamp, position: u64) -> Result<bool> {
        self.commands.begin(position);
        (self.write)(record, &mut self.commands);
        self.count += 1;
        Ok(true)
    }

    fn send(&mut self) -> Result<()> {
        let count = std::mem::take(&mut self.count);
        if let Some(costs) = &self.costs {
            costs.add(thread_cpu_time().saturating_sub(self.begun), count);
        }
        if let Some(name) = self.commands.unrepeatable() {
            let what = format!(
                "the command {name} is not idempotent, but its sink is declared idempotent"
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("use `exactly_once` instead of `idempotent`"));
        }
        match (&mut self.transactions, &self.link) {
            (Some(transactions), _) => transactions.gather(&mut self.commands),
            (None, Some(link)) => link.enqueue(&mut self.commands),
            (None, None) => {}
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration) -> Result<bool> {
        let link = self.link.as_ref();
        link.map_or(Ok(true), |link| link.settle(wait, &self.bad, REFUSED))
    }

    fn end_epoch(&mut self) -> Result<bool> {
        self.begin();
        self.finish()
    }

    fn finish(&mut self) -> Result<bool> {
        match self.transactions {
            Some(_) => Ok(true),
            None => self.poll(CANCEL_CHECK_INTERVAL),
        }
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn close(&mut self) {
        self.link = None;
    }
}

impl<T, F> Checkpointed for RedisWriter<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        let now = self.bad.context().clock.now();
        if let Some(transactions) = &mut self.transactions {
            transactions.take_snapshot(snapshot, now);
        }
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        match &mut self.transactions {
            Some(transactions) => transactions.write_snapshot(writer),
            None => Ok(Progress::DONE),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match &mut self.transactions {
                Some(transactions) => transactions.restore(&entry)?,
                None => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(link) = &self.link {
            link.with(|queue| queue.facts.is_restored = true);
        }
        self.begin();
        if let (Some(transactions), Some(link)) = (&mut self.transactions, &self.link) {
            let due = transactions.resume(epoch);
            due.into_iter()
                .map(WorkerCommand::Execute)
                .for_each(|due| link.send(due));
        }
        // Other instances may have restored commands for the same keys, which must be executed
        // before newer ones.
        self.await_executed(CANCEL_CHECK_INTERVAL)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if let (Some(transactions), Some(link)) = (&mut self.transactions, &self.link) {
            let (due, markers) = transactions.commit(epoch);
            due.into_iter()
                .map(WorkerCommand::Execute)
                .for_each(|due| link.send(due));
            let mut expiry = Commands::default();
            for marker in &markers {
                expiry.command("EXPIRE", &[marker, &MARKER_SECONDS]);
            }
            link.enqueue(&mut expiry);
        }
        self.await_executed(Duration::ZERO)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(transactions) = &mut self.transactions {
            transactions.abort_epoch(epoch);
        }
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        let transactions = self.transactions.as_ref();
        transactions.is_some_and(Transactions::is_pending)
    }
}
