//! Processor of the NATS sink.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, RecordGuard, Result,
};

use super::publisher::{Publisher, Waiting};
use super::{NatsSinkConfig, Outgoing};
use crate::nats::CANCEL_CHECK_INTERVAL;

/// Processor that converts records to messages and passes them to the publisher.
pub(crate) struct WriteP<T, F> {
    plan: NatsSinkConfig,
    fill: Arc<F>,
    bad: BadRecords,
    /// Prefix of generated message ids, for messages whose records provide none.
    id_prefix: u64,
    /// Messages of the current records.
    messages: Vec<Waiting>,
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
            messages: Vec::new(),
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
                    self.messages.push(Waiting {
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

    fn report_refused(&self) -> Result<()> {
        let refused = self.publisher.as_ref().map(Publisher::take_refused);
        for refused in refused.unwrap_or_default() {
            let reason = format!("the NATS server refused its message: {}", refused.reason);
            self.bad
                .report(|| format!("record {}", refused.record), Vec::new, reason)?;
        }
        Ok(())
    }

    /// Waits up to [`CANCEL_CHECK_INTERVAL`] for all confirmations.
    fn settle(&self) -> Result<Progress> {
        let publisher = self.publisher.as_ref();
        let is_done = publisher.is_none_or(|publisher| publisher.is_done(CANCEL_CHECK_INTERVAL));
        self.report_refused()?;
        Ok(Progress::done_if(is_done))
    }
}

impl<T, F> Processor for WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.publisher = Some(Publisher::begin(&self.plan)?);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if self
            .publisher
            .as_ref()
            .is_some_and(|publisher| publisher.has_room(CANCEL_CHECK_INTERVAL))
        {
            self.fill_all(inbox)?;
            if let Some(publisher) = &self.publisher {
                publisher.enqueue(&mut self.messages);
            }
        }
        // Refusals must also be reported when no more records arrive.
        outbox.wake_at(
            self.bad
                .context()
                .clock
                .now()
                .saturating_add(CANCEL_CHECK_INTERVAL),
        );
        self.report_refused()
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        if let Some(publisher) = &self.publisher
            && !publisher.is_done(Duration::ZERO)
        {
            outbox.wake_at(
                self.bad
                    .context()
                    .clock
                    .now()
                    .saturating_add(CANCEL_CHECK_INTERVAL),
            );
        }
        self.report_refused()
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
