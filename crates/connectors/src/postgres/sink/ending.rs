//! Lives that are over: how they are ended, and how long their rows are kept.
//!
//! # Why no run loses committed rows in silence
//!
//! Lives of a sink are those of the same job, vertex and table. A run that writes to another table
//! is not touched, whatever their names. Of lives that write to the same table the database alone
//! can't tell a dead attempt of this run from another run, which may go on from a state of its own.
//! So a life is ended in steps, and none of them forgets rows without a trace:
//!
//! 1. **Marked.** A life that begins marks all others of the sink that fall to its instance
//!    (`ended_by`), and removes none of their rows. A marked life fails with its next rows or its
//!    next commit: rows that it could not lay aside are in no cut. The lock on its note keeps
//!    statements that are under way before the mark.
//! 2. **Cleared.** The rows of a marked life are removed when a later life moves its first rows, or
//!    when a further one begins. The former is proof within a run: an epoch was committed that was
//!    cut after the mark. The latter bounds the rows that a job leaves which fails over and over.
//! 3. **Remembered.** If rows were removed, the note stays, with the record up to which rows were
//!    moved, and without a table (`staged` is empty). A run that comes back with a cut beyond that
//!    fails for good, and says that rows are gone. Only if no row waited the note is removed. So a
//!    missing note says that nothing of that life was to be moved any more.
//!
//! The cases:
//!
//! * **`kill -9` at any point, restarts, other numbers of instances.** Committed rows are those of
//!   lives in the cut that comes back. Each is dealt to one instance by its number, and that
//!   instance moves its rows before it marks anything. What lies behind the cut comes again.
//! * **A late beginning of an earlier attempt**, as after a partition of the network: it marks the
//!   newer life, but removes nothing of it. The newer attempt fails, is restarted, and moves the
//!   rows that were committed meanwhile.
//! * **Epochs that are never committed.** No cut names the life. It is marked and cleared as above.
//! * **A savepoint, or an update that keeps the state.** As a restart. From an older cut less is to
//!   be moved than is noted, so nothing is. Rows of a table that has got other columns wait in the
//!   table that is noted.
//! * **`start_over`, another folder, another cluster.** The new run knows nothing of the earlier
//!   one. It marks and clears that; if the earlier one goes on, it fails and says why.
//! * **One state twice**, as copies of a folder: each goes on from the same life, the first moves
//!   its rows and clears the rest. The other fails if it has committed any of those.
//!
//! # The one of two runs that fails
//!
//! Each cut holds the number of its run, which stays over restarts and is drawn by lot. The mark
//! says of which run the life is that left it, or that this one began without state. A life that
//! was ended by another run with state fails for good, and so does one whose note is missing: or
//! both would be restarted, and end each other in turns. A life that was ended by its own run, or
//! by one that may be an attempt of it, is restarted. So two runs from copies of one state may take
//! turns, until one of them fails or is stopped.
//!
//! A table of lives of an earlier version gets the column, and its lives are told by the table in
//! which their rows wait.

use ardea_core::{Error, ErrorCode, Instance};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::staging::{Owner, exists};
use super::table::Table;
use crate::postgres::session::Parameter;
use crate::postgres::trouble::Trouble;

/// Has all that make or change tables of the sink's own, or end lives, do so one after the other.
pub(super) async fn lock(transaction: &Transaction<'_>) -> Result<(), Trouble> {
    let lock = "select pg_advisory_xact_lock(hashtext('ardea_lives'))";
    transaction.execute_typed(lock, &[]).await?;
    Ok(())
}

/// Gives a table of lives of an earlier version the column that says by which run a life was ended.
pub(super) async fn add_column(
    transaction: &Transaction<'_>,
    table: &Table,
) -> Result<(), Trouble> {
    let lives = table.lives();
    let has_column = "select exists (select from pg_attribute \
                      where attrelid = to_regclass($1) and attname = 'ended_by' and not attisdropped)";
    let found = transaction
        .query_typed_one(has_column, &[(&lives, Type::TEXT)])
        .await?;
    if found.try_get(0)? {
        return Ok(());
    }
    lock(transaction).await?;
    let add = format!("alter table {lives} add column if not exists ended_by bigint");
    transaction
        .batch_execute(&add)
        .await
        .map_err(|error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => not_owner(&lives, &add).into(),
            _ => Trouble::from(error),
        })
}

fn not_owner(lives: &str, add: &str) -> Error {
    let what = format!("the table {lives} is of an earlier version and lacks the column ended_by");
    Error::new(ErrorCode::InvalidJob, what)
        .because("the user of the address does not own it")
        .hint(format!("have its owner run `{add}`"))
}

/// Marks the other lives of the sink, and clears those that were marked before.
pub(super) async fn end_others(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
) -> Result<(), Trouble> {
    for other in others(transaction, table, owner, true).await? {
        if other.is_marked {
            clear(transaction, table, owner, &other).await?;
            continue;
        }
        let mark = format!("update {} set ended_by = $2 where life = $1", table.lives());
        let parameters: [Parameter<'_>; 2] =
            [(&other.life, Type::INT8), (&owner.mark(), Type::INT8)];
        transaction.execute_typed(&mark, &parameters).await?;
    }
    Ok(())
}

/// Clears the other lives of the sink that are marked.
pub(super) async fn clear_marked(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
) -> Result<(), Trouble> {
    for other in others(transaction, table, owner, false).await? {
        clear(transaction, table, owner, &other).await?;
    }
    Ok(())
}

/// A life that ends.
pub(super) struct Ending {
    pub life: i64,
    /// The table in which its rows wait.
    pub staged: String,
    /// Its rows of records before this one were moved.
    pub published: i64,
    pub is_marked: bool,
}

/// Finds the other lives of the sink whose rows are not removed, as far as they fall to the
/// instance: all, or those that are marked.
async fn others(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
    all: bool,
) -> Result<Vec<Ending>, Trouble> {
    let Instance { index, parallelism } = owner.instance;
    let (index, parallelism) = (i64::from(index), i64::from(parallelism));
    let find = format!(
        "select life, staged, published, ended_by is not null from {} \
         where (sink = $1 or sink = $2 and staged = $3) and instance::bigint % $4 = $5 \
         and life <> $6 and staged <> '' and ($7 or ended_by is not null) order by life for update",
        table.lives()
    );
    let parameters: [Parameter<'_>; 7] = [
        (&owner.sink_of(table), Type::TEXT),
        (&owner.sink, Type::TEXT),
        (&table.staged(), Type::TEXT),
        (&parallelism, Type::INT8),
        (&index, Type::INT8),
        (&owner.life, Type::INT8),
        (&all, Type::BOOL),
    ];
    let found = transaction.query_typed(&find, &parameters).await?;
    let mut others = Vec::with_capacity(found.len());
    for row in &found {
        others.push(Ending {
            life: row.try_get(0)?,
            staged: row.try_get(1)?,
            published: row.try_get(2)?,
            is_marked: row.try_get(3)?,
        });
    }
    Ok(others)
}

/// Removes the rows of a life, and its note unless rows that were not moved went with it.
pub(super) async fn clear(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
    ending: &Ending,
) -> Result<(), Trouble> {
    let Ending {
        life,
        staged,
        published,
        ..
    } = ending;
    let of_life: Parameter<'_> = (life, Type::INT8);
    let mut lost = 0;
    if exists(transaction, staged).await? {
        let moved = format!("delete from {staged} where ardea_life = $1 and ardea_number < $2");
        let parameters = [of_life.clone(), (published, Type::INT8)];
        transaction.execute_typed(&moved, &parameters).await?;
        let rest = format!("delete from {staged} where ardea_life = $1");
        lost = transaction
            .execute_typed(&rest, std::slice::from_ref(&of_life))
            .await?;
    }
    let lives = table.lives();
    if lost == 0 {
        let note = format!("delete from {lives} where life = $1");
        transaction.execute_typed(&note, &[of_life]).await?;
        return Ok(());
    }
    let note = format!(
        "update {lives} set staged = '', published = $2, ended_by = coalesce(ended_by, $3) where life = $1"
    );
    let parameters = [
        of_life,
        (published as _, Type::INT8),
        (&owner.mark() as _, Type::INT8),
    ];
    transaction.execute_typed(&note, &parameters).await?;
    Ok(())
}

/// Describes a life that is over: `ended_by` is the mark of its note, if that is there.
pub(super) fn taken_over(table: &Table, owner: &Owner, ended_by: Option<i64>) -> Error {
    let what = format!("another run of this job writes to the table {}", table.name);
    let error = Error::new(ErrorCode::Superseded, what)
        .hint("let one run at a time, or give each job its own name");
    match ended_by {
        Some(mark) if mark == Owner::WITHOUT_STATE || Some(mark) == owner.run => error,
        _ => error.permanent(),
    }
}

/// Describes the rows of a life that were removed before they were moved.
pub(super) fn removed(table: &Table) -> Error {
    let what = format!(
        "another run of this job wrote to the table {} meanwhile, and removed rows that waited to be \
         written to it",
        table.name
    );
    Error::new(ErrorCode::WriteFailed, what).permanent().hint(
        "give each job its own name; begin without a snapshot, or go on without the rows with \
         `on_replaced(OnReplaced::Continue)`",
    )
}
