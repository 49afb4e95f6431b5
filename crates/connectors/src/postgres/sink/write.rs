//! Processor of the PostgreSQL sink.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Checkpointed, Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox,
    Processor, Progress, RecordGuard, RestoredState, Result, SnapshotRequest, SnapshotWriter,
};

use super::PostgresSinkConfig;
use super::fence::Fence;
use super::sink_attempts::SinkAttempts;
use super::staging::Owner;
use super::writer::{Writer, WriterCommand, WriterHandle};
use crate::blocking_worker::CANCEL_CHECK_INTERVAL;
use crate::postgres::rows::{Row, Rows};

/// Description of a refused record.
const REFUSED: &str = "the PostgreSQL server refused its row";

/// Processor that converts records to rows and passes them to the writer thread.
pub(crate) struct WriteP<T, F> {
    plan: PostgresSinkConfig,
    fill: Arc<F>,
    bad: BadRecords,
    /// Rows of the current records.
    rows: Rows,
    scratch: String,
    /// Staging state of an exactly-once sink; `None` if rows are written at once.
    lives: Option<SinkAttempts>,
    has_begun: bool,
    link: Option<WriterHandle>,
    record: PhantomData<fn(T)>,
}

impl<T, F> WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Row<'_>) + Send + Sync + 'static,
{
    pub fn new(plan: PostgresSinkConfig, fill: Arc<F>) -> Self {
        WriteP {
            bad: BadRecords::new(plan.on_error),
            plan,
            fill,
            rows: Rows::default(),
            scratch: String::new(),
            lives: None,
            has_begun: false,
            link: None,
            record: PhantomData,
        }
    }

    fn fill_all(&mut self, inbox: &mut Inbox) -> Result<()> {
        let first = inbox.position();
        let columns = self.plan.columns.len();
        let rows = inbox.rows::<T>()?;
        let mut guard = RecordGuard::new();
        for (record, position) in rows.values().iter().zip(first..) {
            let scratch = std::mem::take(&mut self.scratch);
            let mut row = self.rows.begin(columns, position, scratch);
            (self.fill)(record, &mut row);
            let (filled, scratch) = row.end();
            self.scratch = scratch;
            if filled != columns {
                return Err(self.ragged(filled));
            }
            guard.advance();
        }
        let through = first + rows.len() as u64;
        rows.clear();
        if let Some(lives) = &mut self.lives {
            lives.note(i64::try_from(through).unwrap_or(i64::MAX));
        }
        Ok(())
    }

    fn ragged(&self, filled: usize) -> Error {
        let (table, columns) = (&self.plan.table, self.plan.columns.len());
        let what = format!("a row for the table {table} has {filled} values for {columns} columns");
        Error::new(ErrorCode::InvalidJob, what).hint(
            "call `set` once for each column that the sink names, `null` where there is no value",
        )
    }

    /// Waits up to [`CANCEL_CHECK_INTERVAL`] until all rows are written.
    fn settle(&mut self) -> Result<Progress> {
        self.begin();
        let link = self.link.as_ref();
        link.map_or(Ok(Progress::DONE), |link| link.settle(&self.bad, REFUSED))
    }

    /// Requests the connection, and for staged rows a new attempt, on the first call.
    fn begin(&mut self) {
        if let (Some(link), false) = (&self.link, self.has_begun) {
            link.send(match self.lives {
                Some(_) => WriterCommand::Begin,
                None => WriterCommand::Connect,
            });
            self.has_begun = true;
        }
    }

    /// Waits up to `timeout` until all commands have been executed.
    fn run_commands(&mut self, timeout: Duration) -> Result<Progress> {
        let Some(link) = &self.link else {
            return Ok(Progress::DONE);
        };
        let is_done = link.has_run_commands(timeout)?;
        if let Some(lives) = self.lives.as_mut().filter(|_| is_done) {
            lives.note_published();
        }
        link.report_refused(&self.bad, REFUSED)?;
        Ok(Progress::done_if(is_done))
    }
}

impl<T, F> Processor for WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Row<'_>) + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        let (mut owner, mut fence) = (None, None);
        let sink = format!("{}/{}", context.job, context.vertex);
        let keeps = context.guarantee.keeps_state();
        if keeps && !self.plan.is_once && !self.plan.keys.is_empty() {
            let sink = format!("{sink}/{}", self.plan.table);
            fence = Some(Fence::new(&sink, context.instance));
        }
        if self.plan.is_once && keeps {
            let lives = SinkAttempts::begin(context.instance);
            owner = Some(Owner {
                sink,
                instance: context.instance,
                attempt: lives.attempt,
                run: None,
            });
            self.lives = Some(lives);
        }
        let waker = context.waker.clone();
        self.link = Some(Writer::start(&self.plan, owner, fence, waker)?);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.begin();
        if matches!(&self.link, Some(link) if link.has_room()?) {
            self.fill_all(inbox)?;
            if let Some(link) = &self.link {
                link.enqueue(&mut self.rows);
            }
        }
        let link = self.link.as_ref();
        link.map_or(Ok(()), |link| link.report_later(&self.bad, REFUSED, outbox))
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        let link = self.link.as_ref();
        link.map_or(Ok(()), |link| link.on_wake(&self.bad, REFUSED, outbox))
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.settle()
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.settle()
    }

    fn close(&mut self) {
        self.link = None;
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, F> Checkpointed for WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Row<'_>) + Send + Sync + 'static,
{
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        match &mut self.lives {
            Some(lives) => {
                let tables = |link: &WriterHandle| link.with(|queue| queue.facts.tables);
                lives.note_tables(self.link.as_ref().and_then(tables));
                lives.take_snapshot(snapshot)
            }
            None => Ok(()),
        }
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        match &mut self.lives {
            Some(lives) => lives.write_snapshot(writer),
            None => Ok(Progress::DONE),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match &mut self.lives {
                Some(lives) => lives.restore(&entry)?,
                // Staged rows must not be dropped because the guarantee was changed.
                None => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some(link) = &self.link {
            let run = self.lives.as_ref().and_then(|lives| lives.run);
            link.with(|queue| (queue.facts.is_restored, queue.facts.run) = (true, run));
            let heirs = self.lives.iter_mut().flat_map(SinkAttempts::take_heirs);
            heirs.for_each(|heir| link.send(heir));
        }
        self.begin();
        // Other instances may have staged rows of the same keys, which must be published before
        // newer ones.
        self.run_commands(CANCEL_CHECK_INTERVAL)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if let (Some(lives), Some(link)) = (&mut self.lives, &self.link)
            && let Some(errand) = lives.commit(epoch)
        {
            link.send(errand);
        }
        self.run_commands(Duration::ZERO)
    }

    fn awaits_commit(&self) -> bool {
        self.lives.as_ref().is_some_and(SinkAttempts::is_pending)
    }
}
