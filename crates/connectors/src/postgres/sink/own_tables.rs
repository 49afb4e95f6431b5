//! The tables of a sink that writes exactly once, and whether they are still those that it has
//! used.

use ardea_core::{Error, ErrorCode};
use serde::{Deserialize, Serialize};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::table::Table;
use crate::postgres::trouble::Trouble;

/// The numbers of tables, which change when they are created again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OwnTables {
    /// The table that is written.
    pub target: Option<u32>,
    /// The table of lives.
    pub lives: Option<u32>,
    /// The table in which rows wait.
    pub staged: Option<u32>,
}

impl OwnTables {
    /// Looks the tables up. Rows wait in `staged`, which may be a table of an earlier form.
    pub async fn find(
        transaction: &Transaction<'_>,
        table: &Table,
        staged: &str,
    ) -> Result<OwnTables, Trouble> {
        let row = transaction
            .query_typed_one(
                "select to_regclass($1)::oid, to_regclass($2)::oid, to_regclass($3)::oid",
                &[
                    (&table.name, Type::TEXT),
                    (&table.lives(), Type::TEXT),
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

    /// Compares them with those of before. Returns what is missing, if anything is. Whether rows
    /// wait decides about the table in which they would.
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
                "the table {} was dropped, which says what has been written to {name}",
                table.lives()
            ));
        }
        (waits && is_other(before.staged, self.staged)).then(|| {
            format!("the table was dropped in which rows waited that were to be written to {name}")
        })
    }
}

/// Describes a table that is missing.
pub(crate) fn gone(why: &str) -> Error {
    Error::new(ErrorCode::WriteFailed, why).permanent().hint(
        "bring the table back from a backup, begin without a snapshot, or go on without the rows with \
         `on_replaced(OnReplaced::Continue)`",
    )
}
