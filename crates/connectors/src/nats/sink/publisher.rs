//! The thread that publishes, and waits for confirmation.

use std::collections::VecDeque;
use std::error::Error as _;
use std::future::IntoFuture;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use async_nats::ServerAddr;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context};

use super::Plan;
use crate::nats::sink::Outgoing;
use crate::nats::teller::{Teller, connect, servers};

/// With so many messages waiting, whoever brings more has to wait.
const FULL: usize = 4_000;
/// So many are sent before the first is confirmed.
const UNDER_WAY: usize = 500;
/// How long a confirmation may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How soon something is tried again.
const AGAIN: Duration = Duration::from_millis(300);

/// A message that waits, and the position of its record.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub record: u64,
    pub id: String,
    pub message: Outgoing,
}

/// A message that the server refused.
pub(crate) struct Refused {
    pub record: u64,
    pub reason: String,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    is_busy: bool,
    refused: Vec<Refused>,
    is_over: bool,
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

/// Publishes until this is dropped.
pub(crate) struct Publisher {
    desk: Arc<Desk>,
}

impl Publisher {
    /// Begins to connect.
    pub fn begin(plan: &Plan) -> Result<Publisher> {
        let servers = servers(&plan.url.0)?;
        let desk = Arc::new(Desk::default());
        let task = Task {
            teller: Teller::new(&servers),
            servers,
            desk: Arc::clone(&desk),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let started = runtime.and_then(|runtime| {
            std::thread::Builder::new()
                .name("nats-writer".to_string())
                .spawn(move || task.run(&runtime))
        });
        started.map_err(|error| {
            Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
        })?;
        Ok(Publisher { desk })
    }

    /// Whether more may be brought; waited for, at most `timeout`.
    pub fn has_room(&self, timeout: Duration) -> bool {
        self.until(timeout, |state| state.waiting.len() < FULL)
    }

    /// Whether all has been confirmed or refused; waited for, at most `timeout`.
    pub fn is_done(&self, timeout: Duration) -> bool {
        self.until(timeout, |state| state.waiting.is_empty() && !state.is_busy)
    }

    fn until(&self, timeout: Duration, is_so: impl Fn(&State) -> bool) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.desk.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if is_so(&state) || left.is_zero() {
                return is_so(&state);
            }
            let waited = self.desk.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Brings messages, to be sent behind those that wait.
    pub fn bring(&self, messages: &mut Vec<Waiting>) {
        self.desk.lock().waiting.extend(messages.drain(..));
        self.desk.changed.notify_all();
    }

    /// What has been refused since the last call.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.desk.lock().refused)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.desk.lock().is_over = true;
        self.desk.changed.notify_all();
    }
}

/// What the thread knows.
struct Task {
    servers: Vec<ServerAddr>,
    teller: Teller,
    desk: Arc<Desk>,
}

impl Task {
    fn run(self, runtime: &tokio::runtime::Runtime) {
        let Some(context) = runtime.block_on(self.connect()) else {
            return;
        };
        while let Some(mut batch) = self.next_batch() {
            while !batch.is_empty() {
                if self.desk.lock().is_over {
                    return;
                }
                batch = runtime.block_on(self.publish(&context, batch));
            }
            self.desk.lock().is_busy = false;
            self.desk.changed.notify_all();
        }
    }

    async fn connect(&self) -> Option<Context> {
        loop {
            match connect(&self.servers, &self.teller).await {
                Ok(client) => {
                    self.teller.heard();
                    let builder = jetstream::context::ContextBuilder::new();
                    let builder = builder.ack_timeout(ANSWER).max_ack_inflight(UNDER_WAY * 2);
                    return Some(builder.build(client));
                }
                Err(why) => self.teller.away(&why),
            }
            if self.desk.lock().is_over {
                return None;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Some of the messages that wait, waited for; none if there will be no more.
    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut state = self.desk.lock();
        while state.waiting.is_empty() && !state.is_over {
            let changed = &self.desk.changed;
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_over {
            return None;
        }
        let count = state.waiting.len().min(UNDER_WAY);
        let batch = state.waiting.drain(..count).collect();
        state.is_busy = true;
        drop(state);
        self.desk.changed.notify_all();
        Some(batch)
    }

    /// Sends messages; gives back those of which it is not known that they are there. So messages keep their order but where one of them has to
    /// be sent again.
    async fn publish(&self, context: &Context, batch: Vec<Waiting>) -> Vec<Waiting> {
        let (mut sent, mut left) = (Vec::with_capacity(batch.len()), Vec::new());
        let mut why = None;
        let mut batch = batch.into_iter();
        for waiting in batch.by_ref() {
            match send(context, &waiting).await {
                Ok(sending) => sent.push((waiting, sending)),
                Err(error) if is_refusal(&error) => self.refuse(&waiting, &error),
                Err(error) => {
                    // What comes behind it would not be sent either, each after a while.
                    why = Some(told(&waiting, &error));
                    left.push(waiting);
                    break;
                }
            }
        }
        left.extend(batch);
        // One for all: what a connection that broke has lost is not waited for one by one.
        let until = tokio::time::Instant::now() + ANSWER;
        let mut unconfirmed = Vec::new();
        for (waiting, sending) in sent {
            let confirmed = tokio::time::timeout_at(until, sending.into_future()).await;
            let late = || PublishError::new(PublishErrorKind::TimedOut);
            match confirmed.unwrap_or_else(|_| Err(late())) {
                Ok(_) => {}
                Err(error) if is_refusal(&error) => self.refuse(&waiting, &error),
                Err(error) => {
                    why.get_or_insert_with(|| told(&waiting, &error));
                    unconfirmed.push(waiting);
                }
            }
        }
        unconfirmed.append(&mut left);
        match why {
            None => self.teller.heard(),
            Some(why) => {
                self.teller.away(&why);
                tokio::time::sleep(AGAIN).await;
            }
        }
        unconfirmed
    }

    fn refuse(&self, waiting: &Waiting, error: &PublishError) {
        let (record, reason) = (waiting.record, error.to_string());
        self.desk.lock().refused.push(Refused { record, reason });
    }
}

async fn send(
    context: &Context,
    Waiting { id, message, .. }: &Waiting,
) -> std::result::Result<PublishAckFuture, PublishError> {
    let outgoing = jetstream::message::PublishMessage::build()
        .payload(message.payload.clone().into())
        .message_id(id);
    context
        .send_publish(message.subject.clone(), outgoing)
        .await
}

fn told(waiting: &Waiting, error: &PublishError) -> String {
    format!("on the subject {}: {error}", waiting.message.subject)
}

/// Whether the message itself can't be written: it is larger than what the server takes, or its stream.
fn is_refusal(error: &PublishError) -> bool {
    let said = error.source().and_then(|source| source.downcast_ref());
    let is_too_large = |said: &jetstream::Error| {
        said.error_code() == jetstream::ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM
    };
    error.kind() == PublishErrorKind::MaxPayloadExceeded || said.is_some_and(is_too_large)
}
