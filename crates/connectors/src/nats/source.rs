//! Reads a stream.

mod ledger;
mod position;
mod read;
mod reader;
mod rewind;
mod unreadable;

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Instance, Isolation, OnError, OnLostPosition, Processor, Result, Source, Unbounded,
};
use serde::de::DeserializeOwned;

use crate::nats::message::Message;
use crate::nats::sink::Secret;
use read::ReadP;

/// Reads the messages of the stream `stream` on the server at `url`, such as `"nats://localhost:4222"`; payloads as bytes, unless told
/// otherwise.
pub fn read(
    url: impl Into<String>,
    stream: impl Into<String>,
) -> NatsSource<Vec<u8>, Decoder<Vec<u8>>> {
    NatsSource {
        plan: Plan {
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

/// Makes records of messages.
pub type Decoder<T> = fn(&Message<'_>) -> Result<T, String>;

/// A source that reads the messages of a stream by a durable consumer, and acknowledges them.
///
/// * In a job that keeps its state a message is acknowledged when the epoch in which it was read is committed. What is not acknowledged is
///   delivered again: what the snapshot knows to have been read is then acknowledged, and not read again. So each message counts once,
///   whatever dies. Without a guarantee messages are acknowledged when they are read.
/// * What is remembered for that are the numbers of messages that are not known to be acknowledged, [some ten thousand](Self::in_flight) at most. When so
///   many are, the server delivers no more before the next commit.
/// * While the job lives it asks the server for patience with what it has; when it dies without a word the next run gets that
///   after [`patience`](Self::patience).
/// * There is one instance: two could not tell what the other has read already. The durable consumer is made where it is missing, and called `ardea-JOB-VERTEX`
///   unless [told](Self::consumer). The stream has to be there.
/// * Records have the time at which the server got them.
/// * A position that does not mean what it meant fails the job: a stream that was deleted and made
///   anew, or ends before what was read. So do messages that were removed before they were read,
///   unless [`on_lost_position`](Self::on_lost_position) says otherwise. A consumer that was
///   deleted is made anew.
/// * A job that goes on from an earlier snapshot reads again what came since: the consumer is made
///   anew there. Messages that left the stream when they were acknowledged do not come back.
/// * A message whose headers are no text is a bad record like one that can't be decoded.
#[derive(Debug)]
pub struct NatsSource<T, F> {
    plan: Plan,
    decode: F,
    record: PhantomData<fn() -> T>,
}

/// What is read, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// It may hold a password.
    pub url: Secret,
    pub stream: String,
    /// Only messages on these subjects; empty for all.
    pub subject: String,
    pub consumer: Option<String>,
    pub in_flight: NonZeroU32,
    pub patience: Duration,
    pub on_error: OnError,
    pub on_lost: OnLostPosition,
}

impl<T, F> NatsSource<T, F> {
    /// Makes records of messages; an error is the reason why one is no record, see [`on_error`](Self::on_error).
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

    /// The payloads as text.
    pub fn text(self) -> NatsSource<String, Decoder<String>> {
        self.decode(|message| message.text().map(str::to_string))
    }

    /// The payloads as JSON.
    pub fn json<U: DeserializeOwned + Send + 'static>(self) -> NatsSource<U, Decoder<U>> {
        self.decode(|message| {
            serde_json::from_slice(message.payload).map_err(|error| error.to_string())
        })
    }

    /// Reads only messages on these subjects, such as `"orders.*.new"`.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.plan.subject = subject.into();
        self
    }

    /// Sets the name of the durable consumer, which is this job's alone.
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.plan.consumer = Some(name.into());
        self
    }

    /// Sets how many messages may have been read and not be acknowledged: 50,000 by default. It has to be more than come in the time between two
    /// snapshots, or the job waits for the next one. Each takes some hundred bytes of memory.
    pub fn in_flight(mut self, messages: NonZeroU32) -> Self {
        self.plan.in_flight = messages;
        self
    }

    /// Sets after how long without a word from the job the server delivers again what it has not
    /// acknowledged: 30 seconds by default. Zero is refused.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.plan.patience = patience;
        self
    }

    /// Sets what to do when messages were removed from the stream before they were read, by its
    /// limits or a purge: the job fails by default, with their numbers.
    /// [`OnLostPosition::Continue`] goes on with the oldest message that is left.
    ///
    /// Removed messages cannot be told of a stream whose messages go when they are acknowledged,
    /// nor where only some subjects are read or only the last messages of each are kept. A stream
    /// that was made anew fails the job in any case.
    pub fn on_lost_position(mut self, on_lost: OnLostPosition) -> Self {
        self.plan.on_lost = on_lost;
        self
    }

    /// Sets what becomes of a message that can't be decoded: kept aside with its number (the default), dropped and counted, or the job
    /// fails. It is acknowledged as all others are.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// The source, for a pipeline.
    pub fn build(self) -> Source<T, Unbounded>
    where
        T: Send + 'static,
        F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
    {
        let NatsSource { plan, decode, .. } = self;
        let name = format!("nats {}", plan.stream);
        let decode = Arc::new(decode);
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(ReadP::new(plan.clone(), Arc::clone(&decode))))
        };
        Source::new(name, Arc::new(supply)).isolation(Isolation::Thread)
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
