//! Writes messages.

mod publisher;
mod write;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Delivery, Instance, Isolation, OnError, Parallelism, Processor, Result, Sink};

use write::WriteP;

/// Writes each record as a message to the server at `url`, such as `"nats://localhost:4222"`, as `fill` says; its error is the reason why one can't be
/// written, see [`NatsSink::on_error`]. Some stream has to take the subjects.
pub fn write<T, F>(url: impl Into<String>, fill: F) -> NatsSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    NatsSink {
        plan: Plan {
            url: Secret(url.into()),
            on_error: OnError::default(),
            is_idempotent: false,
        },
        parallelism: Parallelism::ONE,
        fill,
        record: PhantomData,
    }
}

/// A text that is never shown.
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

/// A message on its way out.
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

    /// Sets what it says.
    pub fn payload(&mut self, payload: impl AsRef<[u8]>) -> &mut Self {
        self.payload = payload.as_ref().to_vec();
        self
    }

    /// Sets its id (`Nats-Msg-Id`): of several messages with one id a stream takes the first that comes within its duplicate window. It
    /// should follow from the record alone.
    pub fn id(&mut self, id: impl fmt::Display) -> &mut Self {
        self.id = Some(id.to_string());
        self
    }

    /// Checks that a stream can take the message: the client fails, or panics, at others each time,
    /// or no stream has such a subject.
    ///
    /// # Errors
    /// The reason, for the dead letter.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let breaks = |text: &str, letters: &[char]| text.contains(letters);
        let is_no_token = |token: &str| matches!(token, "" | "*" | ">");
        if self.subject.split('.').any(is_no_token)
            || breaks(&self.subject, &[' ', '\t', '\r', '\n'])
        {
            return Err(format!("{:?} can't be a subject", self.subject));
        }
        match &self.id {
            Some(id) if breaks(id, &['\r', '\n']) => Err(format!("{id:?} can't be an id")),
            _ => Ok(()),
        }
    }
}

/// A sink that writes messages into streams, and waits for their confirmation.
///
/// * While the job runs each record is in the stream once, whatever the connection does: a message that is sent again has the same id, which the
///   sink draws where the record gives none. This holds for as long as the stream's duplicate window (two minutes unless set).
/// * In a job that keeps its state a snapshot waits until all that came before it has been confirmed. After a failure what came since is written again:
///   at least once. Where records give ids, say [`idempotent`](Self::idempotent): what is written again then has the id that it had, and the stream
///   takes it once, if the duplicate window is longer than the time between snapshots and the time that the job was away together.
/// * A server that is away, or a subject that no stream takes, is waited for; when much is under way the job waits.
#[derive(Debug)]
pub struct NatsSink<T, F> {
    plan: Plan,
    parallelism: Parallelism,
    fill: F,
    record: PhantomData<fn(T)>,
}

/// What the instances of a sink have in common.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub url: Secret,
    pub on_error: OnError,
    /// Each message has to have an id of its record.
    pub is_idempotent: bool,
}

impl<T, F> NatsSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    /// Says that each record gives its message an id, so that writing it again changes nothing. One without fails the job.
    pub fn idempotent(mut self) -> Self {
        self.plan.is_idempotent = true;
        self
    }

    /// Sets how many instances there are, each with a connection of its own.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets what becomes of a record that can't be written, since the function or the server refuses it: kept aside with its position (the
    /// default), dropped and counted, or the job fails.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// The sink, for a pipeline.
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
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            let fill = Arc::clone(&fill);
            Ok(Box::new(WriteP::<T, F>::new(plan.clone(), fill)))
        };
        Sink::new("nats", Arc::new(supply))
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
            .delivering(delivery)
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
