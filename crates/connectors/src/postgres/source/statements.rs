//! The text of the statements that read a table or query.

use super::Plan;
use crate::postgres::relation::Relation;
use crate::postgres::table_name::quoted;

/// The name of a row in statements. All of a row is written `ardea_row.*`: without the star it
/// would be a column of that name, if there is one.
const ROW: &str = "ardea_row";

/// The text of statements. The first parameter of pages is the table's name.
pub(crate) struct Statements {
    /// The statement whose rows are read.
    select: String,
    /// The table with its schema; empty for a query.
    table: String,
    /// The key's column, quoted.
    key: String,
    /// The name of the key's type.
    pub kind: String,
    /// One row more than a page, which shows whether the key is unique where the page ends.
    limit: i64,
}

impl Statements {
    pub fn new(plan: &Plan, relation: Option<&Relation>) -> Self {
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

    /// The table with its schema; empty for a query.
    pub fn table(&self) -> &str {
        &self.table
    }

    fn rows(&self) -> String {
        // A comment may end the statement.
        format!("from ({}\n) as {ROW}", self.select)
    }

    /// A row with the table's identity.
    fn identity(&self) -> &'static str {
        "select c.oid, pg_relation_filenode(c.oid)::bigint as file \
         from (select 1) as one left join pg_class c on c.oid = to_regclass(nullif($1, ''))"
    }

    /// No row, with all columns.
    pub fn nothing(&self) -> String {
        format!("select {ROW}.* {} limit 0", self.rows())
    }

    /// The name of the key's type, and its number; of a domain, that of the type below it.
    pub fn kind_of_key(&self) -> String {
        let (key, rows) = (&self.key, self.rows());
        format!(
            "select format_type(t.oid, -1), case when t.typtype = 'd' then t.typbasetype else t.oid end \
             from pg_type t where t.oid = pg_typeof((select {key} {rows} limit 0))"
        )
    }

    /// A row, if some key is null.
    pub fn null_key(&self) -> String {
        format!(
            "select 1 {} where {} is null limit 1",
            self.rows(),
            self.key
        )
    }

    /// Keys behind the second parameter.
    pub fn behind(&self) -> String {
        format!("where {} > $2::text::{}", self.key, self.kind)
    }

    /// Keys from the second parameter to the third.
    pub fn between(&self) -> String {
        format!("where {key} >= $2 and {key} <= $3", key = self.key)
    }

    /// A page: identity, key, JSON, and whether the key is that of the row before. At least one
    /// row, also without a key.
    pub fn page(&self, condition: &str) -> String {
        self.page_with(&format!("to_json({ROW}.*)::text"), condition)
    }

    /// A page without the JSON of its rows.
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

    /// The JSON of the row of one key.
    pub fn one(&self) -> String {
        let (key, rows, kind) = (&self.key, self.rows(), &self.kind);
        format!("select to_json({ROW}.*)::text {rows} where {key} = $1::text::{kind} limit 1")
    }

    /// The first key from the first parameter on.
    pub fn first_from(&self) -> String {
        let (key, rows) = (&self.key, self.rows());
        format!("select {key}::bigint {rows} where {key} >= $1 order by {key} limit 1")
    }

    /// Identity, whether there is a row at the second parameter or behind it, and the row there.
    pub fn position(&self) -> String {
        let (identity, key, rows) = (self.identity(), &self.key, self.rows());
        let kind = &self.kind;
        format!(
            "select i.oid, i.file, exists (select 1 {rows} where {key} >= $2::text::{kind}), \
             (select to_json({ROW}.*)::text {rows} where {key} = $2::text::{kind} limit 1) from ({identity}) as i"
        )
    }
}
