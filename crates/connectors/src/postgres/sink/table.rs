//! The target table: its catalogue data and the SQL statements of the sink.

use ardea_core::{Error, ErrorCode};
use xxhash_rust::xxh3::xxh3_64;

use super::PostgresSinkConfig;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::relation::{Relation, no_column};
use crate::postgres::session::Session;
use crate::postgres::table_name::quoted;

/// Maximum length of the target table's name within the name of the staging table. The server
/// truncates names to 63 bytes, which would cut off the distinguishing digest.
const NAME: usize = 30;

/// The sink's own columns, used in statements beside the columns of the target table.
const OWN: [&str; 2] = ["ardea_attempt", "ardea_number"];

/// The target table and the columns that the sink writes. All names are quoted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    pub relation: Relation,
    /// Name with schema.
    pub name: String,
    columns: Vec<Written>,
    keys: Vec<String>,
}

/// A written column.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Written {
    name: String,
    /// Type without length or precision, so that values are not truncated silently.
    kind: String,
    /// Type with `not null`, if declared.
    declared: String,
}

/// A subquery that returns the written columns, and `ardea_number` for the order.
type Rows = String;

impl Table {
    /// Looks up a table.
    ///
    /// # Errors
    /// `InvalidJob` if the table does not exist or lacks a column.
    pub async fn find(
        session: &mut Session,
        plan: &PostgresSinkConfig,
    ) -> Result<Table, PgErrorClass> {
        let relation = Relation::find(session, &plan.table).await?;
        let known = relation.columns(session).await?;
        let names = || known.iter().map(|column| &column.name[..]);
        let what = format!("the table {}", plan.table);
        let mut columns = Vec::with_capacity(plan.columns.len());
        for wanted in &plan.columns {
            let column = known.iter().find(|column| column.name == *wanted);
            let column = column.ok_or_else(|| no_column(&what, wanted, names()))?;
            columns.push(Written {
                name: quoted(wanted),
                kind: column.kind.clone(),
                declared: column.declared.clone(),
            });
        }
        if let Some(own) = plan.columns.iter().find(|name| OWN.contains(&&name[..])) {
            return Err(reserved(plan, own).into());
        }
        if let Some(key) = plan.keys.iter().find(|key| !plan.columns.contains(key)) {
            let written = plan.columns.iter().map(String::as_str);
            return Err(no_column(
                &format!("the row that is written to {}", plan.table),
                key,
                written,
            )
            .into());
        }
        Ok(Table {
            name: relation.quoted(),
            relation,
            columns,
            keys: plan.keys.iter().map(|key| quoted(key)).collect(),
        })
    }

    /// Returns the table with the columns of `before`, if both are the same table: the staging
    /// table of a running attempt has these columns.
    pub fn with_columns_of(self, before: &Table) -> Table {
        match self.relation.oid == before.relation.oid {
            true => Table {
                columns: before.columns.clone(),
                ..self
            },
            false => self,
        }
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> Vec<String> {
        self.columns
            .iter()
            .map(|column| column.name.clone())
            .collect()
    }

    fn listed(&self) -> String {
        self.columns().join(", ")
    }

    /// Returns the name of the table of attempts, in the same schema.
    pub fn attempts_table(&self) -> String {
        format!("{}.ardea_attempts", self.relation.schema)
    }

    /// Returns the name of the staging table. The name depends on columns and types, so a changed
    /// target table gets another staging table.
    pub fn staged(&self) -> String {
        let columns = self.columns.iter();
        let what: String = columns
            .map(|Written { name, declared, .. }| format!("{name} {declared},"))
            .collect();
        let plain = &self.relation.plain;
        let digest = xxh3_64(format!("{plain} {what}").as_bytes());
        let letters = plain.char_indices();
        let shown = letters.take_while(|(at, letter)| at + letter.len_utf8() <= NAME);
        let shown: String = shown.map(|(_, letter)| letter).collect();
        format!(
            "{}.{}",
            self.relation.schema,
            quoted(&format!("ardea_staged_{shown}_{digest:016x}"))
        )
    }

    /// Returns the statements that create both own tables, with the tables' names.
    pub fn create(&self) -> [(String, String); 2] {
        let columns = self.columns.iter();
        let columns: String = columns
            .map(|Written { name, declared, .. }| format!(", {name} {declared}"))
            .collect();
        let (lives, staged) = (self.attempts_table(), self.staged());
        let create_lives = format!(
            "create table {lives} (attempt bigint primary key, sink text not null, instance integer not null, \
             published bigint not null default 0, refused text not null default '[]', \
             staged text not null, columns text[] not null, begun timestamptz not null default now(), ended_by bigint)"
        );
        let create_staged = format!(
            "create table {staged} (ardea_attempt bigint, ardea_number bigint{columns}, \
             primary key (ardea_attempt, ardea_number))"
        );
        [(lives, create_lives), (staged, create_staged)]
    }

    /// Returns the subquery for rows passed as parameters: one array per column, and then the
    /// record numbers.
    fn given(&self) -> Rows {
        let count = self.columns.len();
        let arrays: String = (1..=count).map(|n| format!("${n}::text[], ")).collect();
        let cast = self.columns.iter();
        let cast: String = cast
            .map(|Written { name, kind, .. }| format!("{name}::{kind} as {name}, "))
            .collect();
        let names = self.listed();
        format!(
            "select {cast}ardea_number from unnest({arrays}${}::bigint[]) as given({names}, ardea_number)",
            count + 1
        )
    }

    /// Returns the statement that writes rows passed as parameters.
    pub fn insert(&self) -> String {
        self.insert_from(&self.listed(), &self.given())
    }

    /// Returns the statement that stages rows passed as parameters; the attempt is the last
    /// parameter. The statement returns 1, or 0 if the attempt has ended and nothing was done.
    pub fn stage(&self) -> String {
        let (staged, lives, names) = (self.staged(), self.attempts_table(), self.listed());
        let attempt = self.columns.len() + 2;
        let given = self.given();
        format!(
            "with attempt as (select attempt from {lives} where attempt = ${attempt} and ended_by is null for key share), \
             laid as (insert into {staged} (ardea_attempt, ardea_number, {names}) \
             select attempt.attempt, typed.ardea_number, {} from attempt, ({given}) as typed on conflict do nothing) \
             select count(*) from attempt",
            names_of("typed", &self.columns()),
        )
    }

    /// Returns the statement that publishes the staged rows of an attempt (`$1`), with numbers from
    /// `$2` to before `$3`.
    pub fn publish(&self, staged: &str, columns: &[String]) -> String {
        let names = columns.join(", ");
        let rows = format!(
            "select {names}, ardea_number from {staged} \
             where ardea_attempt = $1 and ardea_number >= $2 and ardea_number < $3"
        );
        self.insert_from(&names, &rows)
    }

    fn insert_from(&self, names: &str, rows: &str) -> String {
        let table = &self.name;
        if self.keys.is_empty() {
            return format!(
                "insert into {table} ({names}) select {names} from ({rows}) as waiting order by ardea_number"
            );
        }
        let keys = self.keys.join(", ");
        let others = self.columns().into_iter();
        let others = others.filter(|name| !self.keys.contains(name));
        let set: Vec<_> = others
            .map(|name| format!("{name} = excluded.{name}"))
            .collect();
        let resolve = match set.is_empty() {
            true => "nothing".to_string(),
            false => format!("update set {}", set.join(", ")),
        };
        // The last row of each key wins. Rows with a null key stay separate. The order avoids
        // deadlocks between statements.
        let apart = format!("case when ({keys}) is not null then 0 else ardea_number end");
        format!(
            "insert into {table} ({names}) select {names} from (select distinct on ({keys}, {apart}) * from ({rows}) as waiting \
             order by {keys}, {apart}, ardea_number desc) as latest on conflict ({keys}) do {resolve}"
        )
    }
}

fn reserved(plan: &PostgresSinkConfig, column: &str) -> Error {
    let what = format!(
        "the column {column} of the table {} has a name that the sink uses itself",
        plan.table
    );
    Error::new(ErrorCode::InvalidJob, what).hint("rename it, or write to a view that renames it")
}

fn names_of(table: &str, columns: &[String]) -> String {
    let columns = columns.iter().map(|name| format!("{table}.{name}"));
    columns.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relation(plain: &str) -> Relation {
        Relation {
            oid: 1,
            schema: "public".into(),
            plain: plain.into(),
            kind: "r".into(),
            plain_schema: "public".into(),
            is_unlogged: false,
        }
    }

    fn table(keys: &[&str]) -> Table {
        let column = |name: &str, kind: &str, declared: &str| Written {
            name: quoted(name),
            kind: kind.into(),
            declared: declared.into(),
        };
        Table {
            relation: relation("counts"),
            name: "public.\"counts\"".into(),
            columns: vec![
                column("word", "character varying", "character varying(9) not null"),
                column("n", "bigint", "bigint"),
            ],
            keys: keys.iter().map(|key| quoted(key)).collect(),
        }
    }

    #[test]
    fn a_table_that_changes_has_another_one_beside_it() {
        let (one, mut other) = (table(&[]), table(&["word"]));
        assert_eq!(one.staged(), other.staged());
        assert!(one.staged().starts_with("public.\"ardea_staged_counts_"));
        other.columns[1].declared = "integer".into();
        assert_ne!(one.staged(), other.staged());
        let long = |letters: &str| Table {
            relation: relation(&letters.repeat(63)),
            ..table(&[])
        };
        for letters in ["a", "ä", "漢"] {
            let name = long(letters).staged();
            let name = name.strip_prefix("public.").unwrap().trim_matches('"');
            assert!(name.len() <= 63, "{name}");
        }
    }

    #[test]
    fn rows_of_a_key_take_the_place_of_each_other() {
        let plain = table(&[]).insert();
        assert!(
            plain.contains("\"word\"::character varying as \"word\""),
            "{plain}"
        );
        assert!(!plain.contains("conflict"), "{plain}");
        let upsert = table(&["word"]).insert();
        assert!(
            upsert.ends_with("on conflict (\"word\") do update set \"n\" = excluded.\"n\""),
            "{upsert}"
        );
        assert!(table(&["word", "n"]).insert().ends_with("do nothing"));
    }
}
