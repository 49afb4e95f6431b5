//! Publisher thread: sends messages and waits for their confirmation.

use std::collections::VecDeque;
use std::error::Error as _;
use std::future::IntoFuture;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use async_nats::ServerAddr;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context};

use super::NatsSinkConfig;
use crate::nats::outage_reporter::{OutageReporter, connect, servers};
use crate::nats::sink::Outgoing;

/// Queue length at which the sink waits.
const FULL: usize = 4_000;
/// Maximum number of messages sent per batch before waiting for confirmations.
const UNDER_WAY: usize = 500;
/// Timeout of confirmations.
const ANSWER: Duration = Duration::from_secs(5);
/// Retry delay.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// A queued message and the position of its record.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub record: u64,
    pub id: String,
    pub message: Outgoing,
}

/// A message refused by the server.
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
struct PublisherQueue {
    state: Mutex<State>,
    changed: Condvar,
}

impl PublisherQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the publisher thread, which runs until the handle is dropped.
pub(crate) struct Publisher {
    queue: Arc<PublisherQueue>,
}

impl Publisher {
    /// Starts the publisher thread, which connects in the background.
    pub fn begin(plan: &NatsSinkConfig) -> Result<Publisher> {
        let servers = servers(&plan.url.0)?;
        let desk = Arc::new(PublisherQueue::default());
        let task = Task {
            teller: OutageReporter::new(&servers),
            servers,
            queue: Arc::clone(&desk),
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
        Ok(Publisher { queue: desk })
    }

    /// Waits up to `timeout` for space in the queue; returns true if the queue has space.
    pub fn has_room(&self, timeout: Duration) -> bool {
        self.until(timeout, |state| state.waiting.len() < FULL)
    }

    /// Waits up to `timeout` until all messages are confirmed or refused; returns false on timeout.
    pub fn is_done(&self, timeout: Duration) -> bool {
        self.until(timeout, |state| state.waiting.is_empty() && !state.is_busy)
    }

    fn until(&self, timeout: Duration, is_so: impl Fn(&State) -> bool) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.queue.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if is_so(&state) || left.is_zero() {
                return is_so(&state);
            }
            let waited = self.queue.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Appends messages to the queue.
    pub fn enqueue(&self, messages: &mut Vec<Waiting>) {
        self.queue.lock().waiting.extend(messages.drain(..));
        self.queue.changed.notify_all();
    }

    /// Returns the messages refused since the last call.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.queue.lock().refused)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.changed.notify_all();
    }
}

/// State of the publisher thread.
struct Task {
    servers: Vec<ServerAddr>,
    teller: OutageReporter,
    queue: Arc<PublisherQueue>,
}

impl Task {
    fn run(self, runtime: &tokio::runtime::Runtime) {
        let Some(context) = runtime.block_on(self.connect()) else {
            return;
        };
        while let Some(mut batch) = self.next_batch() {
            while !batch.is_empty() {
                if self.queue.lock().is_over {
                    return;
                }
                batch = runtime.block_on(self.publish(&context, batch));
            }
            self.queue.lock().is_busy = false;
            self.queue.changed.notify_all();
        }
    }

    async fn connect(&self) -> Option<Context> {
        loop {
            match connect(&self.servers, &self.teller).await {
                Ok(client) => {
                    self.teller.report_response();
                    let builder = jetstream::context::ContextBuilder::new();
                    let builder = builder.ack_timeout(ANSWER).max_ack_inflight(UNDER_WAY * 2);
                    return Some(builder.build(client));
                }
                Err(why) => self.teller.away(&why),
            }
            if self.queue.lock().is_over {
                return None;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Waits for queued messages and returns a batch; `None` on shutdown.
    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut state = self.queue.lock();
        while state.waiting.is_empty() && !state.is_over {
            let changed = &self.queue.changed;
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_over {
            return None;
        }
        let count = state.waiting.len().min(UNDER_WAY);
        let batch = state.waiting.drain(..count).collect();
        state.is_busy = true;
        drop(state);
        self.queue.changed.notify_all();
        Some(batch)
    }

    /// Sends a batch and returns the unconfirmed messages, which must be sent again. Other messages
    /// keep their order.
    async fn publish(&self, context: &Context, batch: Vec<Waiting>) -> Vec<Waiting> {
        let (mut sent, mut left) = (Vec::with_capacity(batch.len()), Vec::new());
        let mut why = None;
        let mut batch = batch.into_iter();
        for waiting in batch.by_ref() {
            match send(context, &waiting).await {
                Ok(sending) => sent.push((waiting, sending)),
                Err(error) if is_refusal(&error) => self.refuse(&waiting, &error),
                Err(error) => {
                    // Later messages would fail too, each after a delay.
                    why = Some(describe(&waiting, &error));
                    left.push(waiting);
                    break;
                }
            }
        }
        left.extend(batch);
        // One timeout for all confirmations: after a lost connection, each of them would time out.
        let until = tokio::time::Instant::now() + ANSWER;
        let mut unconfirmed = Vec::new();
        for (waiting, sending) in sent {
            let confirmed = tokio::time::timeout_at(until, sending.into_future()).await;
            let late = || PublishError::new(PublishErrorKind::TimedOut);
            match confirmed.unwrap_or_else(|_| Err(late())) {
                Ok(_) => {}
                Err(error) if is_refusal(&error) => self.refuse(&waiting, &error),
                Err(error) => {
                    why.get_or_insert_with(|| describe(&waiting, &error));
                    unconfirmed.push(waiting);
                }
            }
        }
        unconfirmed.append(&mut left);
        match why {
            None => self.teller.report_response(),
            Some(why) => {
                self.teller.away(&why);
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
        unconfirmed
    }

    fn refuse(&self, waiting: &Waiting, error: &PublishError) {
        let (record, reason) = (waiting.record, error.to_string());
        self.queue.lock().refused.push(Refused { record, reason });
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

fn describe(waiting: &Waiting, error: &PublishError) -> String {
    format!("on the subject {}: {error}", waiting.message.subject)
}

/// Returns true if the message itself is refused: it exceeds the size limit of the server or of its
/// stream.
fn is_refusal(error: &PublishError) -> bool {
    let said = error.source().and_then(|source| source.downcast_ref());
    let is_too_large = |said: &jetstream::Error| {
        said.error_code() == jetstream::ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM
    };
    error.kind() == PublishErrorKind::MaxPayloadExceeded || said.is_some_and(is_too_large)
}
