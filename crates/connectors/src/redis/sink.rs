//! The sink.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Cut, CutWriter, Delivery, Epoch, Error, ErrorCode, Inbox, Instance,
    InstanceContext, Isolation, OnError, Ordinal, Outbox, Parallelism, Processor, Progress,
    RecordGuard, RestoredState, Result, Sink, thread_cpu_time,
};

use crate::redis::checks::Promise;
use crate::redis::commands::Commands;
use crate::redis::costs::SinkCosts;
use crate::redis::link::Link;
use crate::redis::place::Address;
use crate::redis::transactions::Transactions;

/// The longest that a call waits before it looks at its job again.
const TURN: Duration = Duration::from_millis(100);
/// For how many seconds the marker of an earlier life stays.
const MARKER_SECONDS: u32 = 7 * 24 * 60 * 60;

/// Sends the server at `url` the commands that `commands` writes for each record.
///
/// | address | servers |
/// |---|---|
/// | `redis://user:password@host:6379/0` | one server, or a cluster that has this node |
/// | `redis://host:7000,host:7001` | a cluster; nodes are tried in turn |
/// | `redis+sentinel://user:password@host:26379,other/main/0` | the primary server that the sentinels name `main` |
/// | `rediss://…`, `rediss+sentinel://…` | the same with TLS |
///
/// It may write none, or several; those of one record may be carried out with those of others in
/// between.
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

/// How many bytes of commands an instance may hold, unless told.
const HELD: usize = 256 << 20;

/// What becomes of commands that come again after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repeats {
    /// They are carried out again, whatever that does.
    Unknown,
    /// They are carried out again, which changes nothing.
    Harmless,
    /// They are not.
    Never,
}

/// A sink that sends commands to a Redis server; see the head of this crate for what it promises.
///
/// What has gathered while the server was busy goes to it at once, in one batch. At its end the job waits until all has been answered; a job
/// that is cancelled does not.
///
/// # In a job that keeps its state
///
/// | | when commands are carried out | after a failure |
/// |---|---|---|
/// | as it is | at once | those since the last snapshot are carried out again: at least once |
/// | [`idempotent`](Self::idempotent) | at once | so they are, which changes nothing: for `SET`, `HSET` … |
/// | [`exactly_once`](Self::exactly_once) | when their epoch is committed, together | each counts once: for `INCRBY`, `LPUSH`, `XADD` … |
///
/// Where they are carried out at once, a snapshot waits until all that came before it has been answered.
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
    /// Sets how many instances there are, each with a connection of its own.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets what becomes of a record whose command the server refuses: told as a dead letter with its position (the default), dropped and
    /// counted, or the job fails.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Says that all commands may be carried out twice, as they say how things are. One that is not known to be so fails the job.
    pub fn idempotent(mut self) -> Self {
        self.repeats = Repeats::Harmless;
        self
    }

    /// In a job that keeps its state, carries the commands of each epoch out once, in one transaction (`MULTI`), when the epoch has been
    /// committed. So they are seen later, by the interval between snapshots, and wait in memory, [within bounds](Self::hold_at_most), and in the
    /// snapshot, until then.
    ///
    /// The sink notes in Redis which epoch was the last, under a key an instance that begins with
    /// `ardea:` and the names of the job and the sink. A run that goes on from a snapshot has those
    /// of the run before removed in a week. Those of the last run stay. The server has to be one
    /// that does not lose what it has confirmed. Where the job keeps no state, commands are carried
    /// out at once.
    pub fn exactly_once(mut self) -> Self {
        self.repeats = Repeats::Never;
        self
    }

    /// Says that all keys have this hash tag, as `{orders}:7` has `orders`, so that a cluster keeps
    /// them in one slot. In a cluster a sink that works [exactly once](Self::exactly_once) needs
    /// it, as a transaction is carried out by one node; a record with another key is dealt with as
    /// one that the server refuses. It may not be changed in a job that goes on from a snapshot.
    pub fn hash_tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Trusts servers with a certificate for their name that is signed by an authority of this PEM
    /// file, where the address asks for TLS. Without it those of the system are trusted.
    pub fn authority(mut self, file: impl Into<PathBuf>) -> Self {
        self.address.authority = Some(file.into());
        self
    }

    /// Shows servers that ask for one this certificate, with its key, from PEM files.
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.address.certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the password of the sentinels, and the user if they have several. Those in the address
    /// are for the server itself.
    pub fn sentinel_login(mut self, user: Option<&str>, password: impl Into<String>) -> Self {
        self.address.sentinel_login = Some((user.map(str::to_string), password.into()));
        self
    }

    /// Sets how many bytes of commands an instance may hold in memory until their epochs are committed, where it works
    /// [exactly once](Self::exactly_once): 256 MiB by default. What is being carried out, or waits for a commit that is on its way, is waited for; where the epoch at hand alone is larger
    /// the job fails, and says so, rather than take all memory. Shorter epochs (`snapshots.every`) hold less.
    pub fn hold_at_most(mut self, bytes: usize) -> Self {
        self.held = bytes;
        self
    }

    /// Measures where the sink's cpu time goes; takes two system calls a chunk.
    pub fn measure(mut self, costs: Arc<SinkCosts>) -> Self {
        self.costs = Some(costs);
        self
    }

    /// The sink, for a pipeline.
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
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(WriteP::<T, F> {
                address: address.clone(),
                tag: tag.clone(),
                has_begun: false,
                write: Arc::clone(&write),
                bad: BadRecords::new(on_error),
                repeats,
                held,
                costs: costs.clone(),
                commands: Commands::default(),
                transactions: None,
                link: None,
                record: PhantomData,
            }))
        };
        Sink::new("redis", Arc::new(supply))
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
            .delivering(delivery)
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

/// Makes commands of records, and gives them to the link.
struct WriteP<T, F> {
    address: Address,
    tag: Option<String>,
    /// The connection has been asked for.
    has_begun: bool,
    write: Arc<F>,
    bad: BadRecords,
    repeats: Repeats,
    held: usize,
    costs: Option<Arc<SinkCosts>>,
    /// Of the records at hand.
    commands: Commands,
    /// Where commands wait until their epoch is committed; none if they are carried out at once.
    transactions: Option<Transactions>,
    link: Option<Link>,
    record: PhantomData<fn(T)>,
}

impl<T, F> WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    fn encode_all(&mut self, inbox: &mut Inbox) -> Result<()> {
        let first = inbox.position();
        let rows = inbox.rows::<T>()?;
        if self.repeats == Repeats::Harmless {
            self.commands.check();
        }
        let before = self.costs.as_ref().map(|_| thread_cpu_time());
        let mut guard = RecordGuard::new();
        for (record, position) in rows.values().iter().zip(first..) {
            self.commands.begin(position);
            (self.write)(record, &mut self.commands);
            guard.advance();
        }
        let count = rows.len();
        rows.clear();
        if let (Some(costs), Some(before)) = (&self.costs, before) {
            costs.add(thread_cpu_time().saturating_sub(before), count);
        }
        match self.commands.unrepeatable() {
            None => Ok(()),
            Some(name) => {
                let what = format!(
                    "the command {name} may not be carried out twice, and its sink is said to be idempotent"
                );
                Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint("use `exactly_once` in the place of `idempotent`"))
            }
        }
    }

    fn report_refused(&self) -> Result<()> {
        for refused in self
            .link
            .as_ref()
            .map(Link::take_refused)
            .unwrap_or_default()
        {
            let reason = format!("the Redis server refused its command: {}", refused.reason);
            self.bad
                .report(|| format!("record {}", refused.record), Vec::new, reason)?;
        }
        Ok(())
    }

    /// Waits a turn for all answers; says whether all have come.
    fn settle(&self) -> Result<Progress> {
        let is_done = match &self.link {
            Some(link) => link.is_done(TURN)?,
            None => true,
        };
        self.report_refused()?;
        Ok(Progress::done_if(is_done))
    }

    /// Waits, no longer than this, until all that has been handed out is carried out.
    fn carry_out(&mut self, timeout: Duration) -> Result<Progress> {
        let Some(transactions) = &mut self.transactions else {
            return Ok(Progress::DONE);
        };
        let is_done = match &self.link {
            Some(link) if transactions.is_under_way() => link.is_done(timeout)?,
            _ => true,
        };
        if is_done {
            transactions.note_carried_out();
        }
        self.report_refused()?;
        Ok(Progress::done_if(is_done))
    }

    /// Asks for a connection, which checks the server, unless that has been done.
    fn begin(&mut self) {
        if let (Some(link), false) = (&self.link, self.has_begun) {
            link.connect();
            self.has_begun = true;
        }
    }

    /// Sends what was gathered on, if nothing waits for an epoch.
    fn pass_on(&mut self) {
        match (&mut self.transactions, &self.link) {
            (Some(transactions), _) => transactions.gather(&mut self.commands),
            (None, Some(link)) => link.bring(&mut self.commands),
            (None, None) => {}
        }
    }
}

impl<T, F> Processor for WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        let mut promise = Promise::AtLeastOnce;
        if self.repeats == Repeats::Never && context.guarantee.keeps_state() {
            let tag = self.tag.clone().unwrap_or_default();
            let key = match &self.tag {
                Some(tag) => format!("ardea:{{{tag}}}:{}:{}", context.job, context.vertex),
                None => format!("ardea:{}:{}", context.job, context.vertex),
            };
            promise = Promise::Once {
                key: key.clone(),
                tag: self.tag.clone(),
            };
            self.transactions = Some(Transactions::new(key, tag, context.instance));
        }
        self.link = Some(Link::open(&self.address, promise, context.waker.clone())?);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.begin();
        let now = self.bad.context().clock.now();
        let mut has_room = match &self.link {
            Some(link) => link.has_room(TURN)?,
            None => false,
        };
        if let (Some(transactions), Some(link)) = (&self.transactions, &self.link)
            && !transactions.has_room(self.held, now)?
        {
            // Until what is being carried out makes room, or a commit is told.
            if transactions.is_under_way() {
                link.is_done(TURN)?;
            }
            has_room = false;
        }
        if has_room {
            self.encode_all(inbox)?;
            self.pass_on();
        }
        // Answers are heard also when nothing more comes for a while.
        outbox.wake_at(self.bad.context().clock.now().saturating_add(TURN));
        self.report_refused()
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        if let Some(link) = &self.link
            && !link.is_done(Duration::ZERO)?
        {
            outbox.wake_at(self.bad.context().clock.now().saturating_add(TURN));
        }
        self.report_refused()
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.begin();
        match self.transactions {
            Some(_) => Ok(Progress::DONE),
            None => self.settle(),
        }
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        match self.transactions {
            Some(_) => Ok(Progress::DONE),
            None => self.settle(),
        }
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        let now = self.bad.context().clock.now();
        if let Some(transactions) = &mut self.transactions {
            transactions.take_cut(cut, now);
        }
        Ok(())
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        match &mut self.transactions {
            Some(transactions) => transactions.write_cut(writer),
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
            link.note_restored();
        }
        self.begin();
        if let (Some(transactions), Some(link)) = (&mut self.transactions, &self.link) {
            let due = transactions.resume(epoch);
            due.into_iter().for_each(|due| link.carry_out(due));
        }
        // Other instances may have left commands for the same keys: nothing newer is carried out before all of those.
        self.carry_out(TURN)
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if let (Some(transactions), Some(link)) = (&mut self.transactions, &self.link) {
            let (due, markers) = transactions.commit(epoch);
            due.into_iter().for_each(|due| link.carry_out(due));
            let mut expiry = Commands::default();
            for marker in &markers {
                expiry.command("EXPIRE", &[marker, &MARKER_SECONDS]);
            }
            link.bring(&mut expiry);
        }
        self.carry_out(Duration::ZERO)
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(transactions) = &mut self.transactions {
            transactions.give_up(epoch);
        }
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        let transactions = self.transactions.as_ref();
        transactions.is_some_and(Transactions::is_pending)
    }

    fn close(&mut self) {
        self.link = None;
    }
}
