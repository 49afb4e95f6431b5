//! Processor of the NATS sink.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    BadRecords, Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, RecordGuard, Result,
};

use super::publisher::{self, Publisher, Waiting};
use super::{NatsSinkConfig, Outgoing};

/// Description of a refused record.
const REFUSED: &str = "the NATS server refused its message";

/// Processor that converts records to messages and passes them to the publisher.
pub(crate) struct WriteP<T, F> {
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

impl<T, F> WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    pub fn new(plan: NatsSinkConfig, fill: Arc<F>) -> Self {
        WriteP {
            bad: BadRecords::new(plan.on_error),
            plan,
            fill,
            id_prefix: ardea_core::unique_number(),
            messages: VecDeque::new(),
            publisher: None,
            record: PhantomData,
        }
    }

    fn fill_all(&mut self, inbox: &mut Inbox) -> Result<()> {
        let first = inbox.position();
        let rows = inbox.rows::<T>()?;
        let mut guard = RecordGuard::new();
        for (record, position) in rows.values().iter().zip(first..) {
            let mut message = Outgoing::default();
            let filled = (self.fill)(record, &mut message);
            match filled.and_then(|()| message.check()) {
                Ok(()) => {
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
                }
                Err(reason) => {
                    self.bad
                        .report(|| format!("record {position}"), Vec::new, reason)?;
                }
            }
            guard.advance();
        }
        rows.clear();
        Ok(())
    }

    /// Waits up to 100 ms for all confirmations.
    fn settle(&self) -> Result<Progress> {
        let publisher = self.publisher.as_ref();
        publisher.map_or(Ok(Progress::DONE), |it| it.settle(&self.bad, REFUSED))
    }
}

impl<T, F> Processor for WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.publisher = Some(publisher::start(&self.plan, context.waker.clone())?);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if matches!(&self.publisher, Some(publisher) if publisher.has_room()?) {
            self.fill_all(inbox)?;
            if let Some(publisher) = &self.publisher {
                publisher.enqueue(&mut self.messages);
            }
        }
        let publisher = self.publisher.as_ref();
        publisher.map_or(Ok(()), |it| it.report_later(&self.bad, REFUSED, outbox))
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        let publisher = self.publisher.as_ref();
        publisher.map_or(Ok(()), |it| it.on_wake(&self.bad, REFUSED, outbox))
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.settle()
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.settle()
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
