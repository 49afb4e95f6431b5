//! The processor that reads messages.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    BadRecords, Cut, CutWriter, Epoch, Error, ErrorCode, InstanceContext, Ordinal, Outbox,
    Processor, Progress, RecordGuard, RestoredState, Result,
};

use super::Plan;
use super::ledger::{Ledger, Verdict};
use super::reader::{Fetched, Reader};
use crate::nats::TURN;
use crate::nats::message::Message;

/// Makes records of messages that are fetched ahead.
pub(crate) struct ReadP<T, F> {
    plan: Plan,
    decode: Arc<F>,
    bad: BadRecords,
    ledger: Ledger,
    /// Messages wait for the commit to be acknowledged.
    keeps: bool,
    consumer: String,
    reader: Option<Reader>,
    record: PhantomData<fn() -> T>,
}

impl<T, F> ReadP<T, F>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    pub fn new(plan: Plan, decode: Arc<F>) -> Self {
        ReadP {
            bad: BadRecords::new(plan.on_error),
            plan,
            decode,
            ledger: Ledger::default(),
            keeps: false,
            consumer: String::new(),
            reader: None,
            record: PhantomData,
        }
    }

    /// Emits what is new of these, and acknowledges what may be.
    fn deal_with(&mut self, fetched: &[Fetched], outbox: &mut Outbox) -> Result<()> {
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        let mut guard = RecordGuard::new();
        let mut known = Vec::new();
        for message in fetched {
            let number = message.number;
            let verdict = match self.keeps {
                true => self.ledger.judge(number),
                false => Verdict::Read,
            };
            if verdict == Verdict::Acknowledge || !self.keeps {
                known.push(number);
            }
            if verdict == Verdict::Read {
                let lent = Message {
                    subject: &message.subject,
                    payload: &message.payload,
                    sequence: number,
                    published: message.published,
                    headers: message.headers.as_ref(),
                };
                let decoded = match &message.unreadable {
                    None => (self.decode)(&lent),
                    Some(reason) => Err(reason.to_string()),
                };
                match decoded {
                    Ok(record) => lane.push(record, message.published),
                    Err(reason) => self.bad.report(
                        || format!("{}@{number}", self.plan.stream),
                        || message.payload.to_vec(),
                        reason,
                    )?,
                }
            }
            guard.advance();
        }
        if let Some(reader) = &self.reader {
            reader.acknowledge(known);
        }
        Ok(())
    }
}

impl<T, F> Processor for ReadP<T, F>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        if context.instance.parallelism > 1 {
            let what = format!(
                "{} instances can't read a stream of NATS together",
                context.instance.parallelism
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("let one instance read, and spread the work behind it"));
        }
        if self.plan.patience.is_zero() {
            let what = "a server of NATS can't be asked for patience of no time";
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("give the source's `patience` some seconds"));
        }
        self.keeps = context.guarantee.keeps_state();
        // Dots, wildcards and blanks have a meaning of their own.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        let name = format!("ardea-{}-{}", context.job, context.vertex);
        let name = name.replace(|letter| !is_plain(letter), "_");
        self.consumer = self.plan.consumer.clone().unwrap_or(name);
        crate::nats::teller::servers(&self.plan.url.0).map(drop)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.bad.context().signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        let room = outbox.lane::<T>(Ordinal::FIRST)?.room();
        if room == 0 {
            return Ok(Progress::NONE);
        }
        let reader = match &self.reader {
            Some(reader) => reader,
            None => {
                let known = self.ledger.known();
                let reader = Reader::begin(&self.plan, self.consumer.clone(), known, self.keeps)?;
                self.reader.insert(reader)
            }
        };
        let fetched = reader.take(room, TURN)?;
        self.ledger.forget(reader.floor());
        self.ledger.created = reader.created().or(self.ledger.created);
        self.deal_with(&fetched, outbox)?;
        Ok(Progress {
            made: !fetched.is_empty(),
            done: false,
        })
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.ledger.take_cut(cut.epoch)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.ledger.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.ledger.restore(state)
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        let numbers = self.ledger.commit(epoch);
        if let Some(reader) = &self.reader {
            reader.acknowledge(numbers);
        }
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        self.keeps && self.ledger.is_pending()
    }

    fn close(&mut self) {
        self.reader = None;
    }
}
