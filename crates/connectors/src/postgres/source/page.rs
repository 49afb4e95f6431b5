//! A page of rows, as the server answers it.

use std::error::Error as StdError;

use ardea_core::{Error, ErrorCode};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::Plan;
use super::pages::null_key;
use crate::postgres::relation::Identity;
use crate::postgres::trouble::Trouble;

/// A row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    /// Its key as text.
    pub key: String,
    /// All of it as JSON, which may be no UTF-8 where the database checks none; or why the server
    /// can't make it.
    pub json: Result<Vec<u8>, String>,
}

/// Rows that follow each other.
#[derive(Default, Debug)]
pub(crate) struct Page {
    /// The table that they were read from. `None` for a query.
    pub identity: Option<Identity>,
    pub rows: Vec<Read>,
}

/// The bytes of a text, whatever they are.
struct Bytes(Vec<u8>);

impl<'a> FromSql<'a> for Bytes {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Bytes(raw.to_vec()))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT
    }
}

/// Returns the bytes of a column of type text.
pub(crate) fn text(row: &Row, column: usize) -> Result<Option<Vec<u8>>, Trouble> {
    let bytes: Option<Bytes> = row.try_get(column)?;
    Ok(bytes.map(|Bytes(bytes)| bytes))
}

/// Returns the identity in the first two columns.
pub(crate) fn identity(row: &Row) -> Result<Option<Identity>, Trouble> {
    let oid: Option<u32> = row.try_get(0)?;
    let file = row.try_get(1)?;
    Ok(oid.map(|oid| Identity { oid, file }))
}

/// Makes a page of an answer, without the last row if there is one more than belongs to the page.
pub(crate) fn page_of(plan: &Plan, answer: &[Row]) -> Result<Page, Trouble> {
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
            return Err(Trouble::Final(twice(plan, &key)));
        }
        let json = Ok(text(row, 3)?.unwrap_or_default());
        page.rows.push(Read { key, json });
    }
    page.rows.truncate(plan.page.get() as usize);
    Ok(page)
}

fn twice(plan: &Plan, key: &str) -> Error {
    let what = format!(
        "the key {} of {} is not unique: {key} comes twice",
        plan.key, plan.name
    );
    Error::new(ErrorCode::InvalidJob, what)
        .hint("choose a column that is: rows of the same key would be passed over")
}

fn no_text(plan: &Plan, key: &[u8]) -> Error {
    let what = format!(
        "a key {} of {} is no UTF-8: {}",
        plan.key,
        plan.name,
        String::from_utf8_lossy(key)
    );
    Error::new(ErrorCode::ReadFailed, what).hint("choose another column as the key")
}
