//! Reader of the NATS source.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    BadRecords, Checkpointed, Epoch, Error, ErrorCode, InstanceContext, Progress, RecordGuard,
    RestoredState, Result, SnapshotRequest, SnapshotWriter,
};

use super::NatsSourceConfig;
use super::ack_tracker::{AckTracker, Verdict};
use super::fetcher::{Fetched, Reader};
use crate::blocking_worker::CANCEL_CHECK_INTERVAL;
use crate::nats::message::Message;
use crate::source_builder::{PollStatus, SourceBatch, SourceReader};

/// Reader that decodes prefetched messages.
pub(crate) struct NatsReader<T, F> {
    plan: NatsSourceConfig,
    decode: Arc<F>,
    bad: BadRecords,
    ledger: AckTracker,
    /// True if messages are acknowledged when their epoch is committed; false if when they are
    /// read.
    keeps: bool,
    consumer: String,
    reader: Option<Reader>,
    record: PhantomData<fn() -> T>,
}

impl<T, F> NatsReader<T, F>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    pub fn new(plan: NatsSourceConfig, decode: Arc<F>) -> Self {
        NatsReader {
            bad: BadRecords::new(plan.on_error),
            plan,
            decode,
            ledger: AckTracker::default(),
            keeps: false,
            consumer: String::new(),
            reader: None,
            record: PhantomData,
        }
    }

    /// Emits new messages, and acknowledges messages that are already committed.
    fn emit(&mut self, fetched: &[Fetched], batch: &mut SourceBatch<'_, T>) -> Result<()> {
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
                    Ok(record) => batch.push_at(record, message.published),
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

impl<T, F> SourceReader for NatsReader<T, F>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    type Record = T;

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        if context.instance.parallelism > 1 {
            let what = format!(
                "{} instances cannot read one NATS stream",
                context.instance.parallelism
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("use one instance, and distribute the work after it"));
        }
        if self.plan.patience.is_zero() {
            let what = "the NATS source's `patience` is zero";
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("set the source's `patience` to some seconds"));
        }
        self.keeps = context.guarantee.keeps_state();
        // Dots, wildcards and blanks have a special meaning in consumer names.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        let name = format!("ardea-{}-{}", context.job, context.vertex);
        let name = name.replace(|letter| !is_plain(letter), "_");
        self.consumer = self.plan.consumer.clone().unwrap_or(name);
        crate::nats::connection::servers(&self.plan.url.0).map(drop)
    }

    fn poll(&mut self, batch: &mut SourceBatch<'_, T>) -> Result<PollStatus> {
        let reader = match &self.reader {
            Some(reader) => reader,
            None => {
                let known = self.ledger.known();
                let reader = Reader::begin(&self.plan, self.consumer.clone(), known, self.keeps)?;
                self.reader.insert(reader)
            }
        };
        let fetched = reader.take(batch.room(), CANCEL_CHECK_INTERVAL)?;
        self.ledger.forget(reader.floor());
        self.ledger.created = reader.created().or(self.ledger.created);
        self.emit(&fetched, batch)?;
        Ok(match fetched.is_empty() {
            true => PollStatus::Idle,
            false => PollStatus::Ready,
        })
    }

    fn close(&mut self) {
        self.reader = None;
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, F> Checkpointed for NatsReader<T, F>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.ledger.take_snapshot(snapshot.epoch)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.ledger.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.ledger.restore(state)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        let numbers = self.ledger.commit(epoch);
        if let Some(reader) = &self.reader {
            reader.acknowledge(numbers);
        }
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        self.keeps && self.ledger.is_pending()
    }
}
