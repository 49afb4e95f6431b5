//! Rows that wait beside their table until their epoch is committed.
//!
//! # Why no row is lost and none is there twice
//!
//! Each instance has a *life*, drawn by lot, which it notes in the table `ardea_lives` before it does anything, and in each of its cuts. Its
//! rows lie in a second table, under the life and the position of their record, on the server's disk before the cut is taken. When the epoch
//! is committed they are moved, in one transaction that also notes, with the life, up to which record that has been done.
//!
//! * Doing it again moves nothing: the note says that it has been done. The same goes for laying rows aside: each has its place.
//! * A statement of a broken connection that the server carries out late lays aside what is there already, or what is before the note; the latter
//!   is never moved, and removed with the next epoch.
//! * Who takes over from a dead life, and finds it in the cut, moves its rows up to where that cut says, removes the rest, which will come
//!   again, and its note. A life without a note is over: that has been done for it. So an earlier life that does not know yet
//!   that it is over lays nothing aside any more, and fails when it wants to move something.
//! * Lives of the same sink that nobody knows any more were of runs that never committed anything. They are removed when another begins.

use std::ops::Range;

use ardea_core::{Error, ErrorCode, Instance};
use tokio_postgres::{Client, GenericClient, Transaction};

use super::table::Table;
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

/// Makes what is missing, removes what runs have left that never committed anything, and notes the life.
pub(crate) async fn begin(
    client: &mut Client,
    table: &Table,
    owner: &Owner,
) -> Result<(), Trouble> {
    let transaction = client.transaction().await?;
    // Several that begin at once do so one after the other.
    transaction
        .execute("select pg_advisory_xact_lock(hashtext('ardea_lives'))", &[])
        .await?;
    for (name, create) in table.create() {
        if !exists(&transaction, &name).await? {
            transaction.batch_execute(&create).await?;
        }
    }
    let lives = table.lives();
    let Instance { index, parallelism } = owner.instance;
    let (index, parallelism) = (i64::from(index), i64::from(parallelism));
    let left = transaction
        .query(
            &format!(
                "select life, staged from {lives} \
                 where sink = $1 and instance::bigint % $2 = $3 and life <> $4 for update"
            ),
            &[&owner.sink, &parallelism, &index, &owner.life],
        )
        .await?;
    for row in &left {
        let (life, staged): (i64, String) = (row.get(0), row.get(1));
        remove(&transaction, &lives, life, &staged).await?;
    }
    let (staged, columns) = (table.staged(), table.columns());
    let index = i32::try_from(index).unwrap_or(i32::MAX);
    transaction
        .execute(
            &format!(
                "insert into {lives} (life, sink, instance, staged, columns) values ($1, $2, $3, $4, $5) \
                 on conflict do nothing"
            ),
            &[&owner.life, &owner.sink, &index, &staged, &columns],
        )
        .await?;
    Ok(transaction.commit().await?)
}

/// Moves the rows of a life before this record, unless that has been done.
///
/// # Errors
/// `Superseded` if another run has taken over.
pub(crate) async fn publish(
    client: &mut Client,
    table: &Table,
    life: i64,
    through: i64,
) -> Result<Vec<RefusedRow>, Trouble> {
    let transaction = client.transaction().await?;
    let lives = table.lives();
    let Some(note) = note_of(&transaction, &lives, life).await? else {
        return Err(Trouble::Final(taken_over(table)));
    };
    if note.published >= through {
        return Ok(Vec::new());
    }
    let mut transaction = transaction;
    let refused = move_rows(&mut transaction, table, &note, note.published..through).await?;
    transaction
        .execute(
            &format!(
                "delete from {} where ardea_life = $1 and ardea_number < $2",
                note.staged
            ),
            &[&life, &through],
        )
        .await?;
    transaction
        .execute(
            &format!("update {lives} set published = $2 where life = $1"),
            &[&life, &through],
        )
        .await?;
    transaction.commit().await?;
    Ok(refused)
}

/// Takes over from a dead life: moves its rows before this record, and removes the rest of it.
pub(crate) async fn settle(
    client: &mut Client,
    table: &Table,
    life: i64,
    through: i64,
) -> Result<Vec<RefusedRow>, Trouble> {
    let mut transaction = client.transaction().await?;
    let lives = table.lives();
    if !exists(&transaction, &lives).await? {
        return Ok(Vec::new());
    }
    let Some(note) = note_of(&transaction, &lives, life).await? else {
        return Ok(Vec::new());
    };
    let refused = match note.published < through {
        true => move_rows(&mut transaction, table, &note, note.published..through).await?,
        false => Vec::new(),
    };
    remove(&transaction, &lives, life, &note.staged).await?;
    transaction.commit().await?;
    Ok(refused)
}

/// What is noted with a life.
struct Note {
    life: i64,
    published: i64,
    staged: String,
    columns: Vec<String>,
}

/// Nobody else moves or lays aside anything of this life until the transaction ends.
async fn note_of(
    transaction: &Transaction<'_>,
    lives: &str,
    life: i64,
) -> Result<Option<Note>, Trouble> {
    let found = transaction
        .query_opt(
            &format!("select published, staged, columns from {lives} where life = $1 for update"),
            &[&life],
        )
        .await?;
    Ok(found.map(|row| Note {
        life,
        published: row.get(0),
        staged: row.get(1),
        columns: row.get(2),
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
    let mut refused = Vec::new();
    // Halves, quarters and so on of what was refused, the first on top.
    let mut left = vec![numbers];
    while let Some(part) = left.pop() {
        let step = transaction.savepoint("ardea_part").await?;
        let moved = step
            .execute(&publish, &[&note.life, &part.start, &part.end])
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
        transaction.execute(&rest, &[&life]).await?;
    }
    let note = format!("delete from {lives} where life = $1");
    transaction.execute(&note, &[&life]).await?;
    Ok(())
}

async fn exists(client: &impl GenericClient, table: &str) -> Result<bool, Trouble> {
    let found = client
        .query_one("select to_regclass($1) is not null", &[&table])
        .await?;
    Ok(found.get(0))
}

fn taken_over(table: &Table) -> Error {
    let what = format!("another run of this job writes to the table {}", table.name);
    Error::new(ErrorCode::Superseded, what)
        .hint("let one run at a time, or give each job its own name")
}
