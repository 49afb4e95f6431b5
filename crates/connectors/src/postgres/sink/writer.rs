//! Writer thread: writes rows in batches and executes commands one by one. Each batch or command is
//! repeated until its outcome is known.

use std::ops::Range;

use ardea_core::{Error, ErrorCode, Result, Waker};
use tokio_postgres::types::Type;

use super::PostgresSinkConfig;
use super::checks::{self, Mode};
use super::fence::Fence;
use super::own_tables::OwnTables;
use super::staging::{self, Owner, PreviousAttempt, PublishResult};
use super::table::Table;
use crate::blocking_worker::WorkerContext;
use crate::postgres::connection::Connection;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::replaced::OnReplaced;
use crate::postgres::rows::{Column, MOST_ROW, Rows};
use crate::postgres::session::{Parameter, Session};
use crate::sink_worker::{Refused, SinkQueue, SinkWorker};

/// An idempotent command to the writer thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WriterCommand {
    /// Takeover from an earlier attempt.
    Settle(PreviousAttempt),
    /// Start of an attempt.
    Begin,
    /// Connection, check of the server, and fencing of earlier attempts.
    Connect,
    /// Publication of the rows of all records before `through`.
    Publish { through: i64 },
}

/// WriterState reported by the processor and the writer thread to each other.
#[derive(Default)]
pub(crate) struct WriterState {
    /// Tables of the attempt, once it has begun.
    pub tables: Option<OwnTables>,
    /// True if the instance was restored from a checkpoint.
    pub is_restored: bool,
    /// Number of the restored run.
    pub run: Option<i64>,
}

/// Handle of the writer thread.
pub(crate) type WriterHandle = SinkWorker<Rows, WriterCommand, WriterState>;

/// Prepared state of a connection.
pub(crate) struct Prepared {
    table: Table,
    /// Statement that writes or stages rows.
    write: String,
    /// Warning about the server, to be logged.
    warning: Option<String>,
}

/// State of the writer thread, which runs until its queue is closed.
pub(crate) struct Writer {
    plan: PostgresSinkConfig,
    owner: Option<Owner>,
    fence: Option<Fence>,
    queue: WorkerContext<SinkQueue<Rows, WriterCommand, WriterState>>,
    connection: Connection<Prepared>,
    /// Tables of the attempt, once it has begun.
    tables: Option<OwnTables>,
    /// Target table at the start of the attempt.
    table: Option<Table>,
    /// True after the first successful operation on the server.
    has_connected: bool,
}

/// Current work.
#[derive(Default)]
struct Work {
    errand: Option<WriterCommand>,
    rows: Rows,
    /// Ranges of rows not written yet, in reverse order: the last range is written next.
    left: Vec<Range<usize>>,
    refused: Vec<Refused>,
}

impl Work {
    fn is_nothing(&self) -> bool {
        self.errand.is_none() && self.left.is_empty()
    }
}

impl Writer {
    /// Starts the writer thread for an instance woken by `waker`. `owner` is set if rows are staged
    /// until their epochs are committed; `fence` is set for upserts that must be ordered across
    /// attempts.
    pub fn start(
        plan: &PostgresSinkConfig,
        owner: Option<Owner>,
        fence: Option<Fence>,
        waker: Waker,
    ) -> Result<WriterHandle> {
        let connection = Connection::new(plan.address.server()?)?;
        let plan = plan.clone();
        WriterHandle::start("postgres-writer", waker, SinkQueue::default(), |queue| {
            let writer = Writer {
                plan,
                owner,
                fence,
                queue,
                connection,
                tables: None,
                table: None,
                has_connected: false,
            };
            writer.run();
        })
    }

    fn run(mut self) {
        let mut work = Work::default();
        while self.get(&mut work) {
            match self.go_on(&mut work) {
                Ok(()) => {
                    work.errand = None;
                    work.rows.clear();
                    self.queue.finish(&mut work.refused);
                }
                Err(PgErrorClass::Passing(_)) => {
                    let wait = self.connection.next_wait();
                    self.queue.rest(wait, |_| false);
                }
                Err(PgErrorClass::Final(error)) => return self.fail(error),
                // The server refused a whole command, which is unexpected.
                Err(PgErrorClass::Refused(why)) => {
                    let what = format!(
                        "the PostgreSQL server refuses to write to {}",
                        self.plan.table
                    );
                    return self.fail(Error::new(ErrorCode::WriteFailed, what).because(why));
                }
            }
        }
    }

    fn fail(&self, error: Error) {
        self.queue.fail(self.connection.placed(error));
    }

    /// Waits for work if `work` is empty; returns false on shutdown.
    fn get(&self, work: &mut Work) -> bool {
        if !work.is_nothing() {
            return !self.queue.is_over();
        }
        let has_work = self.queue.next_work(&mut work.errand, &mut work.rows);
        if !work.rows.is_empty() {
            work.left = work.rows.parts();
        }
        has_work
    }

    fn go_on(&mut self, work: &mut Work) -> std::result::Result<(), PgErrorClass> {
        if let Some(owner) = &mut self.owner {
            owner.run = self.queue.with(|queue| queue.facts.run);
        }
        let (plan, owner, fence) = (&self.plan, &self.owner, self.fence.as_mut());
        let is_fresh = !self.has_connected && !self.queue.with(|queue| queue.facts.is_restored);
        let mode = match (owner, &fence) {
            (Some(_), _) => Mode::Once,
            (None, Some(_)) => Mode::Fenced,
            (None, None) => Mode::AtOnce,
        };
        let (tables, queue) = (&mut self.tables, &self.queue);
        let before = self.table.as_ref();
        let find = async move |session: &mut Session| {
            let mut table = Table::find(session, plan).await?;
            if let Some(before) = before {
                table = table.with_columns_of(before);
            }
            let warning = checks::check(session, plan, &table, mode, is_fresh).await?;
            if let Some(fence) = fence {
                fence.raise(session, &plan.table).await?;
            }
            let write = match mode {
                Mode::Once => table.stage(),
                Mode::AtOnce | Mode::Fenced => table.insert(),
            };
            Ok(Prepared {
                table,
                write,
                warning,
            })
        };
        let (warning, notice, begun) =
            self.connection.attempt(find, async |session, prepared| {
                let mut begun = None;
                let notice = match (&work.errand, owner) {
                    (Some(WriterCommand::Connect), _) => None,
                    // Connecting may have taken long: another attempt may have begun meanwhile.
                    (Some(_), Some(_)) if queue.is_over() => {
                        return Err(PgErrorClass::Passing("the instance has ended".to_string()));
                    }
                    (Some(errand), Some(owner)) => {
                        let run = run(session, &prepared.table, errand, owner, plan, tables);
                        let (refused, notice) = run.await?;
                        work.refused = refused;
                        begun = (*errand == WriterCommand::Begin).then(|| prepared.table.clone());
                        notice
                    }
                    (_, owner) => {
                        let owner = owner.as_ref();
                        if let Err(trouble) = write(session, prepared, work, owner).await {
                            let used = (*tables, plan.on_replaced);
                            return Err(explained(session, prepared, used, trouble).await);
                        }
                        None
                    }
                };
                Ok((prepared.warning.take(), notice, begun))
            })?;
        self.table = begun.or(self.table.take());
        self.has_connected = true;
        for said in warning.iter().chain(&notice) {
            self.connection.log_line(said);
        }
        if self.tables.is_some() {
            self.queue.with(|queue| queue.facts.tables = self.tables);
        }
        Ok(())
    }
}

/// Executes a command. Returns the refused rows, and the description of a loss that the job
/// accepts.
async fn run(
    session: &mut Session,
    table: &Table,
    errand: &WriterCommand,
    owner: &Owner,
    plan: &PostgresSinkConfig,
    tables: &mut Option<OwnTables>,
) -> std::result::Result<(Vec<Refused>, Option<String>), PgErrorClass> {
    let (shown, is_earlier) = match *errand {
        WriterCommand::Connect => (PublishResult::default(), false),
        WriterCommand::Begin => {
            *tables = Some(staging::begin(session, table, owner).await?);
            (PublishResult::default(), false)
        }
        WriterCommand::Publish { through } => (
            staging::publish(session, table, owner, through, *tables, plan.on_replaced).await?,
            false,
        ),
        WriterCommand::Settle(estate) => (
            staging::settle(session, table, owner, estate, plan.on_replaced).await?,
            true,
        ),
    };
    let refused = shown.refused.into_iter().map(|(record, reason)| Refused {
        is_earlier,
        ..Refused::new(record.cast_unsigned(), reason)
    });
    let notice = shown
        .notice
        .map(|why| format!("{why}; the job continues without these rows"));
    Ok((refused.collect(), notice))
}

/// Returns the error of a dropped table instead of the write error `trouble`, if a table was
/// dropped.
async fn explained(
    session: &mut Session,
    prepared: &Prepared,
    (tables, on_replaced): (Option<OwnTables>, OnReplaced),
    trouble: PgErrorClass,
) -> PgErrorClass {
    match (trouble, tables) {
        (PgErrorClass::Final(error), Some(before)) => {
            staging::compare_now(session, &prepared.table, before, on_replaced)
                .await
                .err()
                .unwrap_or(PgErrorClass::Final(error))
        }
        (trouble, _) => trouble,
    }
}

/// Writes the remaining rows; ranges with refused rows are split in halves.
async fn write(
    session: &mut Session,
    prepared: &Prepared,
    work: &mut Work,
    owner: Option<&Owner>,
) -> std::result::Result<(), PgErrorClass> {
    let columns = prepared.table.columns().len();
    while let Some(part) = work.left.last().cloned() {
        let cells: Vec<Column<'_>> = (0..columns)
            .map(|column| work.rows.column(column, &part))
            .collect();
        let numbers = work.rows.records(&part);
        let mut parameters: Vec<Parameter<'_>> = Vec::with_capacity(columns + 2);
        parameters.extend(cells.iter().map(|column| (column as _, Type::TEXT_ARRAY)));
        parameters.push((&numbers, Type::INT8_ARRAY));
        if let Some(owner) = owner {
            parameters.push((&owner.attempt, Type::INT8));
        }
        let written = match work.rows.bytes_of(&part) {
            bytes if part.len() == 1 && bytes > MOST_ROW => Err(PgErrorClass::Refused(format!(
                "it takes {bytes} bytes; the limit is {MOST_ROW}"
            ))),
            _ => match owner {
                None => session.execute(&prepared.write, &parameters).await,
                Some(owner) => lay_aside(session, prepared, &parameters, owner).await,
            },
        };
        match written {
            Ok(()) => drop(work.left.pop()),
            Err(PgErrorClass::Refused(reason)) => {
                work.left.pop();
                if part.len() == 1 {
                    let record = numbers[0].cast_unsigned();
                    work.refused.push(Refused::new(record, reason));
                } else {
                    let middle = part.start + part.len() / 2;
                    work.left.extend([middle..part.end, part.start..middle]);
                }
            }
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Stages rows.
///
/// # Errors
/// `Superseded` if the attempt has ended: rows that could not be staged must be in no snapshot.
async fn lay_aside(
    session: &mut Session,
    prepared: &Prepared,
    parameters: &[Parameter<'_>],
    owner: &Owner,
) -> std::result::Result<(), PgErrorClass> {
    let laid = session.query_opt(&prepared.write, parameters).await?;
    let lives: i64 = laid.map_or(Ok(0), |row| row.try_get(0))?;
    if lives == 0 {
        staging::check_alive(session, &prepared.table, owner).await?;
        return Err(PgErrorClass::Passing("no rows were staged".to_string()));
    }
    Ok(())
}
