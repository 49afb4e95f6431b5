//! The processor that writes messages.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, RecordGuard, Result,
};

use super::publisher::{Publisher, Waiting};
use super::{Outgoing, Plan};
use crate::nats::TURN;

/// Makes messages of records, and gives them to the publisher.
pub(crate) struct WriteP<T, F> {
    plan: Plan,
    fill: Arc<F>,
    bad: BadRecords,
    /// Begins the ids of messages whose records give none.
    life: u64,
    /// Of the records at hand.
    messages: Vec<Waiting>,
    publisher: Option<Publisher>,
    record: PhantomData<fn(T)>,
}

impl<T, F> WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    pub fn new(plan: Plan, fill: Arc<F>) -> Self {
        WriteP {
            bad: BadRecords::new(plan.on_error),
            plan,
            fill,
            life: ardea_core::unique_number(),
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
                        None => format!("{:016x}-{position}", self.life),
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

    /// Waits a turn for all confirmations.
    fn settle(&self) -> Result<Progress> {
        let publisher = self.publisher.as_ref();
        let is_done = publisher.is_none_or(|publisher| publisher.is_done(TURN));
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
            .is_some_and(|publisher| publisher.has_room(TURN))
        {
            self.fill_all(inbox)?;
            if let Some(publisher) = &self.publisher {
                publisher.bring(&mut self.messages);
            }
        }
        // Refusals are heard of also when nothing more comes for a while.
        outbox.wake_at(self.bad.context().clock.now().saturating_add(TURN));
        self.report_refused()
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        if let Some(publisher) = &self.publisher
            && !publisher.is_done(Duration::ZERO)
        {
            outbox.wake_at(self.bad.context().clock.now().saturating_add(TURN));
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
    let what = format!("record {position} has no id, and its sink is said to be idempotent");
    Error::new(ErrorCode::InvalidJob, what)
        .hint("give each message an id that follows from its record: `out.id(…)`")
}
