//! The thread that talks to the server: fetches ahead, acknowledges, and asks for patience.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, OnLostPosition, Result, Timestamp};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{ConsumerErrorKind, Info, Stream};
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, HeaderMap, ServerAddr, Subject};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Plan;
use super::position::{self, Known};
use super::rewind;
use super::unreadable::next_raw;
use crate::nats::teller::{Teller, connect, servers};

/// So many messages wait at most.
const MOST: usize = 2_000;
/// How long a request for messages stands.
const STANDING: Duration = Duration::from_secs(1);
/// The number of connections that break one after the other before a message is looked for at which
/// they break.
const MOST_BREAKS: u32 = 2;
/// The shortest time between two requests for patience.
const SHORTEST: Duration = Duration::from_millis(1);
/// How soon something is tried again.
const AGAIN: Duration = Duration::from_millis(300);

/// A message that has been fetched.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub number: u64,
    pub published: Timestamp,
    pub subject: Subject,
    pub payload: Bytes,
    pub headers: Option<HeaderMap>,
    /// Why it can't be read, if it can't.
    pub unreadable: Option<&'static str>,
}

/// What the thread is asked to do.
#[derive(Debug)]
enum Wish {
    Acknowledge(Vec<u64>),
    /// There is room for more.
    GoOn,
}

#[derive(Default)]
struct State {
    fetched: VecDeque<Fetched>,
    /// Up to this one the server has all acknowledgements.
    floor: u64,
    /// When the stream was created.
    created: Option<i64>,
    failed: Option<Error>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches until this is dropped. Then what was not acknowledged is given back.
pub(crate) struct Reader {
    desk: Arc<Desk>,
    wishes: UnboundedSender<Wish>,
}

impl Reader {
    /// Begins to fetch, by the durable consumer of this name. `keeps` says that what is known of
    /// the stream outlives this process.
    pub fn begin(plan: &Plan, consumer: String, known: Known, keeps: bool) -> Result<Reader> {
        let servers = servers(&plan.url.0)?;
        let desk = Arc::new(Desk::default());
        let (wishes, heard) = unbounded_channel();
        let task = Task {
            teller: Teller::new(&servers),
            servers,
            plan: plan.clone(),
            consumer,
            desk: Arc::clone(&desk),
            wishes: heard,
            held: HashMap::new(),
            may_have_moved: true,
            highest: known.highest(),
            may_be_ahead: keeps && known.highest() > 0,
            known,
            keeps,
            connections: 0,
            breaks: 0,
            gap: None,
            tells_losses: false,
            is_checked: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let started = runtime.and_then(|runtime| {
            std::thread::Builder::new()
                .name("nats-reader".to_string())
                .spawn(move || runtime.block_on(task.run()))
        });
        started.map_err(|error| {
            Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
        })?;
        Ok(Reader { desk, wishes })
    }

    /// Up to so many messages, in the order in which they came; the first is waited for, at most `timeout`.
    pub fn take(&self, most: usize, timeout: Duration) -> Result<Vec<Fetched>> {
        let mut state = self.desk.lock();
        if state.fetched.is_empty() && state.failed.is_none() {
            let waited = self.desk.changed.wait_timeout(state, timeout);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.fetched.is_empty() && state.failed.is_none() && self.wishes.is_closed() {
            let what = "the thread that reads a stream of NATS has ended by itself";
            return Err(Error::new(ErrorCode::Internal, what));
        }
        if state.fetched.is_empty()
            && let Some(error) = &state.failed
        {
            return Err(error.clone());
        }
        let was_full = state.fetched.len() >= MOST;
        let count = state.fetched.len().min(most);
        let taken = state.fetched.drain(..count).collect();
        if was_full {
            self.wish(Wish::GoOn);
        }
        Ok(taken)
    }

    /// Up to which message the server has all acknowledgements, as far as is known.
    pub fn floor(&self) -> u64 {
        self.desk.lock().floor
    }

    /// When the stream was created, in nanoseconds since 1970, as soon as that is known.
    pub fn created(&self) -> Option<i64> {
        self.desk.lock().created
    }

    /// Acknowledges messages; those that this life has not got are acknowledged when they come.
    pub fn acknowledge(&self, numbers: Vec<u64>) {
        if !numbers.is_empty() {
            self.wish(Wish::Acknowledge(numbers));
        }
    }

    fn wish(&self, wish: Wish) {
        // One that has failed says so when it is asked for messages.
        let _ = self.wishes.send(wish);
    }
}

/// What the thread knows.
struct Task {
    plan: Plan,
    servers: Vec<ServerAddr>,
    teller: Teller,
    consumer: String,
    desk: Arc<Desk>,
    wishes: UnboundedReceiver<Wish>,
    /// Where to acknowledge messages that have come.
    held: HashMap<u64, Subject>,
    /// The floor may have moved since it was asked for.
    may_have_moved: bool,
    /// The knowledge of the stream with which the job began.
    known: Known,
    keeps: bool,
    /// The consumer has not been compared with what the job knew when it began.
    may_be_ahead: bool,
    /// The highest number of a message that has come.
    highest: u64,
    /// The number of connections when the consumer was found.
    connections: u64,
    /// The number of connections that broke since a message has come.
    breaks: u32,
    /// Numbers of messages that have not come, though later ones have; looked for if they would be
    /// losses.
    gap: Option<(u64, u64)>,
    tells_losses: bool,
    /// The stream was compared with what was known at the beginning.
    is_checked: bool,
}

/// Why the thread goes no further.
enum Stop {
    /// Nobody wants anything more.
    Over,
    /// The server does not give messages: perhaps it has the consumer no more.
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
        for (_, reply) in self.held.drain() {
            let _ = client.publish(reply, AckKind::Nak(None).into()).await;
        }
        let _ = tokio::time::timeout(AGAIN, client.flush()).await;
    }

    fn fail(&self, error: Error) {
        self.desk.lock().failed = Some(error);
        self.desk.changed.notify_all();
    }

    /// Connects, however long that takes; none if nobody waits for it any more.
    async fn reach(&mut self) -> Option<Client> {
        loop {
            match connect(&self.servers, &self.teller).await {
                Ok(client) => return Some(client),
                Err(why) => self.teller.away(&why),
            }
            tokio::time::sleep(AGAIN).await;
            if self.wishes.is_closed() {
                return None;
            }
        }
    }

    /// Finds the consumer, which is made where it is missing, however long that takes; none if it can't be had, or nobody waits for it.
    async fn find_patiently(&mut self, client: &Client) -> Option<PullConsumer> {
        loop {
            match self.find(client).await {
                Ok(found) => {
                    self.teller.heard();
                    return Some(found);
                }
                Err(Trouble::Final(error)) => {
                    self.fail(error);
                    return None;
                }
                Err(Trouble::Passing(why)) => self.teller.away(&why),
            }
            if self.rest(client).await.is_err() {
                return None;
            }
        }
    }

    async fn find(&mut self, client: &Client) -> std::result::Result<PullConsumer, Trouble> {
        let context = jetstream::new(client.clone());
        let stream = context
            .get_stream(&self.plan.stream)
            .await
            .map_err(|error| match error.kind() {
                GetStreamErrorKind::JetStream(said) if said.code() == 404 => {
                    let what = format!("there is no stream {} on the server", self.plan.stream);
                    Trouble::Final(
                        Error::new(ErrorCode::InvalidJob, what)
                            .hint("create it, or check its name; subjects are not streams"),
                    )
                }
                _ => Trouble::Passing(error.to_string()),
            })?;
        self.check(stream.cached_info()).map_err(Trouble::Final)?;
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
                self.teller.note(&format!(
                    "its consumer {name} is further on than the job, and made anew at message {first}"
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

    /// Makes the consumer where it is missing.
    async fn create(
        &self,
        stream: &Stream,
        config: pull::Config,
    ) -> std::result::Result<PullConsumer, Trouble> {
        let consumer = stream.create_consumer(config).await;
        consumer.map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(said) if said.code() == 400 => {
                let what = format!(
                    "the stream {} does not take the consumer {}",
                    self.plan.stream, self.consumer
                );
                Trouble::Final(
                    Error::new(ErrorCode::InvalidJob, what)
                        .because(error)
                        .hint("delete a consumer of this name that is of another kind, or name another one (`consumer`)"),
                )
            }
            _ => Trouble::Passing(error.to_string()),
        })
    }

    /// Refuses a stream that is not the one that the job has read.
    fn check(&mut self, stream: &Info) -> Result<()> {
        if let Some(gap) = self.gap.take() {
            position::check_removed(gap, stream, &self.plan)?;
        }
        if self.is_checked {
            // Messages below have come, also those that are not known to be read.
            self.known.floor = self.highest;
            self.known.runs.clear();
        }
        if let Some(loss) = position::check(&self.known, stream, &self.plan)? {
            let first = stream.state.first_sequence;
            self.teller
                .note(&format!("{loss}; reading goes on at message {first}"));
        }
        let created = position::created(stream);
        self.known.created = Some(created);
        self.desk.lock().created = Some(created);
        self.is_checked = true;
        self.tells_losses =
            self.plan.on_lost == OnLostPosition::Fail && position::tells_losses(stream, &self.plan);
        Ok(())
    }

    /// Returns where the consumer begins: as it was made, if it is there. One that was deleted
    /// while messages came is made anew.
    async fn begins_at(&self, stream: &Stream) -> std::result::Result<DeliverPolicy, Trouble> {
        match stream.consumer_info(&self.consumer).await {
            Ok(found) => Ok(found.config.deliver_policy),
            Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {
                if self.highest > 0 {
                    let consumer = &self.consumer;
                    self.teller
                        .note(&format!("its consumer {consumer} is gone, and made anew"));
                }
                // Messages that were read are known, and not read again.
                Ok(match self.highest {
                    highest if highest > 0 && !self.keeps => DeliverPolicy::ByStartSequence {
                        start_sequence: highest + 1,
                    },
                    _ => DeliverPolicy::All,
                })
            }
            Err(error) => Err(Trouble::Passing(error.to_string())),
        }
    }

    async fn serve(
        &mut self,
        client: &Client,
        consumer: &PullConsumer,
    ) -> std::result::Result<(), Stop> {
        let mut patience = tokio::time::interval((self.plan.patience / 3).max(SHORTEST));
        let mut look = tokio::time::interval(STANDING);
        self.connections = self.teller.connections();
        loop {
            if self.teller.connections() != self.connections {
                // The server that answers now may have another stream.
                self.breaks += 1;
                return Err(Stop::Lost);
            }
            if self.gap.is_some() {
                return Err(Stop::Lost);
            }
            let room = MOST.saturating_sub(self.desk.lock().fetched.len());
            if room == 0 {
                tokio::select! {
                    wish = self.wishes.recv() => self.grant(client, wish).await?,
                    _ = patience.tick() => self.ask_for_patience(client).await,
                    _ = look.tick() => self.ask_for_floor(consumer).await?,
                }
                continue;
            }
            let request = consumer.batch().max_messages(room).expires(STANDING);
            let mut batch = match request.messages().await {
                Ok(batch) => batch,
                Err(error) => {
                    self.teller.away(&error.to_string());
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
                    wish = self.wishes.recv() => self.grant(client, wish).await?,
                    _ = patience.tick() => self.ask_for_patience(client).await,
                    _ = look.tick() => self.ask_for_floor(consumer).await?,
                }
            }
        }
    }

    /// Waits a moment, and does meanwhile what is wished.
    async fn rest(&mut self, client: &Client) -> std::result::Result<(), Stop> {
        let until = tokio::time::Instant::now() + AGAIN;
        loop {
            tokio::select! {
                wish = self.wishes.recv() => self.grant(client, wish).await?,
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
            self.held.insert(number, reply.clone());
        }
        if number > self.highest {
            if self.tells_losses && self.highest > 0 && number > self.highest + 1 {
                self.gap.get_or_insert((self.highest + 1, number - 1));
            }
            self.highest = number;
            self.breaks = 0;
        }
        self.teller.heard();
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
        self.desk.lock().fetched.push_back(fetched);
        self.desk.changed.notify_all();
    }

    /// Hands over the first message at which the client breaks its connection, if there is one.
    async fn pass_unreadable(&mut self, client: &Client, consumer: &PullConsumer) {
        let Ok(info) = consumer.get_info().await else {
            return;
        };
        let mut next = info.ack_floor.stream_sequence + 1;
        // It is among those that are under way, or the next one.
        for _ in 0..=self.plan.in_flight.get() {
            let (stream, subject) = (&self.plan.stream, &self.plan.subject);
            let Ok(Some(raw)) = next_raw(client, stream, next, subject).await else {
                return;
            };
            next = raw.number + 1;
            if !raw.is_unreadable || self.held.contains_key(&raw.number) {
                continue;
            }
            let number = raw.number;
            // The server looks at the message's number only.
            let reply = format!("$JS.ACK.{stream}.{}.1.{number}.1.0.0", self.consumer);
            self.held.insert(number, reply.into());
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
        wish: Option<Wish>,
    ) -> std::result::Result<(), Stop> {
        match wish {
            None => return Err(Stop::Over),
            Some(Wish::GoOn) => {}
            Some(Wish::Acknowledge(numbers)) => {
                for number in numbers {
                    if let Some(reply) = self.held.remove(&number) {
                        // One that is lost is made up for when the message comes again.
                        let _ = client.publish(reply, AckKind::Ack.into()).await;
                        self.may_have_moved = true;
                    }
                }
            }
        }
        Ok(())
    }

    async fn ask_for_patience(&self, client: &Client) {
        for reply in self.held.values() {
            let _ = client
                .publish(reply.clone(), AckKind::Progress.into())
                .await;
        }
    }

    /// Asks up to which message all have been acknowledged.
    async fn ask_for_floor(&mut self, consumer: &PullConsumer) -> std::result::Result<(), Stop> {
        if !self.may_have_moved {
            return Ok(());
        }
        let asked = tokio::time::timeout(STANDING, consumer.get_info()).await;
        let Ok(Ok(info)) = asked else { return Ok(()) };
        if info.num_ack_pending == self.held.len() {
            self.may_have_moved = false;
        }
        self.desk.lock().floor = info.ack_floor.stream_sequence;
        Ok(())
    }
}

/// Returns a time of the server, given in nanoseconds since 1970.
fn time(nanos: i128) -> Timestamp {
    let micros = nanos.div_euclid(1_000);
    let limit = if micros < 0 { i64::MIN } else { i64::MAX };
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(limit))
}

/// What an answer asks for.
pub(super) enum Trouble {
    /// The same again, later.
    Passing(String),
    Final(Error),
}
