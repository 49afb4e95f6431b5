//! The thread that writes: rows in batches, errands one by one, each again until it is known what came of it.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use ardea_core::Result;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::Plan;
use super::desk::{Desk, Errand, Refused};
use super::fence::Fence;
use super::staging::{self, Owner};
use super::table::Table;
use crate::connection::Connection;
use crate::rows::{Column, Rows};
use crate::trouble::Trouble;

/// What is known of the table, on one connection.
pub(crate) struct Prepared {
    table: Table,
    /// Writes rows, or lays them aside; none before their life has begun.
    write: Option<Statement>,
}

/// Writes until the desk is closed.
pub(crate) struct Writer {
    plan: Plan,
    owner: Option<Owner>,
    fence: Option<Fence>,
    desk: Arc<Desk>,
    connection: Connection<Prepared>,
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
        let place = format!("on {}", self.connection.name());
        self.desk.lock().failed = Some(error.hint(place));
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
                work.left.push(0..work.rows.len());
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
        let (plan, owner, fence) = (&self.plan, &self.owner, self.fence.as_mut());
        let find = async move |client: &mut Client| {
            if let Some(fence) = fence {
                fence.raise(client, &plan.table).await?;
            }
            Ok(Prepared {
                table: Table::find(client, plan).await?,
                write: None,
            })
        };
        self.connection
            .attempt(find, async |client, prepared| match (&work.errand, owner) {
                (Some(Errand::Fence), _) => Ok(()),
                (Some(errand), Some(owner)) => {
                    work.refused = run(client, prepared, errand, owner).await?;
                    Ok(())
                }
                (_, owner) => {
                    let life = owner.as_ref().map(|owner| owner.life);
                    write(client, prepared, work, life).await
                }
            })
    }
}

/// Runs an errand; says which rows were refused on the way.
async fn run(
    client: &mut Client,
    prepared: &Prepared,
    errand: &Errand,
    owner: &Owner,
) -> std::result::Result<Vec<Refused>, Trouble> {
    let table = &prepared.table;
    let (refused, is_earlier) = match *errand {
        Errand::Fence => (Vec::new(), false),
        Errand::Begin => {
            staging::begin(client, table, owner).await?;
            (Vec::new(), false)
        }
        Errand::Publish { through } => (
            staging::publish(client, table, owner.life, through).await?,
            false,
        ),
        Errand::Settle { life, through } => {
            (staging::settle(client, table, life, through).await?, true)
        }
    };
    let refused = refused.into_iter().map(|(record, reason)| Refused {
        record,
        reason,
        is_earlier,
    });
    Ok(refused.collect())
}

/// Writes the rows that are left, in halves where some are refused.
async fn write(
    client: &mut Client,
    prepared: &mut Prepared,
    work: &mut Work,
    life: Option<i64>,
) -> std::result::Result<(), Trouble> {
    let statement = match &prepared.write {
        Some(statement) => statement.clone(),
        None => {
            let sql = match life {
                Some(_) => prepared.table.stage(),
                None => prepared.table.insert(),
            };
            let statement = client.prepare(&sql).await?;
            prepared.write.insert(statement).clone()
        }
    };
    let columns = prepared.table.columns().len();
    while let Some(part) = work.left.last().cloned() {
        let cells: Vec<Column<'_>> = (0..columns)
            .map(|column| work.rows.column(column, &part))
            .collect();
        let numbers = work.rows.records(&part);
        let mut parameters: Vec<&(dyn ToSql + Sync)> = Vec::with_capacity(columns + 2);
        parameters.extend(cells.iter().map(|column| column as &(dyn ToSql + Sync)));
        parameters.push(&numbers);
        if let Some(life) = &life {
            parameters.push(life);
        }
        let written = client.execute(&statement, &parameters).await;
        match written.map_err(Trouble::from) {
            Ok(_) => drop(work.left.pop()),
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
