//! Termination of a sink's attempts and removal of their staged rows.
//!
//! # Invariant: no run loses committed rows silently
//!
//! The attempts of a sink are those of the same job, vertex and table. A run that writes to another
//! table is not affected, even with the same name. For attempts on the same table, the database
//! cannot distinguish a dead attempt of this run from another run that may later resume from its
//! own checkpoint. So an attempt is ended in steps, and no step discards rows without a trace:
//!
//! 1. **Marked.** A new attempt marks all other attempts of the sink assigned to its instance
//!    (`ended_by`), and removes none of their rows. A marked attempt fails on its next rows or its
//!    next commit; rows that it could not stage are in no snapshot. The row lock on its entry
//!    orders running statements before the mark.
//! 2. **Cleared.** The rows of a marked attempt are removed when a later attempt publishes its
//!    first rows, or when a further attempt begins. Publishing proves, within a run, that an epoch
//!    was committed whose snapshot was taken after the mark. Clearing at the start of a further
//!    attempt bounds the rows left by a job that fails repeatedly.
//! 3. **Recorded.** If rows were removed, the entry stays, with the record up to which rows were
//!    published, and without a staging table (`staged` is empty). A run restored from a snapshot
//!    beyond that record fails permanently and reports the loss. The entry is removed only if no
//!    unpublished rows were left. So if an entry is missing, the attempt had no rows left to
//!    publish.
//!
//! Cases:
//!
//! * **`kill -9` at any point, restarts, rescaling.** Committed rows belong to attempts in the
//!   restored snapshot. Each attempt is assigned to one instance by its number, and that instance
//!   publishes the attempt's rows before it marks other attempts. Later records are replayed.
//! * **A delayed start of an earlier attempt**, as after a network partition. It marks the newer
//!   attempt but removes none of its rows. The newer attempt fails, is restarted, and publishes the
//!   rows committed meanwhile.
//! * **Epochs that are never committed.** No snapshot names the attempt. It is marked and cleared
//!   as above.
//! * **A savepoint, or an upgrade that keeps the state.** Same as a restart. An older snapshot
//!   requires fewer rows to be published than recorded in the entry, so no row is published again.
//!   If the columns of the table changed, rows stay in the recorded staging table.
//! * **`start_over`, another folder, another cluster.** The new run does not know the earlier one.
//!   The new run marks and clears the earlier run; if the earlier run resumes, it fails with the
//!   reason.
//! * **Two runs from the same checkpoint**, as from copies of a folder. Both continue from the same
//!   attempt. The first publishes its rows and clears the rest. The other fails if it has committed
//!   any of the cleared rows.
//!
//! # Selection of the failing run
//!
//! Each snapshot contains a random number of its run, which is stable across restarts. The mark
//! contains the run of the marking attempt, or a value for a run that began without state. An
//! attempt fails permanently if another run with state has ended it, or if its entry is missing;
//! otherwise both runs would restart and end each other in turn. An attempt ended by its own run,
//! or by a run without state that may be the same run, is restarted. So two runs from copies of one
//! checkpoint may alternate until one fails or is stopped.
//!
//! If `ardea_attempts` was created by an earlier version, the column `ended_by` is added, and
//! attempts of that version are identified by their staging table.

use ardea_core::{Error, ErrorCode, Instance};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::staging::{Owner, exists};
use super::table::Table;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::session::Parameter;

/// Serializes all transactions that create or change the sink's own tables, or end attempts.
pub(super) async fn lock(transaction: &Transaction<'_>) -> Result<(), PgErrorClass> {
    let lock = "select pg_advisory_xact_lock(hashtext('ardea_attempts'))";
    transaction.execute_typed(lock, &[]).await?;
    Ok(())
}

/// Adds the column for the ending run to a table `ardea_attempts` of an earlier version.
pub(super) async fn add_column(
    transaction: &Transaction<'_>,
    table: &Table,
) -> Result<(), PgErrorClass> {
    let lives = table.attempts_table();
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
            _ => PgErrorClass::from(error),
        })
}

fn not_owner(lives: &str, add: &str) -> Error {
    let what = format!("the table {lives} is of an earlier version and lacks the column ended_by");
    Error::new(ErrorCode::InvalidJob, what)
        .because("the user of the address does not own it")
        .hint(format!("have its owner run `{add}`"))
}

/// Marks the other attempts of the sink, and clears the attempts that were marked before.
pub(super) async fn end_others(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
) -> Result<(), PgErrorClass> {
    for other in others(transaction, table, owner, true).await? {
        if other.is_marked {
            clear(transaction, table, owner, &other).await?;
            continue;
        }
        let mark = format!(
            "update {} set ended_by = $2 where attempt = $1",
            table.attempts_table()
        );
        let parameters: [Parameter<'_>; 2] =
            [(&other.attempt, Type::INT8), (&owner.mark(), Type::INT8)];
        transaction.execute_typed(&mark, &parameters).await?;
    }
    Ok(())
}

/// Clears the other marked attempts of the sink.
pub(super) async fn clear_marked(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
) -> Result<(), PgErrorClass> {
    for other in others(transaction, table, owner, false).await? {
        clear(transaction, table, owner, &other).await?;
    }
    Ok(())
}

/// An attempt being ended.
pub(super) struct EndedAttempt {
    pub attempt: i64,
    /// Staging table of the attempt's rows.
    pub staged: String,
    /// Record position; the rows of all earlier records have been published.
    pub published: i64,
    pub is_marked: bool,
}

/// Returns the other attempts assigned to the instance whose rows are not removed: if `all` is
/// false, only the marked attempts.
async fn others(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
    all: bool,
) -> Result<Vec<EndedAttempt>, PgErrorClass> {
    let Instance { index, parallelism } = owner.instance;
    let (index, parallelism) = (i64::from(index), i64::from(parallelism));
    let find = format!(
        "select attempt, staged, published, ended_by is not null from {} \
         where (sink = $1 or sink = $2 and staged = $3) and instance::bigint % $4 = $5 \
         and attempt <> $6 and staged <> '' and ($7 or ended_by is not null) order by attempt for update",
        table.attempts_table()
    );
    let parameters: [Parameter<'_>; 7] = [
        (&owner.sink_of(table), Type::TEXT),
        (&owner.sink, Type::TEXT),
        (&table.staged(), Type::TEXT),
        (&parallelism, Type::INT8),
        (&index, Type::INT8),
        (&owner.attempt, Type::INT8),
        (&all, Type::BOOL),
    ];
    let found = transaction.query_typed(&find, &parameters).await?;
    let mut others = Vec::with_capacity(found.len());
    for row in &found {
        others.push(EndedAttempt {
            attempt: row.try_get(0)?,
            staged: row.try_get(1)?,
            published: row.try_get(2)?,
            is_marked: row.try_get(3)?,
        });
    }
    Ok(others)
}

/// Removes the staged rows of an attempt, and its entry unless unpublished rows were removed.
pub(super) async fn clear(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
    ending: &EndedAttempt,
) -> Result<(), PgErrorClass> {
    let EndedAttempt {
        attempt: life,
        staged,
        published,
        ..
    } = ending;
    let of_life: Parameter<'_> = (life, Type::INT8);
    let mut lost = 0;
    if exists(transaction, staged).await? {
        let moved = format!("delete from {staged} where ardea_attempt = $1 and ardea_number < $2");
        let parameters = [of_life.clone(), (published, Type::INT8)];
        transaction.execute_typed(&moved, &parameters).await?;
        let rest = format!("delete from {staged} where ardea_attempt = $1");
        lost = transaction
            .execute_typed(&rest, std::slice::from_ref(&of_life))
            .await?;
    }
    let lives = table.attempts_table();
    if lost == 0 {
        let note = format!("delete from {lives} where attempt = $1");
        transaction.execute_typed(&note, &[of_life]).await?;
        return Ok(());
    }
    let note = format!(
        "update {lives} set staged = '', published = $2, ended_by = coalesce(ended_by, $3) where attempt = $1"
    );
    let parameters = [
        of_life,
        (published as _, Type::INT8),
        (&owner.mark() as _, Type::INT8),
    ];
    transaction.execute_typed(&note, &parameters).await?;
    Ok(())
}

/// Returns the error of an ended attempt. `ended_by` is the mark of its entry, if the entry exists.
pub(super) fn taken_over(table: &Table, owner: &Owner, ended_by: Option<i64>) -> Error {
    let what = format!("another run of this job writes to the table {}", table.name);
    let error = Error::new(ErrorCode::Superseded, what)
        .hint("let one run at a time, or give each job its own name");
    match ended_by {
        Some(mark) if mark == Owner::WITHOUT_STATE || Some(mark) == owner.run => error,
        _ => error.permanent(),
    }
}

/// Returns the error for rows of an attempt that were removed before they were published.
pub(super) fn removed(table: &Table) -> Error {
    let what = format!(
        "another run of this job wrote to the table {} meanwhile, and removed rows that waited to be \
         written to it",
        table.name
    );
    Error::new(ErrorCode::WriteFailed, what).permanent().hint(
        "give each job its own name; start without a checkpoint, or continue without the rows with \
         `on_replaced(OnReplaced::Continue)`",
    )
}
