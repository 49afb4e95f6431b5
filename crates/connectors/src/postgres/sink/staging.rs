//! Rows that wait beside their table until their epoch is committed.
//!
//! # Why no row is lost and none is there twice
//!
//! Each instance has a *life*, drawn by lot, which it notes in the table `ardea_lives` before it
//! does anything, and in each of its cuts. Its rows lie in a second table, under the life and the
//! position of their record, on the server's disk before the cut is taken. When the epoch is
//! committed they are moved, in one transaction that also notes, with the life, up to which record
//! that has been done.
//!
//! * Doing it again moves nothing: the note says that it has been done. The same goes for laying
//!   rows aside: each has its place.
//! * A statement of a broken connection that the server carries out late lays aside what is there
//!   already, or what is before the note; the latter is never moved, and removed with the next
//!   epoch.
//! * A life that takes over from a dead one, which it finds in the cut, moves its rows up to where
//!   that cut says, and removes the rest, which will come again. If the note is missing, that has
//!   been done.
//! * [`ending`] describes the end of lives that no cut names, and of those of other runs.
//! * The numbers of the tables are part of each cut: one that was dropped meanwhile is not taken
//!   for one in which nothing was left.
//!
//! Rows that the table refuses are noted with the life as well, until those of the next epoch are
//! moved. So an attempt that finds all done tells of them, also if the answer of the one before was
//! lost, or its process died. They may be told of twice.
//!
//! All that is asked of the server is asked within transactions, so that a pooler may give each
//! another server process.

use std::ops::Range;

use ardea_core::{Error, ErrorCode, Instance};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::ending::{self, Ending};
use super::own_tables::{OwnTables, gone};
use super::table::Table;
use crate::postgres::replaced::OnReplaced;
use crate::postgres::session::Session;
use crate::postgres::trouble::Trouble;

/// Whose rows they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// The job and the vertex.
    pub sink: String,
    pub instance: Instance,
    pub life: i64,
    /// The number of the run. `None` if the life began without state.
    pub run: Option<i64>,
}

impl Owner {
    /// The mark of a life that began without state.
    pub const WITHOUT_STATE: i64 = 0;

    /// The mark that this life leaves on those that it ends.
    pub fn mark(&self) -> i64 {
        self.run.unwrap_or(Self::WITHOUT_STATE)
    }

    /// The sink as it is noted: the job, the vertex and the table.
    pub fn sink_of(&self, table: &Table) -> String {
        format!("{}/{}", self.sink, table.name)
    }
}

/// A row that the server refused when it was to be moved.
pub(crate) type RefusedRow = (i64, String);

/// Makes what is missing, ends the other lives of the sink, and notes this one. Returns the tables.
pub(crate) async fn begin(
    session: &mut Session,
    table: &Table,
    owner: &Owner,
) -> Result<OwnTables, Trouble> {
    let transaction = session.transaction().await?;
    ending::lock(&transaction).await?;
    for (name, create) in table.create() {
        if !exists(&transaction, &name).await? {
            transaction.batch_execute(&create).await?;
        }
    }
    ending::add_column(&transaction, table).await?;
    let lives = table.lives();
    // An answer may have been lost: what has been done is not done again.
    if note_of(&transaction, &lives, owner.life).await?.is_none() {
        ending::end_others(&transaction, table, owner).await?;
    }
    let (staged, columns) = (table.staged(), table.columns());
    let index = i32::try_from(owner.instance.index).unwrap_or(i32::MAX);
    transaction
        .execute_typed(
            &format!(
                "insert into {lives} (life, sink, instance, staged, columns) values ($1, $2, $3, $4, $5) \
                 on conflict do nothing"
            ),
            &[
                (&owner.life, Type::INT8),
                (&owner.sink_of(table), Type::TEXT),
                (&index, Type::INT4),
                (&staged, Type::TEXT),
                (&columns, Type::TEXT_ARRAY),
            ],
        )
        .await?;
    let tables = OwnTables::find(&transaction, table, &staged).await?;
    transaction.commit().await?;
    Ok(tables)
}

/// The outcome of showing rows.
#[derive(Default)]
pub(crate) struct Shown {
    /// The rows that the server refused.
    pub refused: Vec<RefusedRow>,
    /// Something that is missing, where the job is to go on all the same.
    pub notice: Option<String>,
}

/// Moves the rows of a life before this record, unless that has been done.
///
/// # Errors
/// `Superseded` if another run has taken over; `WriteFailed` if a table was dropped since the life
/// began, which is permanent unless the job is to go on.
pub(crate) async fn publish(
    session: &mut Session,
    table: &Table,
    owner: &Owner,
    through: i64,
    tables: Option<OwnTables>,
    on_replaced: OnReplaced,
) -> Result<Shown, Trouble> {
    let transaction = session.transaction().await?;
    let lives = table.lives();
    if let Some(before) = tables {
        compare(&transaction, table, before, on_replaced).await?;
    }
    let note = live_note(&transaction, table, owner).await?;
    if note.published >= through {
        return Ok(Shown {
            refused: note.refused_before(through)?,
            notice: None,
        });
    }
    let mut transaction = transaction;
    let refused = move_rows(&mut transaction, table, &note, note.published..through).await?;
    if note.published == 0 {
        ending::clear_marked(&transaction, table, owner).await?;
    }
    let noted_refusals = noted(&refused)?;
    let parameters = [(&owner.life as _, Type::INT8), (&through as _, Type::INT8)];
    let removed = format!(
        "delete from {} where ardea_life = $1 and ardea_number < $2",
        note.staged
    );
    transaction.execute_typed(&removed, &parameters).await?;
    let note = format!("update {lives} set published = $2, refused = $3 where life = $1");
    let [of_life, to_number] = parameters;
    let parameters = [of_life, to_number, (&noted_refusals as _, Type::TEXT)];
    transaction.execute_typed(&note, &parameters).await?;
    transaction.commit().await?;
    Ok(Shown {
        refused,
        notice: None,
    })
}

/// Returns the note of a life.
///
/// # Errors
/// `Superseded` if the life is over.
async fn live_note(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
) -> Result<Note, Trouble> {
    let note = note_of(transaction, &table.lives(), owner.life).await?;
    match note {
        Some(note) if note.ended_by.is_none() => Ok(note),
        note => {
            let ended_by = note.and_then(|note| note.ended_by);
            Err(ending::taken_over(table, owner, ended_by).into())
        }
    }
}

/// Checks that a life is not over.
///
/// # Errors
/// `Superseded` if the life is over.
pub(crate) async fn check_alive(
    session: &mut Session,
    table: &Table,
    owner: &Owner,
) -> Result<(), Trouble> {
    let transaction = session.transaction().await?;
    live_note(&transaction, table, owner).await.map(drop)
}

/// Compares the tables of a life with those that there are.
///
/// # Errors
/// As those of [`publish`].
async fn compare(
    transaction: &Transaction<'_>,
    table: &Table,
    before: OwnTables,
    on_replaced: OnReplaced,
) -> Result<(), Trouble> {
    let now = OwnTables::find(transaction, table, &table.staged()).await?;
    match now.missing(before, table, true) {
        None => Ok(()),
        Some(why) => Err(Trouble::Final(match on_replaced {
            OnReplaced::Fail => gone(&why),
            // The next life takes over, and goes on with what there is.
            OnReplaced::Continue => gone(&why).transient(),
        })),
    }
}

/// The same in a transaction of its own.
pub(crate) async fn compare_now(
    session: &mut Session,
    table: &Table,
    before: OwnTables,
    on_replaced: OnReplaced,
) -> Result<(), Trouble> {
    let transaction = session.transaction().await?;
    compare(&transaction, table, before, on_replaced).await
}

/// The rows and tables that a dead life has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Estate {
    pub life: i64,
    /// The rows of records before this one are to be seen.
    pub through: i64,
    /// The tables that it has used. `None` if it was of an earlier version.
    pub tables: Option<OwnTables>,
}

/// Takes over from a dead life: moves its rows, and removes the rest of it.
///
/// # Errors
/// `WriteFailed` if rows are gone, with a table or because another run has removed them, unless the
/// job is to go on.
pub(crate) async fn settle(
    session: &mut Session,
    table: &Table,
    owner: &Owner,
    estate: Estate,
    on_replaced: OnReplaced,
) -> Result<Shown, Trouble> {
    let mut transaction = session.transaction().await?;
    let lives = table.lives();
    let mut note = None;
    if exists(&transaction, &lives).await? {
        ending::add_column(&transaction, table).await?;
        note = note_of(&transaction, &lives, estate.life).await?;
    }
    let before = estate.tables.unwrap_or_default();
    let waits = note
        .as_ref()
        .is_some_and(|note| note.published < estate.through);
    let is_cleared = note.as_ref().is_some_and(|note| note.staged.is_empty());
    let staged = match &note {
        Some(note) if !is_cleared => note.staged.clone(),
        _ => table.staged(),
    };
    let now = OwnTables::find(&transaction, table, &staged).await?;
    let missing = match waits && is_cleared {
        true => Some(ending::removed(table)),
        false => now.missing(before, table, waits).map(|why| gone(&why)),
    };
    let notice = match (missing, on_replaced) {
        (Some(error), OnReplaced::Fail) => return Err(Trouble::Final(error)),
        (missing, _) => missing.map(|error| error.message().to_string()),
    };
    let Some(note) = note else {
        return Ok(Shown {
            notice,
            ..Shown::default()
        });
    };
    let refused = match waits {
        true if !is_cleared && now.staged.is_some() => {
            let numbers = note.published..estate.through;
            move_rows(&mut transaction, table, &note, numbers).await?
        }
        false if !is_cleared => note.refused_before(estate.through)?,
        _ => Vec::new(),
    };
    if !is_cleared {
        let ending = Ending {
            life: estate.life,
            staged: note.staged,
            published: note.published.max(estate.through),
            is_marked: note.ended_by.is_some(),
        };
        ending::clear(&transaction, table, owner, &ending).await?;
    }
    transaction.commit().await?;
    Ok(Shown { refused, notice })
}

/// What is noted with a life.
struct Note {
    life: i64,
    published: i64,
    /// The table in which rows wait; empty if they were removed.
    staged: String,
    columns: Vec<String>,
    /// The mark of the life that ended this one.
    ended_by: Option<i64>,
    /// The rows that were refused when rows were moved last, as JSON.
    refused: String,
}

impl Note {
    /// Returns the rows before this record that were refused when rows were moved last.
    fn refused_before(&self, through: i64) -> Result<Vec<RefusedRow>, Error> {
        let mut refused: Vec<RefusedRow> =
            serde_json::from_str(&self.refused).map_err(|error| {
                let what = "the note of refused rows in ardea_lives can't be read";
                Error::new(ErrorCode::ReadFailed, what)
                    .because(error)
                    .permanent()
                    .hint("set its column `refused` to []; these rows are in no table then")
            })?;
        refused.retain(|(number, _)| *number < through);
        Ok(refused)
    }
}

/// Writes refused rows as a note holds them.
fn noted(refused: &[RefusedRow]) -> Result<String, Error> {
    serde_json::to_string(refused).map_err(|error| {
        let what = "refused rows can't be noted";
        Error::new(ErrorCode::Internal, what).because(error)
    })
}

/// Nobody else moves or lays aside anything of this life until the transaction ends.
async fn note_of(
    transaction: &Transaction<'_>,
    lives: &str,
    life: i64,
) -> Result<Option<Note>, Trouble> {
    let found = transaction
        .query_typed_opt(
            &format!(
                "select published, staged, columns, refused, ended_by from {lives} where life = $1 for update"
            ),
            &[(&life, Type::INT8)],
        )
        .await?;
    let Some(row) = found else { return Ok(None) };
    Ok(Some(Note {
        life,
        published: row.try_get(0)?,
        staged: row.try_get(1)?,
        columns: row.try_get(2)?,
        refused: row.try_get(3)?,
        ended_by: row.try_get(4)?,
    }))
}

/// Moves rows; those that the table refuses are left out, and told.
async fn move_rows(
    transaction: &mut Transaction<'_>,
    table: &Table,
    note: &Note,
    numbers: Range<i64>,
) -> Result<Vec<RefusedRow>, Trouble> {
    let publish = table.publish(&note.staged, &note.columns);
    // A constraint that is checked at the end would refuse all rows for one of them.
    transaction
        .batch_execute("set constraints all immediate")
        .await?;
    let mut refused = Vec::new();
    // Halves, quarters and so on of what was refused, the first on top.
    let mut left = vec![numbers];
    while let Some(part) = left.pop() {
        let step = transaction.savepoint("ardea_part").await?;
        let moved = step
            .execute_typed(
                &publish,
                &[
                    (&note.life, Type::INT8),
                    (&part.start, Type::INT8),
                    (&part.end, Type::INT8),
                ],
            )
            .await
            .map_err(Trouble::from);
        match moved {
            Ok(_) => step.commit().await?,
            Err(Trouble::Refused(why)) => {
                step.rollback().await?;
                if part.end - part.start == 1 {
                    refused.push((part.start, why));
                } else {
                    let middle = part.start + (part.end - part.start) / 2;
                    left.extend([middle..part.end, part.start..middle]);
                }
            }
            Err(other) => return Err(other),
        }
    }
    Ok(refused)
}

pub(super) async fn exists(transaction: &Transaction<'_>, table: &str) -> Result<bool, Trouble> {
    // To read a table of the catalogue has the server hear of tables that others have made since
    // the transaction began.
    let found = transaction
        .query_typed_one(
            "select to_regclass($1) is not null from pg_class limit 1",
            &[(&table, Type::TEXT)],
        )
        .await?;
    Ok(found.try_get(0)?)
}
