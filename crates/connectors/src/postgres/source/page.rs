//! Pages of rows.

use std::error::Error as StdError;

use ardea_core::{Error, ErrorCode};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::PostgresSourceConfig;
use super::pages::null_key;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::relation::Identity;

/// A row of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PageRow {
    /// Key as text.
    pub key: String,
    /// Row as JSON, which may not be UTF-8 if the database does not check it; or the reason why the
    /// server cannot produce it.
    pub json: Result<Vec<u8>, String>,
}

/// Consecutive rows, read by one statement.
#[derive(Default, Debug)]
pub(crate) struct Page {
    /// Table that the rows were read from; `None` for a query.
    pub identity: Option<Identity>,
    pub rows: Vec<PageRow>,
}

/// Raw bytes of a text value.
struct Bytes(Vec<u8>);

impl<'a> FromSql<'a> for Bytes {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Bytes(raw.to_vec()))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT
    }
}

/// Returns the bytes of a text column.
pub(crate) fn text(row: &Row, column: usize) -> Result<Option<Vec<u8>>, PgErrorClass> {
    let bytes: Option<Bytes> = row.try_get(column)?;
    Ok(bytes.map(|Bytes(bytes)| bytes))
}

/// Returns the table identity in the first two columns.
pub(crate) fn identity(row: &Row) -> Result<Option<Identity>, PgErrorClass> {
    let oid: Option<u32> = row.try_get(0)?;
    let file = row.try_get(1)?;
    Ok(oid.map(|oid| Identity { oid, file }))
}

/// Converts result rows to a page, and drops the extra row that checks for a duplicate key.
pub(crate) fn page_of(plan: &PostgresSourceConfig, answer: &[Row]) -> Result<Page, PgErrorClass> {
    let mut page = Page::default();
    for row in answer {
        page.identity = identity(row)?;
        let place: Option<i64> = row.try_get(5)?;
        if place.is_none() {
            continue;
        }
        let key = text(row, 2)?.ok_or_else(|| null_key(plan))?;
        let key = String::from_utf8(key).map_err(|error| no_text(plan, error.as_bytes()))?;
        if row.try_get::<_, Option<bool>>(4)? == Some(true) {
            return Err(PgErrorClass::Final(twice(plan, &key)));
        }
        let json = Ok(text(row, 3)?.unwrap_or_default());
        page.rows.push(PageRow { key, json });
    }
    page.rows.truncate(plan.page.get() as usize);
    Ok(page)
}

fn twice(plan: &PostgresSourceConfig, key: &str) -> Error {
    let what = format!(
        "the key {} of {} is not unique: {key} comes twice",
        plan.key, plan.name
    );
    Error::new(ErrorCode::InvalidJob, what)
        .hint("choose a unique column: rows with the same key would be skipped")
}

fn no_text(plan: &PostgresSourceConfig, key: &[u8]) -> Error {
    let what = format!(
        "a key {} of {} is no UTF-8: {}",
        plan.key,
        plan.name,
        String::from_utf8_lossy(key)
    );
    Error::new(ErrorCode::ReadFailed, what).hint("choose another column as the key")
}
