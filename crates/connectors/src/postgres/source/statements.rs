//! SQL statements that read a table or query.

use super::PostgresSourceConfig;
use crate::postgres::relation::Relation;
use crate::postgres::table_name::quoted;

/// Alias of a row in statements. A whole row is written `ardea_row.*`: without the star, the name
/// could refer to a column `ardea_row`.
const ROW: &str = "ardea_row";

/// Builder of statements. The first parameter of page statements is the table's name.
pub(crate) struct Statements {
    /// Statement whose rows are read.
    select: String,
    /// Table with schema; empty for a query.
    table: String,
    /// Quoted key column.
    key: String,
    /// Name of the key's type.
    pub kind: String,
    /// Number of rows per page statement: one more than a page, to check that the page's last key
    /// is unique.
    limit: i64,
}

impl Statements {
    pub fn new(plan: &PostgresSourceConfig, relation: Option<&Relation>) -> Self {
        let table = relation.map(Relation::quoted).unwrap_or_default();
        Statements {
            select: match relation {
                Some(_) => format!("select * from {table}"),
                None => plan.select.clone(),
            },
            table,
            key: format!("{ROW}.{}", quoted(&plan.key)),
            kind: "text".to_string(),
            limit: i64::from(plan.page.get()) + 1,
        }
    }

    /// Returns the table with its schema; empty for a query.
    pub fn table(&self) -> &str {
        &self.table
    }

    fn rows(&self) -> String {
        // The newline ends a trailing comment of the statement.
        format!("from ({}\n) as {ROW}", self.select)
    }

    /// Selects one row with the table's identity.
    fn identity(&self) -> &'static str {
        "select c.oid, pg_relation_filenode(c.oid)::bigint as file \
         from (select 1) as one left join pg_class c on c.oid = to_regclass(nullif($1, ''))"
    }

    /// Selects no rows, with all columns.
    pub fn nothing(&self) -> String {
        format!("select {ROW}.* {} limit 0", self.rows())
    }

    /// Selects the name and oid of the key's type; for a domain, the oid of its base type.
    pub fn kind_of_key(&self) -> String {
        let (key, rows) = (&self.key, self.rows());
        format!(
            "select format_type(t.oid, -1), case when t.typtype = 'd' then t.typbasetype else t.oid end \
             from pg_type t where t.oid = pg_typeof((select {key} {rows} limit 0))"
        )
    }

    /// Selects a row if some key is null.
    pub fn null_key(&self) -> String {
        format!(
            "select 1 {} where {} is null limit 1",
            self.rows(),
            self.key
        )
    }

    /// Returns the condition for keys greater than the second parameter.
    pub fn behind(&self) -> String {
        format!("where {} > $2::text::{}", self.key, self.kind)
    }

    /// Returns the condition for keys from the second parameter to the third.
    pub fn between(&self) -> String {
        format!("where {key} >= $2 and {key} <= $3", key = self.key)
    }

    /// Selects a page: identity, key, JSON, and a flag for the same key as in the row before.
    /// Returns at least one row, with a null key if there are no rows.
    pub fn page(&self, condition: &str) -> String {
        self.page_with(&format!("to_json({ROW}.*)::text"), condition)
    }

    /// Selects a page without the JSON of its rows.
    pub fn keys(&self, condition: &str) -> String {
        self.page_with("null::text", condition)
    }

    fn page_with(&self, json: &str, condition: &str) -> String {
        let (identity, key, rows) = (self.identity(), &self.key, self.rows());
        let limit = self.limit;
        format!(
            "select i.oid, i.file, p.key, p.json, p.is_again, p.place from ({identity}) as i left join \
             (select r.key::text as key, r.json, r.key = lag(r.key) over (order by r.key) as is_again, \
             row_number() over (order by r.key) as place from \
             (select {key} as key, {json} as json {rows} {condition} order by {key} limit {limit}) as r) as p \
             on true order by p.place"
        )
    }

    /// Selects the JSON of the row with one key.
    pub fn one(&self) -> String {
        let (key, rows, kind) = (&self.key, self.rows(), &self.kind);
        format!("select to_json({ROW}.*)::text {rows} where {key} = $1::text::{kind} limit 1")
    }

    /// Selects the first key at or after the first parameter.
    pub fn first_from(&self) -> String {
        let (key, rows) = (&self.key, self.rows());
        format!("select {key}::bigint {rows} where {key} >= $1 order by {key} limit 1")
    }

    /// Selects the table's identity, true if a row exists at or after the key in the second
    /// parameter, and the row with this key.
    pub fn position(&self) -> String {
        let (identity, key, rows) = (self.identity(), &self.key, self.rows());
        let kind = &self.kind;
        format!(
            "select i.oid, i.file, exists (select 1 {rows} where {key} >= $2::text::{kind}), \
             (select to_json({ROW}.*)::text {rows} where {key} = $2::text::{kind} limit 1) from ({identity}) as i"
        )
    }
}
