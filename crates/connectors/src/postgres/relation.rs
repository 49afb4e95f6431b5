//! Tables as described by the server's catalogue.

use ardea_core::{Error, ErrorCode};
use tokio_postgres::types::Type;

use crate::postgres::error_class::PgErrorClass;
use crate::postgres::session::Session;
use crate::postgres::table_name::{TableName, quoted};

/// Maximum number of names listed in an error message.
const LISTED: usize = 20;

/// Identity of a table, used to detect a later table of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Identity {
    /// Object id; changes when the table is dropped and created again.
    pub oid: u32,
    /// File node (the number of the table's file); also changes when the table is truncated or
    /// rewritten, as by `VACUUM FULL`. `None` for views and partitioned tables.
    pub file: Option<i64>,
}

/// A table, view or other relation of the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Relation {
    pub oid: u32,
    /// Schema, quoted if necessary.
    pub schema: String,
    /// Unquoted schema.
    pub plain_schema: String,
    /// Unquoted name without schema.
    pub plain: String,
    /// The catalogue's `relkind`: table, view and so on.
    pub kind: String,
    /// True for an unlogged table, which a server crash truncates.
    pub is_unlogged: bool,
}

/// A column of a table.
pub(crate) struct Column {
    /// Unquoted name.
    pub name: String,
    /// Type without length or precision.
    pub kind: String,
    /// Type with `not null`, if declared.
    pub declared: String,
}

impl Relation {
    /// Looks up a table.
    ///
    /// # Errors
    /// `InvalidJob` if the table does not exist. The error lists names that differ only in case.
    pub async fn find(session: &mut Session, name: &TableName) -> Result<Relation, PgErrorClass> {
        let found = session
            .query_opt(
                "select c.oid, quote_ident(n.nspname), c.relname::text, c.relkind::text, \
                 c.relpersistence::text, n.nspname::text from pg_class c \
                 join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass($1)",
                &[(&name.quoted(), Type::TEXT)],
            )
            .await?;
        let Some(row) = found else {
            return Err(missing(session, name).await?.into());
        };
        let persistence: String = row.try_get(4)?;
        let relation = Relation {
            oid: row.try_get(0)?,
            schema: row.try_get(1)?,
            plain: row.try_get(2)?,
            kind: row.try_get(3)?,
            is_unlogged: persistence == "u",
            plain_schema: row.try_get(5)?,
        };
        if !["r", "v", "m", "f", "p"].contains(&&relation.kind[..]) {
            let what = format!("{name} in the database is neither a table nor a view");
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("check the name")
                .into());
        }
        Ok(relation)
    }

    /// Returns the quoted name with schema.
    pub fn quoted(&self) -> String {
        format!("{}.{}", self.schema, quoted(&self.plain))
    }

    /// Returns the columns in order.
    pub async fn columns(&self, session: &mut Session) -> Result<Vec<Column>, PgErrorClass> {
        let rows = session
            .query(
                "select attname::text, format_type(atttypid, -1), \
                 format_type(atttypid, atttypmod) || case when attnotnull then ' not null' else '' end \
                 from pg_attribute where attrelid = $1 and attnum > 0 and not attisdropped order by attnum",
                &[(&self.oid, Type::OID)],
            )
            .await?;
        let mut columns = Vec::with_capacity(rows.len());
        for row in &rows {
            columns.push(Column {
                name: row.try_get(0)?,
                kind: row.try_get(1)?,
                declared: row.try_get(2)?,
            });
        }
        Ok(columns)
    }
}

async fn missing(session: &mut Session, name: &TableName) -> Result<Error, PgErrorClass> {
    let similar = session
        .query(
            "select n.nspname::text, c.relname::text from pg_class c \
             join pg_namespace n on n.oid = c.relnamespace \
             where c.relkind in ('r', 'v', 'm', 'f', 'p') and lower(c.relname) = lower($1) \
             and n.nspname not in ('pg_catalog', 'information_schema') \
             order by pg_table_is_visible(c.oid) desc, 1, 2 limit 5",
            &[(&name.table(), Type::TEXT)],
        )
        .await?;
    let mut names = Vec::with_capacity(similar.len());
    for row in &similar {
        let (schema, table): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        names.push(TableName::new(table).in_schema(schema).to_string());
    }
    let error = Error::new(
        ErrorCode::InvalidJob,
        format!("there is no table {name} in the database"),
    );
    Ok(match names.is_empty() {
        true => error.hint("create it, or write its name with the schema: schema.table"),
        false => error
            .because(format!("there is {}", names.join(", ")))
            .hint("names are case-sensitive and written without quotes"),
    })
}

/// Returns the error of a missing column of a table or query. It lists the names that differ only
/// in case, or otherwise all columns.
pub(crate) fn no_column<'a>(
    what: &str,
    wanted: &str,
    columns: impl Iterator<Item = &'a str> + Clone,
) -> Error {
    let similar = columns
        .clone()
        .filter(|column| column.to_lowercase() == wanted.to_lowercase());
    let mut listed: Vec<_> = similar.map(|name| format!("{name:?}")).collect();
    if listed.is_empty() {
        listed = columns
            .take(LISTED)
            .map(|name| format!("{name:?}"))
            .collect();
    }
    Error::new(
        ErrorCode::InvalidJob,
        format!("{what} has no column {wanted:?}"),
    )
    .because(format!("it has {}", listed.join(", ")))
    .hint("names are case-sensitive and written without quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_column_is_told_with_those_that_are_alike() {
        let columns = ["id", "Name", "price"];
        let alike = no_column("t", "name", columns.into_iter()).to_string();
        assert!(alike.contains("it has \"Name\""), "{alike}");
        assert!(!alike.contains("price"), "{alike}");
        let other = no_column("t", "size", columns.into_iter()).to_string();
        assert!(other.contains("\"id\", \"Name\", \"price\""), "{other}");
    }
}
