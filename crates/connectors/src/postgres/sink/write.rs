//! Writer of the PostgreSQL sink.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Checkpointed, Epoch, Error, ErrorCode, InstanceContext, Progress, RestoredState,
    Result, SnapshotRequest, SnapshotWriter, Timestamp,
};

use super::PostgresSinkConfig;
use super::fence::Fence;
use super::sink_attempts::SinkAttempts;
use super::staging::Owner;
use super::writer::{Writer, WriterCommand, WriterHandle};
use crate::blocking_worker::CANCEL_CHECK_INTERVAL;
use crate::postgres::rows::{Row, Rows};
use crate::sink_builder::SinkWriter;

/// Description of a refused record.
const REFUSED: &str = "the PostgreSQL server refused its row";

/// Writer that converts records to rows and passes them to the writer thread.
pub(crate) struct PostgresWriter<T, F> {
    plan: PostgresSinkConfig,
    fill: Arc<F>,
    bad: BadRecords,
    /// Rows of the current records, and the position after them.
    rows: Rows,
    through: u64,
    scratch: String,
    /// Staging state of an exactly-once sink; `None` if rows are written at once.
    lives: Option<SinkAttempts>,
    has_begun: bool,
    link: Option<WriterHandle>,
    record: PhantomData<fn(T)>,
}

impl<T, F> PostgresWriter<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Row<'_>) + Send + Sync + 'static,
{
    pub fn new(plan: PostgresSinkConfig, fill: Arc<F>) -> Self {
        PostgresWriter {
            bad: BadRecords::new(plan.on_error),
            plan,
            fill,
            rows: Rows::default(),
            through: 0,
            scratch: String::new(),
            lives: None,
            has_begun: false,
            link: None,
            record: PhantomData,
        }
    }

    fn ragged(&self, filled: usize) -> Error {
        let (table, columns) = (&self.plan.table, self.plan.columns.len());
        let what = format!("a row for the table {table} has {filled} values for {columns} columns");
        Error::new(ErrorCode::InvalidJob, what).hint(
            "call `set` once for each column that the sink names, `null` where there is no value",
        )
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

impl<T, F> SinkWriter for PostgresWriter<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Row<'_>) + Send + Sync + 'static,
{
    type Record = T;

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
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

    fn has_room(&mut self) -> Result<bool> {
        self.begin();
        self.link.as_ref().map_or(Ok(false), |link| link.has_room())
    }

    fn write(&mut self, record: &T, _: Timestamp, position: u64) -> Result<bool> {
        let scratch = std::mem::take(&mut self.scratch);
        let mut row = self.rows.begin(self.plan.columns.len(), position, scratch);
        (self.fill)(record, &mut row);
        let (filled, scratch) = row.end();
        self.scratch = scratch;
        if filled != self.plan.columns.len() {
            return Err(self.ragged(filled));
        }
        self.through = position + 1;
        Ok(true)
    }

    fn send(&mut self) -> Result<()> {
        if let Some(lives) = &mut self.lives {
            lives.note(i64::try_from(self.through).unwrap_or(i64::MAX));
        }
        if let Some(link) = &self.link {
            link.enqueue(&mut self.rows);
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration) -> Result<bool> {
        let link = self.link.as_ref();
        link.map_or(Ok(true), |link| link.settle(wait, &self.bad, REFUSED))
    }

    fn end_epoch(&mut self) -> Result<bool> {
        self.begin();
        self.poll(CANCEL_CHECK_INTERVAL)
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn close(&mut self) {
        self.link = None;
    }
}

impl<T, F> Checkpointed for PostgresWriter<T, F>
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
