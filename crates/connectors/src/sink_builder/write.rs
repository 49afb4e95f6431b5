//! The processor of a sink made of functions.

use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape,
};

use super::transactions::{STATE, Transactions, TwoPhaseCommit};
use super::{SinkSettings, SinkWrite};
use crate::user_functions::UserRetry;

/// Processor that writes batches of records from its inbox.
pub(super) struct BatchWriteP<T, S, H> {
    settings: SinkSettings,
    functions: SinkWrite<T, S>,
    context: InstanceContext,
    /// The result of `open`.
    sink: Option<S>,
    transactions: Option<Transactions<S, H>>,
    /// True if remains of failed attempts have been removed.
    is_clean: bool,
    /// True if records have been written since the last `prepare`.
    has_written: bool,
    retry: UserRetry,
    /// Retries of commits, which may fail independently of writes.
    commit_retry: UserRetry,
}

impl<T, S, H> BatchWriteP<T, S, H>
where
    T: Send + 'static,
    S: Send + 'static,
    H: Send + 'static,
{
    pub fn new(
        settings: SinkSettings,
        functions: SinkWrite<T, S>,
        transactions: Option<TwoPhaseCommit<S, H>>,
    ) -> Self {
        let context = InstanceContext::detached(&settings.name);
        let instance = context.instance;
        BatchWriteP {
            retry: UserRetry::new(&context, "", settings.retry_limit),
            commit_retry: UserRetry::new(&context, "", settings.retry_limit),
            transactions: transactions.map(|functions| Transactions::new(functions, instance)),
            settings,
            functions,
            context,
            sink: None,
            is_clean: false,
            has_written: false,
        }
    }

    fn now(&self) -> Duration {
        self.context.clock.now()
    }

    /// Returns true if transactions are committed at once, because the job has no checkpoints.
    fn commits_at_once(&self) -> bool {
        self.transactions.is_some() && !self.context.guarantee.keeps_state()
    }

    /// Opens the sink, commits restored transactions and removes remains of failed attempts, unless
    /// this is done. Returns false if it must be retried.
    fn is_ready(&mut self) -> Result<bool> {
        let now = self.now();
        if !self.retry.is_due(now) {
            return Ok(false);
        }
        if self.sink.is_none() {
            let outcome = (self.functions.open)(self.context.instance);
            let action = || "cannot open the sink".to_string();
            self.sink = self.retry.judge(now, action, outcome)?;
        }
        if self.is_clean {
            return Ok(self.sink.is_some());
        }
        if self.sink.is_none() || !self.commit_due()? {
            return Ok(false);
        }
        self.is_clean = match (&self.transactions, &mut self.sink) {
            (Some(transactions), Some(sink)) => match &transactions.functions.abort {
                Some(abort) => {
                    let outcome = abort(sink);
                    let action = || "cannot abort transactions of failed attempts".to_string();
                    self.retry.judge(now, action, outcome)?.is_some()
                }
                None => true,
            },
            _ => true,
        };
        Ok(self.is_clean)
    }

    /// Commits the transactions whose epoch is committed. Returns false if that must be retried.
    fn commit_due(&mut self) -> Result<bool> {
        let now = self.now();
        let (Some(transactions), Some(sink)) = (&mut self.transactions, &mut self.sink) else {
            return Ok(true);
        };
        while let Some(handle) = transactions.due() {
            if !self.commit_retry.is_due(now) {
                return Ok(false);
            }
            let outcome = (transactions.functions.commit)(sink, handle);
            let action = || "cannot commit a transaction".to_string();
            if self.commit_retry.judge(now, action, outcome)?.is_none() {
                return Ok(false);
            }
            transactions.remove_first();
        }
        Ok(true)
    }

    /// Commits the transactions whose epoch is committed, in an open sink. Returns done if none is
    /// left.
    fn settle(&mut self) -> Result<Progress> {
        let is_done = self.is_ready()? && self.commit_due()?;
        Ok(match is_done {
            true => Progress::DONE,
            false => Progress::NONE,
        })
    }

    /// Prepares a transaction of the records written since the last one, if any, for `epoch` or for
    /// the epoch in which the instance ends. Returns false if that must be retried.
    fn prepare(&mut self, epoch: Option<Epoch>) -> Result<bool> {
        let now = self.now();
        let (Some(transactions), Some(sink), true) =
            (&mut self.transactions, &mut self.sink, self.has_written)
        else {
            return Ok(true);
        };
        if !self.retry.is_due(now) {
            return Ok(false);
        }
        let number = epoch.unwrap_or(transactions.next_epoch());
        let outcome = (transactions.functions.prepare)(sink, number);
        let action = || format!("cannot prepare the transaction of epoch {}", number.0);
        let Some(handle) = self.retry.judge(now, action, outcome)? else {
            return Ok(false);
        };
        transactions.add(epoch, handle);
        self.has_written = false;
        Ok(true)
    }

    /// Publishes the records of a job without checkpoints. Returns false if that must be retried.
    fn publish(&mut self) -> Result<bool> {
        let Some(number) = self.transactions.as_ref().map(Transactions::next_epoch) else {
            return Ok(true);
        };
        if !self.prepare(Some(number))? {
            return Ok(false);
        }
        if let Some(transactions) = &mut self.transactions
            && transactions.is_pending()
        {
            transactions.end_epoch(number);
            transactions.commit(number);
        }
        self.commit_due()
    }

    /// Writes the next batch. Returns false if that must be retried.
    fn write(&mut self, inbox: &mut Inbox) -> Result<bool> {
        if !self.is_ready()? || self.commits_at_once() && !self.publish()? {
            return Ok(false);
        }
        let Some(sink) = &mut self.sink else {
            return Ok(false);
        };
        let rows = inbox.rows::<T>()?;
        let count = rows.len().min(self.settings.batch_records);
        let outcome = (self.functions.write)(sink, &rows.values()[..count]);
        let action = || format!("cannot write {count} records");
        let now = self.context.clock.now();
        if self.retry.judge(now, action, outcome)?.is_none() {
            return Ok(false);
        }
        rows.discard_front(count);
        self.has_written = true;
        Ok(!self.commits_at_once() || self.publish()?)
    }

    /// Requests a call at the time of the next retry.
    fn wait(&self, outbox: &mut Outbox) {
        let retries = [&self.retry, &self.commit_retry];
        if let Some(next_at) = retries.iter().filter_map(|it| it.next_at()).min() {
            outbox.wake_at(next_at);
        }
    }
}

impl<T, S, H> Processor for BatchWriteP<T, S, H>
where
    T: Send + 'static,
    S: Send + 'static,
    H: Send + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        self.retry = UserRetry::new(context, "", self.settings.retry_limit);
        self.commit_retry = UserRetry::new(context, ", commits", self.settings.retry_limit);
        let functions = self.transactions.take().map(|it| it.functions);
        self.transactions = functions.map(|it| Transactions::new(it, context.instance));
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !self.write(inbox)? {
            self.wait(outbox);
        }
        Ok(())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        if self.commits_at_once() && !self.publish()? {
            self.wait(outbox);
        }
        Ok(())
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        if !self.prepare(Some(epoch))? {
            self.wait(outbox);
            return Ok(Progress::NONE);
        }
        if let Some(transactions) = &mut self.transactions {
            transactions.end_epoch(epoch);
        }
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let is_done = match self.commits_at_once() {
            true => self.publish()?,
            false => self.prepare(None)?,
        };
        if is_done {
            return Ok(Progress::DONE);
        }
        self.wait(outbox);
        Ok(Progress::NONE)
    }

    fn close(&mut self) {
        self.sink = None;
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, S, H> Checkpointed for BatchWriteP<T, S, H>
where
    T: Send + 'static,
    S: Send + 'static,
    H: Send + 'static,
{
    fn states(&mut self) -> Vec<StateShape> {
        let shape = |_: &Transactions<S, H>| StateShape::own(STATE);
        self.transactions.iter().map(shape).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        match &mut self.transactions {
            Some(transactions) => transactions.take_snapshot(snapshot),
            None => Ok(()),
        }
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        match &mut self.transactions {
            Some(transactions) => transactions.write_snapshot(writer),
            None => Ok(Progress::DONE),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match &mut self.transactions {
                Some(transactions) => transactions.restore(&entry)?,
                None => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        let Some(transactions) = &mut self.transactions else {
            return Ok(Progress::DONE);
        };
        transactions.resume(epoch);
        self.settle()
    }

    /// Publishes the records of committed epochs. Those of aborted epochs follow with the next
    /// committed one.
    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        let Some(transactions) = &mut self.transactions else {
            return Ok(Progress::DONE);
        };
        transactions.commit(epoch);
        match transactions.due() {
            Some(_) => self.settle(),
            None => Ok(Progress::DONE),
        }
    }

    fn awaits_commit(&self) -> bool {
        self.transactions
            .as_ref()
            .is_some_and(Transactions::is_pending)
    }
}
