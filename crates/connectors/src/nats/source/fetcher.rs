//! Fetcher thread: prefetches messages, acknowledges them and extends their acknowledgement
//! deadlines.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, OnLostPosition, Result, Timestamp, Waker};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{ConsumerErrorKind, Info, Stream};
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, HeaderMap, ServerAddr, Subject};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::NatsSourceConfig;
use super::position::{self, Known};
use super::rewind;
use super::unreadable::next_raw;
use crate::blocking_worker::{BlockingWorker, WorkerContext, runtime};
use crate::nats::connection::{ServerStatus, connect, servers};

/// Maximum number of prefetched messages.
const MOST: usize = 2_000;
/// Expiry of a pull request.
const STANDING: Duration = Duration::from_secs(1);
/// Number of consecutive connection failures after which the fetcher searches for an unreadable
/// message as their cause.
const MOST_BREAKS: u32 = 2;
/// Shortest interval between two extensions of acknowledgement deadlines.
const SHORTEST: Duration = Duration::from_millis(1);
/// Retry delay.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// A fetched message.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub number: u64,
    pub published: Timestamp,
    pub subject: Subject,
    pub payload: Bytes,
    pub headers: Option<HeaderMap>,
    /// Reason if the message is unreadable.
    pub unreadable: Option<&'static str>,
}

/// Command to the fetcher thread.
#[derive(Debug)]
enum FetcherCommand {
    Acknowledge(Vec<u64>),
    /// There is space for more messages.
    GoOn,
}

#[derive(Default)]
struct State {
    fetched: VecDeque<Fetched>,
    /// Number up to which the server has received all acknowledgements.
    floor: u64,
    /// Creation time of the stream.
    created: Option<i64>,
}

/// Handle of the fetcher thread, which runs until the handle is dropped and then releases
/// unacknowledged messages for redelivery.
pub(crate) struct Reader {
    worker: BlockingWorker<State>,
    commands: UnboundedSender<FetcherCommand>,
}

impl Reader {
    /// Starts fetching with the durable consumer named `consumer`. `keeps` is true if the job has
    /// checkpoints.
    pub fn begin(
        plan: &NatsSourceConfig,
        consumer: String,
        known: Known,
        keeps: bool,
    ) -> Result<Reader> {
        let servers = servers(&plan.url.0)?;
        let (runtime, plan) = (runtime()?, plan.clone());
        let (wishes, heard) = unbounded_channel();
        let start = move |queue| Task {
            status: ServerStatus::new(&servers),
            servers,
            plan,
            consumer,
            queue,
            commands: heard,
            reply_subjects: HashMap::new(),
            may_have_moved: true,
            highest: known.highest(),
            may_be_ahead: keeps && known.highest() > 0,
            known,
            keeps,
            connections: 0,
            breaks: 0,
            gap: None,
            detects_losses: false,
            is_checked: false,
        };
        let run = move |queue| runtime.block_on(start(queue).run());
        let worker = BlockingWorker::start("nats-reader", Waker::none(), State::default(), run)?;
        Ok(Reader {
            worker,
            commands: wishes,
        })
    }

    /// Returns up to `most` messages in order of arrival; waits up to `timeout` for the first
    /// message.
    pub fn take(&self, most: usize, timeout: Duration) -> Result<Vec<Fetched>> {
        let taken = self.worker.take(timeout, |State { fetched, .. }| {
            let was_full = fetched.len() >= MOST;
            let count = fetched.len().min(most);
            (count > 0).then(|| (fetched.drain(..count).collect(), was_full))
        })?;
        let (taken, was_full) = taken.unwrap_or_default();
        if was_full {
            self.send_command(FetcherCommand::GoOn);
        }
        Ok(taken)
    }

    /// Returns the number up to which the server is known to have received all acknowledgements.
    pub fn floor(&self) -> u64 {
        self.worker.with(|state| state.floor)
    }

    /// Returns the creation time of the stream in nanoseconds since 1970, once known.
    pub fn created(&self) -> Option<i64> {
        self.worker.with(|state| state.created)
    }

    /// Acknowledges messages. Messages not received in this attempt are acknowledged when they are
    /// redelivered.
    pub fn acknowledge(&self, numbers: Vec<u64>) {
        if !numbers.is_empty() {
            self.send_command(FetcherCommand::Acknowledge(numbers));
        }
    }

    fn send_command(&self, wish: FetcherCommand) {
        // A failed thread reports its error on the next request for messages.
        let _ = self.commands.send(wish);
    }
}

/// State of the fetcher thread.
struct Task {
    plan: NatsSourceConfig,
    servers: Vec<ServerAddr>,
    status: ServerStatus,
    consumer: String,
    queue: WorkerContext<State>,
    commands: UnboundedReceiver<FetcherCommand>,
    /// Reply subjects of received, unacknowledged messages.
    reply_subjects: HashMap<u64, Subject>,
    /// True if acknowledgements were sent since the floor was last requested.
    may_have_moved: bool,
    /// Known state of the stream at the start of the job.
    known: Known,
    keeps: bool,
    /// True until the consumer has been compared with the restored state, since it may be ahead.
    may_be_ahead: bool,
    /// Highest message number received.
    highest: u64,
    /// Number of connections when the consumer was found.
    connections: u64,
    /// Connection failures since the last message.
    breaks: u32,
    /// Range of message numbers that the server has skipped, still to be checked for lost messages.
    gap: Option<(u64, u64)>,
    detects_losses: bool,
    /// True after the stream was compared with the restored state.
    is_checked: bool,
}

/// Reason why serving stops.
enum Stop {
    /// The reader was dropped.
    Over,
    /// The server delivers no messages: the consumer may have been deleted.
    Lost,
}

impl Task {
    async fn run(mut self) {
        let Some(client) = self.reach().await else {
            return;
        };
        while let Some(consumer) = self.find_patiently(&client).await {
            if self.breaks >= MOST_BREAKS {
                self.pass_unreadable(&client, &consumer).await;
            }
            if matches!(self.serve(&client, &consumer).await, Err(Stop::Over)) {
                break;
            }
        }
        for (_, reply) in self.reply_subjects.drain() {
            let _ = client.publish(reply, AckKind::Nak(None).into()).await;
        }
        let _ = tokio::time::timeout(RETRY_DELAY, client.flush()).await;
    }

    /// Connects, with retries without limit; `None` on shutdown.
    async fn reach(&mut self) -> Option<Client> {
        loop {
            match connect(&self.servers, &self.status).await {
                Ok(client) => return Some(client),
                Err(why) => self.status.outage.away(&why),
            }
            tokio::time::sleep(RETRY_DELAY).await;
            if self.commands.is_closed() {
                return None;
            }
        }
    }

    /// Finds the consumer or creates it, with retries without limit; `None` on a final error or on
    /// shutdown.
    async fn find_patiently(&mut self, client: &Client) -> Option<PullConsumer> {
        loop {
            match self.find(client).await {
                Ok(found) => {
                    self.status.outage.answers();
                    return Some(found);
                }
                Err(ErrorAction::Final(error)) => {
                    self.queue.fail(error);
                    return None;
                }
                Err(ErrorAction::Passing(why)) => self.status.outage.away(&why),
            }
            if self.rest(client).await.is_err() {
                return None;
            }
        }
    }

    async fn find(&mut self, client: &Client) -> std::result::Result<PullConsumer, ErrorAction> {
        let context = jetstream::new(client.clone());
        let stream = context
            .get_stream(&self.plan.stream)
            .await
            .map_err(|error| match error.kind() {
                GetStreamErrorKind::JetStream(said) if said.code() == 404 => {
                    let what = format!("there is no stream {} on the server", self.plan.stream);
                    ErrorAction::Final(
                        Error::new(ErrorCode::InvalidJob, what)
                            .hint("create it, or check its name; subjects are not streams"),
                    )
                }
                _ => ErrorAction::Passing(error.to_string()),
            })?;
        self.check(stream.cached_info())
            .map_err(ErrorAction::Final)?;
        let mut config = pull::Config {
            durable_name: Some(self.consumer.clone()),
            deliver_policy: self.begins_at(&stream).await?,
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.plan.patience,
            max_ack_pending: self.plan.in_flight.get().into(),
            filter_subject: self.plan.subject.clone(),
            ..pull::Config::default()
        };
        let consumer = self.create(&stream, config.clone()).await?;
        if self.may_be_ahead {
            let ahead = rewind::first_passed_over(client, &self.plan, &self.known, &consumer);
            if let Some(first) = ahead.await? {
                let (stream, name) = (&stream, &*self.consumer);
                rewind::delete(stream, name, first).await?;
                self.status.outage.log_line(format_args!(
                    "its consumer {name} is ahead of the job, and is created again at message {first}"
                ));
                config.deliver_policy = DeliverPolicy::ByStartSequence {
                    start_sequence: first,
                };
                let anew = self.create(stream, config).await?;
                self.may_be_ahead = false;
                return Ok(anew);
            }
            self.may_be_ahead = false;
        }
        Ok(consumer)
    }

    /// Creates the consumer if it is missing.
    async fn create(
        &self,
        stream: &Stream,
        config: pull::Config,
    ) -> std::result::Result<PullConsumer, ErrorAction> {
        let consumer = stream.create_consumer(config).await;
        consumer.map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(said) if said.code() == 400 => {
                let what = format!(
                    "the stream {} does not accept the consumer {}",
                    self.plan.stream, self.consumer
                );
                ErrorAction::Final(
                    Error::new(ErrorCode::InvalidJob, what)
                        .because(error)
                        .hint("delete the existing consumer of this name if it is of another kind, or use another name (`consumer`)"),
                )
            }
            _ => ErrorAction::Passing(error.to_string()),
        })
    }

    /// Checks that the stream is the one that the job has read before, and not a new stream of the
    /// same name.
    fn check(&mut self, stream: &Info) -> Result<()> {
        if let Some(gap) = self.gap.take() {
            position::check_removed(gap, stream, &self.plan)?;
        }
        if self.is_checked {
            // All messages up to the highest one count as received, including those not recorded as
            // read.
            self.known.floor = self.highest;
            self.known.runs.clear();
        }
        if let Some(loss) = position::check(&self.known, stream, &self.plan)? {
            let first = stream.state.first_sequence;
            self.status
                .outage
                .log_line(format_args!("{loss}; reading continues at message {first}"));
        }
        let created = position::created(stream);
        self.known.created = Some(created);
        self.queue.with(|state| state.created = Some(created));
        self.is_checked = true;
        self.detects_losses = self.plan.on_lost == OnLostPosition::Fail
            && position::detects_losses(stream, &self.plan);
        Ok(())
    }

    /// Returns the start position of the consumer: unchanged if the consumer exists; otherwise the
    /// start for a new consumer.
    async fn begins_at(&self, stream: &Stream) -> std::result::Result<DeliverPolicy, ErrorAction> {
        match stream.consumer_info(&self.consumer).await {
            Ok(found) => Ok(found.config.deliver_policy),
            Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {
                if self.highest > 0 {
                    let consumer = &self.consumer;
                    self.status
                        .outage
                        .log_line(format_args!("its consumer {consumer} is created again"));
                }
                // With checkpoints, messages read before are deduplicated.
                Ok(match self.highest {
                    highest if highest > 0 && !self.keeps => DeliverPolicy::ByStartSequence {
                        start_sequence: highest + 1,
                    },
                    _ => DeliverPolicy::All,
                })
            }
            Err(error) => Err(ErrorAction::Passing(error.to_string())),
        }
    }

    async fn serve(
        &mut self,
        client: &Client,
        consumer: &PullConsumer,
    ) -> std::result::Result<(), Stop> {
        let mut patience = tokio::time::interval((self.plan.patience / 3).max(SHORTEST));
        let mut look = tokio::time::interval(STANDING);
        self.connections = self.status.connections();
        loop {
            if self.status.connections() != self.connections {
                // The server may have another stream after a reconnect.
                self.breaks += 1;
                return Err(Stop::Lost);
            }
            if self.gap.is_some() {
                return Err(Stop::Lost);
            }
            let room = MOST.saturating_sub(self.queue.with(|state| state.fetched.len()));
            if room == 0 {
                tokio::select! {
                    wish = self.commands.recv() => self.grant(client, wish).await?,
                    _ = patience.tick() => self.extend_ack_deadlines(client).await,
                    _ = look.tick() => self.request_ack_floor(consumer).await?,
                }
                continue;
            }
            let request = consumer.batch().max_messages(room).expires(STANDING);
            let mut batch = match request.messages().await {
                Ok(batch) => batch,
                Err(error) => {
                    self.status.outage.away(error);
                    self.rest(client).await?;
                    return Err(Stop::Lost);
                }
            };
            loop {
                tokio::select! {
                    message = batch.next() => match message {
                        Some(Ok(message)) => self.take(message),
                        Some(Err(_)) => {
                            self.rest(client).await?;
                            return Err(Stop::Lost);
                        }
                        None => break,
                    },
                    wish = self.commands.recv() => self.grant(client, wish).await?,
                    _ = patience.tick() => self.extend_ack_deadlines(client).await,
                    _ = look.tick() => self.request_ack_floor(consumer).await?,
                }
            }
        }
    }

    /// Waits for [`RETRY_DELAY`] while processing commands.
    async fn rest(&mut self, client: &Client) -> std::result::Result<(), Stop> {
        let until = tokio::time::Instant::now() + RETRY_DELAY;
        loop {
            tokio::select! {
                wish = self.commands.recv() => self.grant(client, wish).await?,
                () = tokio::time::sleep_until(until) => return Ok(()),
            }
        }
    }

    fn take(&mut self, message: jetstream::Message) {
        let Ok(info) = message.info() else { return };
        let (number, published) = (
            info.stream_sequence,
            time(info.published.unix_timestamp_nanos()),
        );
        if let Some(reply) = &message.reply {
            self.reply_subjects.insert(number, reply.clone());
        }
        if number > self.highest {
            if self.detects_losses && self.highest > 0 && number > self.highest + 1 {
                self.gap.get_or_insert((self.highest + 1, number - 1));
            }
            self.highest = number;
            self.breaks = 0;
        }
        self.status.outage.answers();
        let (message, _) = message.split();
        self.hand_over(Fetched {
            number,
            published,
            subject: message.subject,
            payload: message.payload,
            headers: message.headers,
            unreadable: None,
        });
    }

    fn hand_over(&self, fetched: Fetched) {
        self.queue.update(|state| state.fetched.push_back(fetched));
    }

    /// Passes the first message at which the client drops its connection, if any, to the source.
    async fn pass_unreadable(&mut self, client: &Client, consumer: &PullConsumer) {
        let Ok(info) = consumer.get_info().await else {
            return;
        };
        let mut next = info.ack_floor.stream_sequence + 1;
        // The message is one of the unacknowledged messages or the next one.
        for _ in 0..=self.plan.in_flight.get() {
            let (stream, subject) = (&self.plan.stream, &self.plan.subject);
            let Ok(Some(raw)) = next_raw(client, stream, next, subject).await else {
                return;
            };
            next = raw.number + 1;
            if !raw.is_unreadable || self.reply_subjects.contains_key(&raw.number) {
                continue;
            }
            let number = raw.number;
            // The server evaluates only the message's number.
            let reply = format!("$JS.ACK.{stream}.{}.1.{number}.1.0.0", self.consumer);
            self.reply_subjects.insert(number, reply.into());
            self.breaks = 0;
            self.hand_over(Fetched {
                number,
                published: time(raw.published),
                subject: raw.subject.into(),
                payload: raw.payload.into(),
                headers: None,
                unreadable: Some("its headers are not UTF-8"),
            });
            return;
        }
    }

    async fn grant(
        &mut self,
        client: &Client,
        wish: Option<FetcherCommand>,
    ) -> std::result::Result<(), Stop> {
        match wish {
            None => return Err(Stop::Over),
            Some(FetcherCommand::GoOn) => {}
            Some(FetcherCommand::Acknowledge(numbers)) => {
                for number in numbers {
                    if let Some(reply) = self.reply_subjects.remove(&number) {
                        // A lost acknowledgement is repeated when the message is redelivered.
                        let _ = client.publish(reply, AckKind::Ack.into()).await;
                        self.may_have_moved = true;
                    }
                }
            }
        }
        Ok(())
    }

    async fn extend_ack_deadlines(&self, client: &Client) {
        for reply in self.reply_subjects.values() {
            let _ = client
                .publish(reply.clone(), AckKind::Progress.into())
                .await;
        }
    }

    /// Requests the number up to which all messages are acknowledged.
    async fn request_ack_floor(
        &mut self,
        consumer: &PullConsumer,
    ) -> std::result::Result<(), Stop> {
        if !self.may_have_moved {
            return Ok(());
        }
        let asked = tokio::time::timeout(STANDING, consumer.get_info()).await;
        let Ok(Ok(info)) = asked else { return Ok(()) };
        if info.num_ack_pending == self.reply_subjects.len() {
            self.may_have_moved = false;
        }
        let floor = info.ack_floor.stream_sequence;
        self.queue.with(|state| state.floor = floor);
        Ok(())
    }
}

/// Converts a server time in nanoseconds since 1970.
fn time(nanos: i128) -> Timestamp {
    let micros = nanos.div_euclid(1_000);
    let limit = if micros < 0 { i64::MIN } else { i64::MAX };
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(limit))
}

/// Reaction to an error of the server.
pub(super) enum ErrorAction {
    /// Retry later.
    Passing(String),
    Final(Error),
}
