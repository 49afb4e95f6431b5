//! The thread that talks to the server: fetches ahead, acknowledges, and asks for patience.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, HeaderMap, ServerAddr, Subject};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Plan;
use crate::teller::{Teller, connect, servers};

/// So many messages wait at most.
const MOST: usize = 2_000;
/// How long a request for messages stands.
const STANDING: Duration = Duration::from_secs(1);
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
    /// Begins to fetch, by the durable consumer of this name.
    pub fn begin(plan: &Plan, consumer: String) -> Result<Reader> {
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

    async fn find(&self, client: &Client) -> std::result::Result<PullConsumer, Trouble> {
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
        let config = pull::Config {
            durable_name: Some(self.consumer.clone()),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.plan.patience,
            max_ack_pending: self.plan.in_flight.get().into(),
            filter_subject: self.plan.subject.clone(),
            ..pull::Config::default()
        };
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

    async fn serve(
        &mut self,
        client: &Client,
        consumer: &PullConsumer,
    ) -> std::result::Result<(), Stop> {
        let mut patience = tokio::time::interval(self.plan.patience / 3);
        let mut look = tokio::time::interval(STANDING);
        loop {
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
        let nanos = info.published.unix_timestamp_nanos();
        let (number, published) = (
            info.stream_sequence,
            Timestamp::from_micros(i64::try_from(nanos / 1_000).unwrap_or(i64::MAX)),
        );
        if let Some(reply) = &message.reply {
            self.held.insert(number, reply.clone());
        }
        self.teller.heard();
        let (message, _) = message.split();
        self.desk.lock().fetched.push_back(Fetched {
            number,
            published,
            subject: message.subject,
            payload: message.payload,
            headers: message.headers,
        });
        self.desk.changed.notify_all();
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

/// What an answer asks for.
enum Trouble {
    /// The same again, later.
    Passing(String),
    Final(Error),
}
