//! Staging of rows beside their target table until their epoch is committed.
//!
//! # Exactly-once protocol
//!
//! Each attempt of an instance has a random number, stored in the table `ardea_attempts` before
//! anything else is done, and in each snapshot of the attempt. The attempt's rows are written to a
//! staging table, with the attempt's number and the record's position as their key. The rows are on
//! the server's disk before the snapshot is taken. When the epoch is committed, its rows are
//! published: moved to the target table. The same transaction stores, in the attempt's entry, the
//! record up to which rows have been published.
//!
//! * Publishing again moves nothing, because the entry shows that the rows have been published.
//!   Staging again has no effect, because each row has its own key.
//! * A delayed statement of a broken connection stages rows that are already staged, or rows of
//!   records that were already published. Rows of published records are not published again, and
//!   are removed with the next epoch.
//! * A restored attempt takes over from the earlier attempt in the snapshot: it publishes that
//!   attempt's rows up to the position in the snapshot and removes the later rows, whose records
//!   are replayed. If the entry is missing, the takeover has been done.
//! * [`ending`] describes the end of attempts that no snapshot contains, and of attempts of other
//!   runs.
//! * The object ids of the tables are part of each snapshot. So a table that was dropped meanwhile
//!   is not mistaken for an empty one.
//!
//! Rows refused by the target table are stored in the attempt's entry until the rows of the next
//! epoch are published. So a retry that finds the rows already published still reports the refused
//! rows, even if the previous response was lost or the process died. A refused row may be reported
//! twice.
//!
//! All statements run within transactions, so that a pooler may use another server process for each
//! transaction.

use std::ops::Range;

use ardea_core::{Error, ErrorCode, Instance};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::ending::{self, EndedAttempt};
use super::own_tables::{OwnTables, gone};
use super::table::Table;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::replaced::OnReplaced;
use crate::postgres::session::Session;

/// Owner of staged rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// Job and vertex.
    pub sink: String,
    pub instance: Instance,
    pub attempt: i64,
    /// Number of the run; `None` if the attempt began without state.
    pub run: Option<i64>,
}

impl Owner {
    /// Mark of an attempt that began without state.
    pub const WITHOUT_STATE: i64 = 0;

    /// Returns the mark that this attempt stores in the entries of attempts that it ends.
    pub fn mark(&self) -> i64 {
        self.run.unwrap_or(Self::WITHOUT_STATE)
    }

    /// Returns the stored name of the sink: job, vertex and table.
    pub fn sink_of(&self, table: &Table) -> String {
        format!("{}/{}", self.sink, table.name)
    }
}

/// A row that the server refused when it was published: position of its record, and reason.
pub(crate) type RefusedRow = (i64, String);

/// Creates missing tables, ends the other attempts of the sink, and stores an entry for this
/// attempt. Returns the object ids of the tables.
pub(crate) async fn begin(
    session: &mut Session,
    table: &Table,
    owner: &Owner,
) -> Result<OwnTables, PgErrorClass> {
    let transaction = session.transaction().await?;
    ending::lock(&transaction).await?;
    for (name, create) in table.create() {
        if !exists(&transaction, &name).await? {
            transaction.batch_execute(&create).await?;
        }
    }
    ending::add_column(&transaction, table).await?;
    let lives = table.attempts_table();
    // The step is skipped if it was done and only the response was lost.
    if note_of(&transaction, &lives, owner.attempt)
        .await?
        .is_none()
    {
        ending::end_others(&transaction, table, owner).await?;
    }
    let (staged, columns) = (table.staged(), table.columns());
    let index = i32::try_from(owner.instance.index).unwrap_or(i32::MAX);
    transaction
        .execute_typed(
            &format!(
                "insert into {lives} (attempt, sink, instance, staged, columns) values ($1, $2, $3, $4, $5) \
                 on conflict do nothing"
            ),
            &[
                (&owner.attempt, Type::INT8),
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

/// Result of publishing rows.
#[derive(Default)]
pub(crate) struct PublishResult {
    /// Rows refused by the server.
    pub refused: Vec<RefusedRow>,
    /// Description of a loss that the job accepts, if any.
    pub notice: Option<String>,
}

/// Publishes an attempt's rows of records before `through`, unless they are already published.
///
/// # Errors
/// `Superseded` if another run has taken over. `WriteFailed` if a table was dropped since the
/// attempt began, which is permanent unless the job accepts the loss.
pub(crate) async fn publish(
    session: &mut Session,
    table: &Table,
    owner: &Owner,
    through: i64,
    tables: Option<OwnTables>,
    on_replaced: OnReplaced,
) -> Result<PublishResult, PgErrorClass> {
    let transaction = session.transaction().await?;
    let lives = table.attempts_table();
    if let Some(before) = tables {
        compare(&transaction, table, before, on_replaced).await?;
    }
    let note = live_note(&transaction, table, owner).await?;
    if note.published >= through {
        return Ok(PublishResult {
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
    let parameters = [
        (&owner.attempt as _, Type::INT8),
        (&through as _, Type::INT8),
    ];
    let removed = format!(
        "delete from {} where ardea_attempt = $1 and ardea_number < $2",
        note.staged
    );
    transaction.execute_typed(&removed, &parameters).await?;
    let note = format!("update {lives} set published = $2, refused = $3 where attempt = $1");
    let [of_life, to_number] = parameters;
    let parameters = [of_life, to_number, (&noted_refusals as _, Type::TEXT)];
    transaction.execute_typed(&note, &parameters).await?;
    transaction.commit().await?;
    Ok(PublishResult {
        refused,
        notice: None,
    })
}

/// Returns the entry of an attempt.
///
/// # Errors
/// `Superseded` if the attempt has ended.
async fn live_note(
    transaction: &Transaction<'_>,
    table: &Table,
    owner: &Owner,
) -> Result<AttemptEntry, PgErrorClass> {
    let note = note_of(transaction, &table.attempts_table(), owner.attempt).await?;
    match note {
        Some(note) if note.ended_by.is_none() => Ok(note),
        note => {
            let ended_by = note.and_then(|note| note.ended_by);
            Err(ending::taken_over(table, owner, ended_by).into())
        }
    }
}

/// Checks that an attempt has not ended.
///
/// # Errors
/// `Superseded` if the attempt has ended.
pub(crate) async fn check_alive(
    session: &mut Session,
    table: &Table,
    owner: &Owner,
) -> Result<(), PgErrorClass> {
    let transaction = session.transaction().await?;
    live_note(&transaction, table, owner).await.map(drop)
}

/// Compares the tables used by an attempt (`before`) with the existing tables.
///
/// # Errors
/// Same as [`publish`].
async fn compare(
    transaction: &Transaction<'_>,
    table: &Table,
    before: OwnTables,
    on_replaced: OnReplaced,
) -> Result<(), PgErrorClass> {
    let now = OwnTables::find(transaction, table, &table.staged()).await?;
    match now.missing(before, table, true) {
        None => Ok(()),
        Some(why) => Err(PgErrorClass::Final(match on_replaced {
            OnReplaced::Fail => gone(&why),
            // The next attempt takes over and continues with the existing tables.
            OnReplaced::Continue => gone(&why).transient(),
        })),
    }
}

/// Runs [`compare`] in its own transaction.
pub(crate) async fn compare_now(
    session: &mut Session,
    table: &Table,
    before: OwnTables,
    on_replaced: OnReplaced,
) -> Result<(), PgErrorClass> {
    let transaction = session.transaction().await?;
    compare(&transaction, table, before, on_replaced).await
}

/// Staged rows and tables left by an earlier attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PreviousAttempt {
    pub attempt: i64,
    /// Record position; the rows of all earlier records must be published.
    pub through: i64,
    /// Tables used by the attempt; `None` if an earlier version of Ardea wrote it.
    pub tables: Option<OwnTables>,
}

/// Takes over from an earlier attempt: publishes its committed rows and removes the rest.
///
/// # Errors
/// `WriteFailed` if rows were lost with a dropped table or removed by another run, unless the job
/// accepts the loss.
pub(crate) async fn settle(
    session: &mut Session,
    table: &Table,
    owner: &Owner,
    estate: PreviousAttempt,
    on_replaced: OnReplaced,
) -> Result<PublishResult, PgErrorClass> {
    let mut transaction = session.transaction().await?;
    let lives = table.attempts_table();
    let mut note = None;
    if exists(&transaction, &lives).await? {
        ending::add_column(&transaction, table).await?;
        note = note_of(&transaction, &lives, estate.attempt).await?;
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
        (Some(error), OnReplaced::Fail) => return Err(PgErrorClass::Final(error)),
        (missing, _) => missing.map(|error| error.message().to_string()),
    };
    let Some(note) = note else {
        return Ok(PublishResult {
            notice,
            ..PublishResult::default()
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
        let ending = EndedAttempt {
            attempt: estate.attempt,
            staged: note.staged,
            published: note.published.max(estate.through),
            is_marked: note.ended_by.is_some(),
        };
        ending::clear(&transaction, table, owner, &ending).await?;
    }
    transaction.commit().await?;
    Ok(PublishResult { refused, notice })
}

/// An attempt's entry in `ardea_attempts`.
struct AttemptEntry {
    attempt: i64,
    published: i64,
    /// Name of the staging table; empty if the attempt's rows were removed.
    staged: String,
    columns: Vec<String>,
    /// Mark of the attempt that ended this attempt, if any.
    ended_by: Option<i64>,
    /// Rows refused when rows were last published, as JSON.
    refused: String,
}

impl AttemptEntry {
    /// Returns the rows of records before `through` that were refused when rows were last
    /// published.
    fn refused_before(&self, through: i64) -> Result<Vec<RefusedRow>, Error> {
        let mut refused: Vec<RefusedRow> =
            serde_json::from_str(&self.refused).map_err(|error| {
                let what = "the list of refused rows in ardea_attempts cannot be read";
                Error::new(ErrorCode::ReadFailed, what)
                    .because(error)
                    .permanent()
                    .hint("set its column `refused` to []; these rows are in no table then")
            })?;
        refused.retain(|(number, _)| *number < through);
        Ok(refused)
    }
}

/// Encodes refused rows for the entry.
fn noted(refused: &[RefusedRow]) -> Result<String, Error> {
    serde_json::to_string(refused).map_err(|error| {
        let what = "refused rows cannot be stored";
        Error::new(ErrorCode::Internal, what).because(error)
    })
}

/// Returns an attempt's entry. The entry stays locked until the end of the transaction, so that
/// other transactions cannot publish or stage its rows.
async fn note_of(
    transaction: &Transaction<'_>,
    lives: &str,
    life: i64,
) -> Result<Option<AttemptEntry>, PgErrorClass> {
    let found = transaction
        .query_typed_opt(
            &format!(
                "select published, staged, columns, refused, ended_by from {lives} where attempt = $1 for update"
            ),
            &[(&life, Type::INT8)],
        )
        .await?;
    let Some(row) = found else { return Ok(None) };
    Ok(Some(AttemptEntry {
        attempt: life,
        published: row.try_get(0)?,
        staged: row.try_get(1)?,
        columns: row.try_get(2)?,
        refused: row.try_get(3)?,
        ended_by: row.try_get(4)?,
    }))
}

/// Moves the staged rows `numbers` to the target table. Skips and returns rows that the table
/// refuses.
async fn move_rows(
    transaction: &mut Transaction<'_>,
    table: &Table,
    note: &AttemptEntry,
    numbers: Range<i64>,
) -> Result<Vec<RefusedRow>, PgErrorClass> {
    let publish = table.publish(&note.staged, &note.columns);
    // A deferred constraint would reject all rows because of one.
    transaction
        .batch_execute("set constraints all immediate")
        .await?;
    let mut refused = Vec::new();
    // Stack of ranges: a refused range is split in halves, with the first half on top.
    let mut left = vec![numbers];
    while let Some(part) = left.pop() {
        let step = transaction.savepoint("ardea_part").await?;
        let moved = step
            .execute_typed(
                &publish,
                &[
                    (&note.attempt, Type::INT8),
                    (&part.start, Type::INT8),
                    (&part.end, Type::INT8),
                ],
            )
            .await
            .map_err(PgErrorClass::from);
        match moved {
            Ok(_) => step.commit().await?,
            Err(PgErrorClass::Refused(why)) => {
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

pub(super) async fn exists(
    transaction: &Transaction<'_>,
    table: &str,
) -> Result<bool, PgErrorClass> {
    // Reading a catalogue table makes the server process see tables created by others since the
    // transaction began.
    let found = transaction
        .query_typed_one(
            "select to_regclass($1) is not null from pg_class limit 1",
            &[(&table, Type::TEXT)],
        )
        .await?;
    Ok(found.try_get(0)?)
}
