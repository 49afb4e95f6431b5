//! The thread that writes: rows in batches, errands one by one, each again until it is known what came of it.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use ardea_core::Result;
use tokio_postgres::types::Type;

use super::Plan;
use super::checks::{self, Mode};
use super::desk::{Desk, Errand, Refused};
use super::fence::Fence;
use super::own_tables::OwnTables;
use super::staging::{self, Owner, Shown};
use super::table::Table;
use crate::postgres::connection::Connection;
use crate::postgres::replaced::OnReplaced;
use crate::postgres::rows::{Column, MOST_ROW, Rows};
use crate::postgres::session::{Parameter, Session};
use crate::postgres::trouble::Trouble;

/// What is known of the table, on one connection.
pub(crate) struct Prepared {
    table: Table,
    /// Writes rows, or lays them aside.
    write: String,
    /// A warning about the server.
    warning: Option<String>,
}

/// Writes until the desk is closed.
pub(crate) struct Writer {
    plan: Plan,
    owner: Option<Owner>,
    fence: Option<Fence>,
    desk: Arc<Desk>,
    connection: Connection<Prepared>,
    /// The tables that the life uses, once it has begun.
    tables: Option<OwnTables>,
    /// The table as it was when the life began.
    table: Option<Table>,
    /// Something has been done on the server.
    has_connected: bool,
}

/// What is being done.
#[derive(Default)]
struct Work {
    errand: Option<Errand>,
    rows: Rows,
    /// Which of the rows are not written yet, the first behind.
    left: Vec<Range<usize>>,
    refused: Vec<Refused>,
}

impl Work {
    fn is_nothing(&self) -> bool {
        self.errand.is_none() && self.left.is_empty()
    }
}

impl Writer {
    pub fn new(
        plan: &Plan,
        owner: Option<Owner>,
        fence: Option<Fence>,
        desk: Arc<Desk>,
    ) -> Result<Self> {
        Ok(Writer {
            connection: Connection::new(plan.address.server()?)?,
            plan: plan.clone(),
            owner,
            fence,
            desk,
            tables: None,
            table: None,
            has_connected: false,
        })
    }

    pub fn run(mut self) {
        let mut work = Work::default();
        while self.get(&mut work) {
            match self.go_on(&mut work) {
                Ok(()) => self.put(&mut work),
                Err(Trouble::Passing(_)) => {
                    let wait = self.connection.next_wait();
                    self.desk.rest(wait);
                }
                Err(Trouble::Final(error)) => return self.fail(error),
                // An errand whose rows are refused as a whole: nothing that was foreseen.
                Err(Trouble::Refused(why)) => {
                    let what = format!(
                        "the PostgreSQL server refuses to write to {}",
                        self.plan.table
                    );
                    let error = ardea_core::Error::new(ardea_core::ErrorCode::WriteFailed, what);
                    return self.fail(error.because(why));
                }
            }
        }
    }

    fn fail(&self, error: ardea_core::Error) {
        self.desk.lock().failed = Some(self.connection.placed(error));
        self.desk.changed.notify_all();
        self.desk.waker.wake();
    }

    /// Waits for something to do, if nothing is left; false if there will be nothing more.
    fn get(&self, work: &mut Work) -> bool {
        let mut state = self.desk.lock();
        while work.is_nothing() && !state.is_over {
            work.errand = state.errands.pop_front();
            state.is_out = work.errand.is_some();
            if work.errand.is_none() && !state.waiting.is_empty() {
                std::mem::swap(&mut work.rows, &mut state.waiting);
                work.left = work.rows.parts();
                state.is_writing = true;
            }
            if work.is_nothing() {
                let changed = &self.desk.changed;
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let is_over = state.is_over;
        drop(state);
        // Those who wait for room hear of it.
        self.desk.changed.notify_all();
        !is_over
    }

    /// All at hand is done.
    fn put(&self, work: &mut Work) {
        let was_errand = work.errand.take().is_some();
        work.rows.clear();
        let mut state = self.desk.lock();
        state.refused.append(&mut work.refused);
        state.is_writing = false;
        state.is_out = false;
        let wakes = was_errand && state.errands.is_empty();
        drop(state);
        self.desk.changed.notify_all();
        if wakes {
            self.desk.waker.wake();
        }
    }

    fn go_on(&mut self, work: &mut Work) -> std::result::Result<(), Trouble> {
        if let Some(owner) = &mut self.owner {
            owner.run = self.desk.lock().run;
        }
        let (plan, owner, fence) = (&self.plan, &self.owner, self.fence.as_mut());
        let is_fresh = !self.has_connected && !self.desk.lock().is_restored;
        let mode = match (owner, &fence) {
            (Some(_), _) => Mode::Once,
            (None, Some(_)) => Mode::Fenced,
            (None, None) => Mode::AtOnce,
        };
        let (tables, desk) = (&mut self.tables, &self.desk);
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
                    (Some(Errand::Connect), _) => None,
                    // To connect may have taken long: another attempt may have begun meanwhile.
                    (Some(_), Some(_)) if desk.lock().is_over => {
                        return Err(Trouble::Passing("the instance is over".to_string()));
                    }
                    (Some(errand), Some(owner)) => {
                        let run = run(session, &prepared.table, errand, owner, plan, tables);
                        let (refused, notice) = run.await?;
                        work.refused = refused;
                        begun = (*errand == Errand::Begin).then(|| prepared.table.clone());
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
            self.connection.say(said);
        }
        if self.tables.is_some() {
            self.desk.lock().tables = self.tables;
        }
        Ok(())
    }
}

/// Runs an errand. Returns the rows that were refused on the way, and what is missing where the job
/// goes on all the same.
async fn run(
    session: &mut Session,
    table: &Table,
    errand: &Errand,
    owner: &Owner,
    plan: &Plan,
    tables: &mut Option<OwnTables>,
) -> std::result::Result<(Vec<Refused>, Option<String>), Trouble> {
    let (shown, is_earlier) = match *errand {
        Errand::Connect => (Shown::default(), false),
        Errand::Begin => {
            *tables = Some(staging::begin(session, table, owner).await?);
            (Shown::default(), false)
        }
        Errand::Publish { through } => (
            staging::publish(session, table, owner, through, *tables, plan.on_replaced).await?,
            false,
        ),
        Errand::Settle(estate) => (
            staging::settle(session, table, owner, estate, plan.on_replaced).await?,
            true,
        ),
    };
    let refused = shown.refused.into_iter().map(|(record, reason)| Refused {
        record,
        reason,
        is_earlier,
    });
    let notice = shown
        .notice
        .map(|why| format!("{why}; the job goes on without"));
    Ok((refused.collect(), notice))
}

/// Looks for the reason why rows were not written: a table that was dropped.
async fn explained(
    session: &mut Session,
    prepared: &Prepared,
    (tables, on_replaced): (Option<OwnTables>, OnReplaced),
    trouble: Trouble,
) -> Trouble {
    match (trouble, tables) {
        (Trouble::Final(error), Some(before)) => {
            staging::compare_now(session, &prepared.table, before, on_replaced)
                .await
                .err()
                .unwrap_or(Trouble::Final(error))
        }
        (trouble, _) => trouble,
    }
}

/// Writes the rows that are left, in halves where some are refused.
async fn write(
    session: &mut Session,
    prepared: &Prepared,
    work: &mut Work,
    owner: Option<&Owner>,
) -> std::result::Result<(), Trouble> {
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
            parameters.push((&owner.life, Type::INT8));
        }
        let written = match work.rows.bytes_of(&part) {
            bytes if part.len() == 1 && bytes > MOST_ROW => Err(Trouble::Refused(format!(
                "it takes {bytes} bytes, {MOST_ROW} are the most"
            ))),
            _ => match owner {
                None => session.execute(&prepared.write, &parameters).await,
                Some(owner) => lay_aside(session, prepared, &parameters, owner).await,
            },
        };
        match written {
            Ok(()) => drop(work.left.pop()),
            Err(Trouble::Refused(reason)) => {
                work.left.pop();
                if part.len() == 1 {
                    work.refused.push(Refused {
                        record: numbers[0],
                        reason,
                        is_earlier: false,
                    });
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

/// Lays rows aside.
///
/// # Errors
/// `Superseded` if the life is over: rows that are nowhere must be in no cut.
async fn lay_aside(
    session: &mut Session,
    prepared: &Prepared,
    parameters: &[Parameter<'_>],
    owner: &Owner,
) -> std::result::Result<(), Trouble> {
    let laid = session.query_opt(&prepared.write, parameters).await?;
    let lives: i64 = laid.map_or(Ok(0), |row| row.try_get(0))?;
    if lives == 0 {
        staging::check_alive(session, &prepared.table, owner).await?;
        return Err(Trouble::Passing("it laid no rows aside".to_string()));
    }
    Ok(())
}
