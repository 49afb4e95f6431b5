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
//! * Who takes over from a dead life, and finds it in the cut, moves its rows up to where that cut
//!   says, removes the rest, which will come again, and its note. A life without a note is over:
//!   that has been done for it. So an earlier life that does not know yet that it is over lays
//!   nothing aside any more, and fails when it wants to move something.
//! * Lives of the same sink that nobody knows any more were of runs that never committed anything.
//!   They are removed when another begins.
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

use super::own_tables::{OwnTables, gone};
use super::table::Table;
use crate::replaced::OnReplaced;
use crate::session::Session;
use crate::trouble::Trouble;

/// Whose rows they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// The job and the vertex.
    pub sink: String,
    pub instance: Instance,
    pub life: i64,
}

/// A row that the server refused when it was to be moved.
pub(crate) type RefusedRow = (i64, String);

/// Makes what is missing, removes what runs have left that never committed anything, and notes the
/// life. Returns the tables.
pub(crate) async fn begin(
    session: &mut Session,
    table: &Table,
    owner: &Owner,
) -> Result<OwnTables, Trouble> {
    let transaction = session.transaction().await?;
    // Several that begin at once do so one after the other.
    let lock = "select pg_advisory_xact_lock(hashtext('ardea_lives'))";
    transaction.execute_typed(lock, &[]).await?;
    for (name, create) in table.create() {
        if !exists(&transaction, &name).await? {
            transaction.batch_execute(&create).await?;
        }
    }
    let lives = table.lives();
    let Instance { index, parallelism } = owner.instance;
    let (index, parallelism) = (i64::from(index), i64::from(parallelism));
    let left = transaction
        .query_typed(
            &format!(
                "select life, staged from {lives} \
                 where sink = $1 and instance::bigint % $2 = $3 and life <> $4 for update"
            ),
            &[
                (&owner.sink, Type::TEXT),
                (&parallelism, Type::INT8),
                (&index, Type::INT8),
                (&owner.life, Type::INT8),
            ],
        )
        .await?;
    for row in &left {
        let (life, staged): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
        remove(&transaction, &lives, life, &staged).await?;
    }
    let (staged, columns) = (table.staged(), table.columns());
    let index = i32::try_from(index).unwrap_or(i32::MAX);
    transaction
        .execute_typed(
            &format!(
                "insert into {lives} (life, sink, instance, staged, columns) values ($1, $2, $3, $4, $5) \
                 on conflict do nothing"
            ),
            &[
                (&owner.life, Type::INT8),
                (&owner.sink, Type::TEXT),
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
    life: i64,
    through: i64,
    tables: Option<OwnTables>,
    on_replaced: OnReplaced,
) -> Result<Shown, Trouble> {
    let transaction = session.transaction().await?;
    let lives = table.lives();
    if let Some(before) = tables {
        compare(&transaction, table, before, on_replaced).await?;
    }
    let Some(note) = note_of(&transaction, &lives, life).await? else {
        return Err(Trouble::Final(taken_over(table)));
    };
    if note.published >= through {
        return Ok(Shown {
            refused: note.refused_before(through)?,
            notice: None,
        });
    }
    let mut transaction = transaction;
    let refused = move_rows(&mut transaction, table, &note, note.published..through).await?;
    let noted_refusals = noted(&refused)?;
    let parameters = [(&life as _, Type::INT8), (&through as _, Type::INT8)];
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
/// `WriteFailed` if a table was dropped since, unless the job is to go on.
pub(crate) async fn settle(
    session: &mut Session,
    table: &Table,
    estate: Estate,
    on_replaced: OnReplaced,
) -> Result<Shown, Trouble> {
    let mut transaction = session.transaction().await?;
    let lives = table.lives();
    let note = match exists(&transaction, &lives).await? {
        true => note_of(&transaction, &lives, estate.life).await?,
        false => None,
    };
    let before = estate.tables.unwrap_or_default();
    let staged = note
        .as_ref()
        .map_or_else(|| table.staged(), |note| note.staged.clone());
    let waits = note
        .as_ref()
        .is_some_and(|note| note.published < estate.through);
    let now = OwnTables::find(&transaction, table, &staged).await?;
    let notice = now.missing(before, table, waits);
    if let (Some(why), OnReplaced::Fail) = (&notice, on_replaced) {
        return Err(Trouble::Final(gone(why)));
    }
    let Some(note) = note else {
        return Ok(Shown {
            notice,
            ..Shown::default()
        });
    };
    let refused = match waits {
        true if now.staged.is_some() => {
            let numbers = note.published..estate.through;
            move_rows(&mut transaction, table, &note, numbers).await?
        }
        true => Vec::new(),
        false => note.refused_before(estate.through)?,
    };
    remove(&transaction, &lives, estate.life, &note.staged).await?;
    transaction.commit().await?;
    Ok(Shown { refused, notice })
}

/// What is noted with a life.
struct Note {
    life: i64,
    published: i64,
    staged: String,
    columns: Vec<String>,
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
                "select published, staged, columns, refused from {lives} where life = $1 for update"
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

async fn remove(
    transaction: &Transaction<'_>,
    lives: &str,
    life: i64,
    staged: &str,
) -> Result<(), Trouble> {
    if exists(transaction, staged).await? {
        let rest = format!("delete from {staged} where ardea_life = $1");
        transaction
            .execute_typed(&rest, &[(&life, Type::INT8)])
            .await?;
    }
    let note = format!("delete from {lives} where life = $1");
    transaction
        .execute_typed(&note, &[(&life, Type::INT8)])
        .await?;
    Ok(())
}

async fn exists(transaction: &Transaction<'_>, table: &str) -> Result<bool, Trouble> {
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

fn taken_over(table: &Table) -> Error {
    let what = format!("another run of this job writes to the table {}", table.name);
    Error::new(ErrorCode::Superseded, what)
        .hint("let one run at a time, or give each job its own name")
}
