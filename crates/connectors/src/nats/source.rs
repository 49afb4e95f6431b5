//! NATS source.

mod ack_tracker;
mod fetcher;
mod position;
mod read;
mod rewind;
mod unreadable;

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{OnError, OnLostPosition, Source, Unbounded};
use serde::de::DeserializeOwned;

use crate::nats::message::Message;
use crate::nats::sink::Secret;
use crate::source_builder::SourceBuilder;
use read::NatsReader;

/// Creates a source of the stream `stream` on the server at `url`, such as
/// `"nats://localhost:4222"`. Records are payloads as bytes unless a decoder is set.
pub fn read(
    url: impl Into<String>,
    stream: impl Into<String>,
) -> NatsSource<Vec<u8>, Decoder<Vec<u8>>> {
    NatsSource {
        plan: NatsSourceConfig {
            url: Secret(url.into()),
            stream: stream.into(),
            subject: String::new(),
            consumer: None,
            in_flight: const { NonZeroU32::new(50_000).unwrap() },
            patience: Duration::from_secs(30),
            on_error: OnError::default(),
            on_lost: OnLostPosition::default(),
        },
        decode: |message| Ok(message.payload.to_vec()),
        record: PhantomData,
    }
}

/// Function that converts a message to a record, or returns the reason why the message cannot be
/// decoded.
pub type Decoder<T> = fn(&Message<'_>) -> Result<T, String>;

/// A source that reads the messages of a stream with a durable consumer and acknowledges them.
///
/// * In a job with checkpoints, a message is acknowledged when the epoch in which it was read is
///   committed. The server redelivers unacknowledged messages. A redelivered message that is part
///   of the restored checkpoint is acknowledged and not emitted again, so each message counts
///   exactly once. Without a guarantee, messages are acknowledged when they are read.
/// * The source stores the sequence numbers of messages without a confirmed acknowledgement,
///   [50,000](Self::in_flight) at most. At that number the server delivers no more messages before
///   the next commit.
/// * A running job extends the acknowledgement deadline of its messages. If it crashes, the next
///   run receives them after the [acknowledgement timeout](Self::patience).
/// * There is one instance, because deduplication needs all sequence numbers. The durable consumer
///   is created if it is missing, and is named `ardea-JOB-VERTEX` by [default](Self::consumer). The
///   stream must exist.
/// * Records have the time at which the server received them.
/// * A lost position fails the job: the stream was deleted and created again, or ends before the
///   last message read. Messages removed before they were read fail the job too, unless
///   [`on_lost_position`](Self::on_lost_position) is changed. A deleted consumer is created again.
/// * A job restored from an earlier checkpoint reads later messages again: the consumer is created
///   again at the checkpoint's position. Messages that the stream removed on acknowledgement are
///   not redelivered.
/// * A message whose headers are not UTF-8 is a bad record, like a message that cannot be decoded.
#[derive(Debug)]
pub struct NatsSource<T, F> {
    plan: NatsSourceConfig,
    decode: F,
    record: PhantomData<fn() -> T>,
}

/// Configuration of the source.
#[derive(Clone, Debug)]
pub(crate) struct NatsSourceConfig {
    /// Address of the server, which may contain a password.
    pub url: Secret,
    pub stream: String,
    /// Subject filter; empty for all subjects.
    pub subject: String,
    pub consumer: Option<String>,
    pub in_flight: NonZeroU32,
    pub patience: Duration,
    pub on_error: OnError,
    pub on_lost: OnLostPosition,
}

impl<T, F> NatsSource<T, F> {
    /// Sets the decoder of messages. An error of `decode` is the reason why a message cannot be
    /// decoded; see [`on_error`](Self::on_error).
    pub fn decode<U, G>(self, decode: G) -> NatsSource<U, G>
    where
        U: Send + 'static,
        G: Fn(&Message<'_>) -> Result<U, String> + Send + Sync + 'static,
    {
        NatsSource {
            plan: self.plan,
            decode,
            record: PhantomData,
        }
    }

    /// Decodes payloads as text.
    pub fn text(self) -> NatsSource<String, Decoder<String>> {
        self.decode(|message| message.text().map(str::to_string))
    }

    /// Decodes payloads as JSON.
    pub fn json<U: DeserializeOwned + Send + 'static>(self) -> NatsSource<U, Decoder<U>> {
        self.decode(|message| {
            serde_json::from_slice(message.payload).map_err(|error| error.to_string())
        })
    }

    /// Restricts the source to subjects that match a filter such as `"orders.*.new"`.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.plan.subject = subject.into();
        self
    }

    /// Sets the name of the durable consumer, which no other job may use.
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.plan.consumer = Some(name.into());
        self
    }

    /// Sets the maximum number of messages read but not acknowledged: 50,000 by default. At this
    /// number the source waits for the next checkpoint, so it should exceed the number of messages
    /// between two checkpoints. Each message takes some hundred bytes of memory.
    pub fn in_flight(mut self, messages: NonZeroU32) -> Self {
        self.plan.in_flight = messages;
        self
    }

    /// Sets the acknowledgement timeout, after which the server redelivers the messages of an
    /// unresponsive job: 30 seconds by default. Zero is refused.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.plan.patience = patience;
        self
    }

    /// Sets the policy for messages that were removed from the stream before they were read, by the
    /// stream's limits or a purge. By default the job fails and the error contains the numbers of
    /// the lost messages. [`OnLostPosition::Continue`] continues with the oldest remaining message.
    ///
    /// Removed messages cannot be detected if the stream removes messages on acknowledgement, if a
    /// subject filter is set, or if the stream limits messages per subject. A stream that was
    /// created again fails the job in any case.
    pub fn on_lost_position(mut self, on_lost: OnLostPosition) -> Self {
        self.plan.on_lost = on_lost;
        self
    }

    /// Sets the policy for messages that cannot be decoded. By default such a message becomes a
    /// dead letter with its sequence number. It is acknowledged like any other message.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, Unbounded>
    where
        T: Send + 'static,
        F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
    {
        let NatsSource { plan, decode, .. } = self;
        let name = format!("nats {}", plan.stream);
        let decode = Arc::new(decode);
        SourceBuilder::stream(name)
            .blocking()
            .reader(move |_| NatsReader::new(plan.clone(), Arc::clone(&decode)))
    }
}

impl<T, F> From<NatsSource<T, F>> for Source<T, Unbounded>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    fn from(source: NatsSource<T, F>) -> Self {
        source.build()
    }
}
