//! Writer of the NATS sink.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{BadRecords, Error, ErrorCode, InstanceContext, Result, Timestamp};

use super::publisher::{self, Publisher, Waiting};
use super::{NatsSinkConfig, Outgoing};
use crate::sink_builder::SinkWriter;

/// Description of a refused record.
const REFUSED: &str = "the NATS server refused its message";

/// Writer that converts records to messages and passes them to the publisher.
pub(crate) struct NatsWriter<T, F> {
    plan: NatsSinkConfig,
    fill: Arc<F>,
    bad: BadRecords,
    /// Prefix of generated message ids, for messages whose records provide none.
    id_prefix: u64,
    /// Messages of the current records.
    messages: VecDeque<Waiting>,
    publisher: Option<Publisher>,
    record: PhantomData<fn(T)>,
}

impl<T, F> NatsWriter<T, F> {
    pub fn new(plan: NatsSinkConfig, fill: Arc<F>) -> Self {
        NatsWriter {
            bad: BadRecords::new(plan.on_error),
            plan,
            fill,
            id_prefix: ardea_core::unique_number(),
            messages: VecDeque::new(),
            publisher: None,
            record: PhantomData,
        }
    }
}

impl<T, F> SinkWriter for NatsWriter<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    type Record = T;

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.publisher = Some(publisher::start(&self.plan, context.waker.clone())?);
        Ok(())
    }

    fn has_room(&mut self) -> Result<bool> {
        self.publisher
            .as_ref()
            .map_or(Ok(false), |it| it.has_room())
    }

    fn write(&mut self, record: &T, _: Timestamp, position: u64) -> Result<bool> {
        let mut message = Outgoing::default();
        let filled = (self.fill)(record, &mut message);
        if let Err(reason) = filled.and_then(|()| message.check()) {
            self.bad
                .report(|| format!("record {position}"), Vec::new, reason)?;
            return Ok(true);
        }
        let id = match message.id.take() {
            Some(id) => id,
            None if self.plan.is_idempotent => return Err(without_id(position)),
            None => format!("{:016x}-{position}", self.id_prefix),
        };
        self.messages.push_back(Waiting {
            record: position,
            id,
            message,
        });
        Ok(true)
    }

    fn send(&mut self) -> Result<()> {
        if let Some(publisher) = &self.publisher {
            publisher.enqueue(&mut self.messages);
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration) -> Result<bool> {
        let publisher = self.publisher.as_ref();
        publisher.map_or(Ok(true), |it| it.settle(wait, &self.bad, REFUSED))
    }

    fn close(&mut self) {
        self.publisher = None;
    }
}

fn without_id(position: u64) -> Error {
    let what = format!("record {position} has no message id, but its sink is declared idempotent");
    Error::new(ErrorCode::InvalidJob, what)
        .hint("set an id that depends only on the record: `out.id(…)`")
}
