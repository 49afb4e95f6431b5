//! The tables of an exactly-once sink, and the check that they are unchanged.

use ardea_core::{Error, ErrorCode};
use serde::{Deserialize, Serialize};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::table::Table;
use crate::postgres::error_class::PgErrorClass;

/// Object ids of the tables. An id changes when its table is dropped and created again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OwnTables {
    /// Target table.
    pub target: Option<u32>,
    /// Table of attempts, `ardea_attempts`.
    pub lives: Option<u32>,
    /// Staging table.
    pub staged: Option<u32>,
}

impl OwnTables {
    /// Looks up the tables. `staged` may be a staging table of an earlier format.
    pub async fn find(
        transaction: &Transaction<'_>,
        table: &Table,
        staged: &str,
    ) -> Result<OwnTables, PgErrorClass> {
        let row = transaction
            .query_typed_one(
                "select to_regclass($1)::oid, to_regclass($2)::oid, to_regclass($3)::oid",
                &[
                    (&table.name, Type::TEXT),
                    (&table.attempts_table(), Type::TEXT),
                    (&staged, Type::TEXT),
                ],
            )
            .await?;
        Ok(OwnTables {
            target: row.try_get(0)?,
            lives: row.try_get(1)?,
            staged: row.try_get(2)?,
        })
    }

    /// Compares the tables with `before`, the tables found earlier. Returns a description of a
    /// missing table; the staging table counts only if rows wait in it (`waits`).
    pub fn missing(self, before: OwnTables, table: &Table, waits: bool) -> Option<String> {
        let name = &table.name;
        let is_other = |before: Option<u32>, now| before.is_some() && before != now;
        if is_other(before.target, self.target) {
            return Some(format!(
                "the table {name} was dropped since rows were written to it, and they with it"
            ));
        }
        if is_other(before.lives, self.lives) {
            return Some(format!(
                "the table {} was dropped, which records what was written to {name}",
                table.attempts_table()
            ));
        }
        (waits && is_other(before.staged, self.staged)).then(|| {
            format!("the staging table was dropped, in which rows waited to be written to {name}")
        })
    }
}

/// Returns the error of a missing table.
pub(crate) fn gone(why: &str) -> Error {
    Error::new(ErrorCode::WriteFailed, why).permanent().hint(
        "bring the table back from a backup, start without a checkpoint, or continue without the rows with \
         `on_replaced(OnReplaced::Continue)`",
    )
}
