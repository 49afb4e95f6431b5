//! The sink.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Delivery, Epoch, Inbox, Instance, InstanceContext, Isolation, OnError, Ordinal, Outbox,
    Parallelism, Processor, Progress, RecordGuard, Result, Sink, thread_cpu_time,
};

use crate::commands::Commands;
use crate::costs::SinkCosts;
use crate::link::Link;

/// The longest that a call waits before it looks at its job again.
const TURN: Duration = Duration::from_millis(100);

/// Sends the server at `url`, such as `"redis://localhost:6379/0"`, the commands that `commands` writes for each record.
///
/// It may write none, or several; those of one record may be carried out with those of others in between.
pub fn write<T, F>(url: impl Into<String>, commands: F) -> RedisSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    RedisSink {
        url: url.into(),
        parallelism: Parallelism::ONE,
        on_error: OnError::default(),
        costs: None,
        delivery: Delivery::AtLeastOnce,
        commands,
        record: PhantomData,
    }
}

/// A sink that sends commands to a Redis server; see the head of this crate for what it promises.
///
/// What has gathered while the server was busy goes to it at once, in one batch. At its end the job waits until all has been answered; a job
/// that is cancelled does not.
#[derive(Debug)]
pub struct RedisSink<T, F> {
    url: String,
    parallelism: Parallelism,
    on_error: OnError,
    costs: Option<Arc<SinkCosts>>,
    delivery: Delivery,
    commands: F,
    record: PhantomData<fn(T)>,
}

impl<T, F> RedisSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    /// Sets how many instances there are, each with a connection of its own.
    pub fn parallelism(mut self, parallelism: Parallelism) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// Sets what becomes of a record whose command the server refuses: told as a dead letter with its position (the default), dropped and
    /// counted, or the job fails.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Says that its commands come to the same when they are carried out again, as `SET` does and `INCR` does not: then a job that
    /// promises that each record counts once can rely upon it. All have been answered when the cut of an epoch is taken; those behind the
    /// last committed one come again after a failure.
    pub fn idempotent(mut self) -> Self {
        self.delivery = Delivery::Idempotent;
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
            url,
            parallelism,
            on_error,
            costs,
            delivery,
            commands,
            ..
        } = self;
        let write = Arc::new(commands);
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(WriteP::<T, F> {
                url: url.clone(),
                write: Arc::clone(&write),
                bad: BadRecords::new(on_error),
                costs: costs.clone(),
                commands: Commands::default(),
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
    url: String,
    write: Arc<F>,
    bad: BadRecords,
    costs: Option<Arc<SinkCosts>>,
    commands: Commands,
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
        Ok(())
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
}

impl<T, F> Processor for WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Commands) + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.link = Some(Link::open(&self.url)?);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let has_room = match &self.link {
            Some(link) => link.has_room(TURN)?,
            None => false,
        };
        if has_room {
            self.encode_all(inbox)?;
            if let Some(link) = &self.link {
                link.bring(&mut self.commands);
            }
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
        self.settle()
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.settle()
    }

    fn close(&mut self) {
        self.link = None;
    }
}
