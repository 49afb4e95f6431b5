//! NATS sink.

mod publisher;
mod write;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Delivery, OnError, Parallelism, Sink};

use crate::sink_builder::SinkBuilder;
use write::NatsWriter;

/// Creates a sink that writes each record as a message to the server at `url`, such as
/// `"nats://localhost:4222"`; `fill` sets subject and payload. An error of `fill` is the reason why
/// a record cannot be written; see [`NatsSink::on_error`]. A stream must exist for each subject.
pub fn write<T, F>(url: impl Into<String>, fill: F) -> NatsSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    NatsSink {
        plan: NatsSinkConfig {
            url: Secret(url.into()),
            on_error: OnError::default(),
            is_idempotent: false,
        },
        parallelism: Parallelism::ONE,
        fill,
        record: PhantomData,
    }
}

/// A text hidden from `Debug` output.
#[derive(Clone)]
pub(crate) struct Secret(pub String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// An outgoing message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outgoing {
    pub(crate) subject: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) id: Option<String>,
}

impl Outgoing {
    /// Sets the subject.
    pub fn subject(&mut self, subject: impl Into<String>) -> &mut Self {
        self.subject = subject.into();
        self
    }

    /// Sets the payload.
    pub fn payload(&mut self, payload: impl AsRef<[u8]>) -> &mut Self {
        self.payload = payload.as_ref().to_vec();
        self
    }

    /// Sets the message id (`Nats-Msg-Id`). A stream drops later messages with the same id within
    /// its duplicate window. The id should depend only on the record.
    pub fn id(&mut self, id: impl fmt::Display) -> &mut Self {
        self.id = Some(id.to_string());
        self
    }

    /// Checks that subject and id are valid. The client would fail or panic on an invalid one in
    /// each attempt, or no stream would match.
    ///
    /// # Errors
    /// The reason, for the dead letter.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let breaks = |text: &str, letters: &[char]| text.contains(letters);
        let is_no_token = |token: &str| matches!(token, "" | "*" | ">");
        if self.subject.split('.').any(is_no_token)
            || breaks(&self.subject, &[' ', '\t', '\r', '\n'])
        {
            return Err(format!("{:?} is not a valid subject", self.subject));
        }
        match &self.id {
            Some(id) if breaks(id, &['\r', '\n']) => Err(format!("{id:?} is no valid id")),
            _ => Ok(()),
        }
    }
}

/// A sink that writes messages to streams and waits for their confirmation.
///
/// * While the job runs, each record is in the stream once, also across connection failures. A
///   message sent again has the same id, which the sink generates if `fill` sets none. The stream
///   drops it within its duplicate window (two minutes by default).
/// * In a job with checkpoints, an epoch completes when all its messages are confirmed. After a
///   failure, records since the last checkpoint are written again: at least once. If each record
///   determines a message id, use [`idempotent`](Self::idempotent): the stream then drops repeated
///   messages. The stream's duplicate window must exceed the checkpoint interval plus the downtime
///   of the job.
/// * The sink waits for an unavailable server and for a stream that matches the subject. The job
///   waits when many messages are unconfirmed.
#[derive(Debug)]
pub struct NatsSink<T, F> {
    plan: NatsSinkConfig,
    parallelism: Parallelism,
    fill: F,
    record: PhantomData<fn(T)>,
}

/// Configuration shared by the instances of a sink.
#[derive(Clone, Debug)]
pub(crate) struct NatsSinkConfig {
    pub url: Secret,
    pub on_error: OnError,
    /// True if `fill` must set an id for each message.
    pub is_idempotent: bool,
}

impl<T, F> NatsSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    /// Declares that the function sets a message id for each record, so that writing a record again
    /// has no effect. A message without an id fails the job.
    pub fn idempotent(mut self) -> Self {
        self.plan.is_idempotent = true;
        self
    }

    /// Sets the number of instances, each with its own connection.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets the policy for records that the function or the server refuses. By default such a
    /// record becomes a dead letter with its position.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T> {
        let NatsSink {
            plan,
            parallelism,
            fill,
            ..
        } = self;
        let fill = Arc::new(fill);
        let delivery = match plan.is_idempotent {
            true => Delivery::Idempotent,
            false => Delivery::AtLeastOnce,
        };
        SinkBuilder::new("nats")
            .parallelism(parallelism)
            .blocking()
            .writer(move |_| NatsWriter::new(plan.clone(), Arc::clone(&fill)))
            .with_delivery(delivery)
    }
}

impl<T, F> From<NatsSink<T, F>> for Sink<T>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    fn from(sink: NatsSink<T, F>) -> Self {
        sink.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_that_no_stream_can_take_is_refused() {
        let check = |subject: &str| Outgoing::default().subject(subject).check().is_ok();
        for subject in ["orders", "orders.new.7", "a*b.c>d", "$JS.x"] {
            assert!(check(subject), "{subject}");
        }
        for subject in ["", ".a", "a.", "a..b", ".", "a.*", "*", "a.>", "a b", "a\n"] {
            assert!(!check(subject), "{subject:?}");
        }
    }
}
