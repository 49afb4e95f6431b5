//! Publisher thread: sends messages and waits for their confirmation.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error as _;
use std::future::IntoFuture;
use std::time::Duration;

use ardea_core::{Result, Waker};
use async_nats::ServerAddr;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context};
use tokio::runtime::Runtime;

use super::NatsSinkConfig;
use crate::blocking_worker::{WorkerContext, runtime};
use crate::nats::connection::{ServerStatus, connect, servers};
use crate::nats::sink::Outgoing;
use crate::sink_worker::{QueuedRecords, Refused, SinkQueue, SinkWorker};

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

impl QueuedRecords for VecDeque<Waiting> {
    /// A number of messages.
    const LIMIT: usize = 2_000;

    fn size(&self) -> usize {
        self.len()
    }

    fn append(&mut self, other: &mut Self) {
        VecDeque::append(self, other);
    }
}

/// Handle of the publisher thread, which has no commands.
pub(crate) type Publisher = SinkWorker<VecDeque<Waiting>, Infallible>;

/// Starts the publisher thread, which connects in the background.
pub(crate) fn start(plan: &NatsSinkConfig, waker: Waker) -> Result<Publisher> {
    let servers = servers(&plan.url.0)?;
    let runtime = runtime()?;
    Publisher::start("nats-writer", waker, SinkQueue::default(), move |queue| {
        let task = Task {
            status: ServerStatus::new(&servers),
            servers,
            queue,
        };
        task.run(&runtime);
    })
}

/// State of the publisher thread.
struct Task {
    servers: Vec<ServerAddr>,
    status: ServerStatus,
    queue: WorkerContext<SinkQueue<VecDeque<Waiting>, Infallible>>,
}

impl Task {
    fn run(self, runtime: &Runtime) {
        let Some(context) = runtime.block_on(self.connect()) else {
            return;
        };
        let mut waiting = VecDeque::new();
        while self.queue.next_work(&mut None, &mut waiting) {
            while !waiting.is_empty() {
                let count = waiting.len().min(UNDER_WAY);
                let mut batch: Vec<_> = waiting.drain(..count).collect();
                while !batch.is_empty() {
                    if self.queue.is_over() {
                        return;
                    }
                    batch = runtime.block_on(self.publish(&context, batch));
                }
            }
            self.queue.finish(&mut Vec::new());
        }
    }

    async fn connect(&self) -> Option<Context> {
        loop {
            match connect(&self.servers, &self.status).await {
                Ok(client) => {
                    self.status.outage.answers();
                    let builder = jetstream::context::ContextBuilder::new();
                    let builder = builder.ack_timeout(ANSWER).max_ack_inflight(UNDER_WAY * 2);
                    return Some(builder.build(client));
                }
                Err(why) => self.status.outage.away(&why),
            }
            if self.queue.is_over() {
                return None;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
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
            None => {
                self.status.outage.answers();
            }
            Some(why) => {
                self.status.outage.away(&why);
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
        unconfirmed
    }

    fn refuse(&self, waiting: &Waiting, error: &PublishError) {
        let refused = Refused::new(waiting.record, error.to_string());
        self.queue.refuse(refused);
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
