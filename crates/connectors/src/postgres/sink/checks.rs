//! Checks, before the first write, that a server supports the sink's guarantee.

use ardea_core::{Error, ErrorCode};
use tokio_postgres::types::Type;

use super::PostgresSinkConfig;
use super::table::Table;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::session::Session;

/// Write mode of a sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Rows are written at once and may be written again.
    AtOnce,
    /// Like [`AtOnce`](Mode::AtOnce), after ending the sessions of earlier attempts.
    Fenced,
    /// Rows are staged in the sink's own tables.
    Once,
}

/// Properties of the server and the user.
struct Answers {
    only_reads: bool,
    may_lose: bool,
    may_insert: bool,
    may_update: bool,
    may_use_lives: bool,
    may_use_staged: bool,
    user: String,
}

/// Checks the server. Returns a warning, if any.
///
/// # Errors
/// `StoreUnsuitable` if the server cannot support the guarantee; `InvalidJob` if the user lacks a
/// permission. A read-only server is a transient error unless `is_fresh`, because it may be a
/// standby that is about to be promoted.
pub(crate) async fn check(
    session: &mut Session,
    plan: &PostgresSinkConfig,
    table: &Table,
    mode: Mode,
    is_fresh: bool,
) -> Result<Option<String>, PgErrorClass> {
    if mode == Mode::Fenced && session.is_pooled() {
        return Err(pooled(table).into());
    }
    let answers = ask(session, plan, table).await?;
    if answers.only_reads && !is_fresh {
        let why = "it is read-only at the moment, like a standby";
        return Err(PgErrorClass::Passing(why.to_string()));
    }
    if answers.only_reads {
        return Err(read_only(table).into());
    }
    if mode == Mode::Once {
        refuse_kinds(table)?;
    }
    let is_once = mode == Mode::Once;
    for (is_allowed, what) in [
        (answers.may_insert, "insert rows into it"),
        (
            answers.may_update || plan.keys.is_empty(),
            "update its rows and select its columns",
        ),
        (
            answers.may_use_lives || !is_once,
            "select, insert, update and delete in ardea_attempts beside it, nor create that table",
        ),
        (
            answers.may_use_staged || !is_once,
            "select, insert and delete in the staging table beside it, nor create that",
        ),
    ] {
        if !is_allowed {
            return Err(forbidden(table, &answers.user, what).into());
        }
    }
    let may_lose = answers.may_lose && mode != Mode::AtOnce;
    Ok(may_lose.then(|| {
        "it runs with `fsync = off`: rows that are confirmed may be lost if its machine stops"
            .to_string()
    }))
}

async fn ask(
    session: &mut Session,
    plan: &PostgresSinkConfig,
    table: &Table,
) -> Result<Answers, PgErrorClass> {
    let others: Vec<_> = plan
        .columns
        .iter()
        .filter(|column| !plan.keys.contains(column))
        .collect();
    // An upsert compares the existing row, so it needs read access to the columns.
    let read = if plan.keys.is_empty() {
        &plan.keys
    } else {
        &plan.columns
    };
    let columns = "select coalesce(bool_and(has_column_privilege($1::oid, attnum, ";
    let of = ")), true) from pg_attribute where attrelid = $1::oid and attname::text = any";
    let may_use = |parameter: &str, rights: &[&str]| {
        let rights: Vec<_> = rights
            .iter()
            .map(|right| format!("has_table_privilege(to_regclass({parameter}), '{right}')"))
            .collect();
        format!(
            "case when to_regclass({parameter}) is null then has_schema_privilege($5, 'create') else {} end",
            rights.join(" and ")
        )
    };
    let sql = format!(
        "select pg_is_in_recovery() or current_setting('transaction_read_only') = 'on', \
         current_setting('fsync') = 'off', \
         ({columns}'insert'{of} ($2)), ({columns}'update'{of} ($3)) and ({columns}'select'{of} ($4)), \
         {}, {}, current_user::text",
        may_use("$6", &["select", "insert", "update", "delete"]),
        may_use("$7", &["select", "insert", "delete"]),
    );
    let row = session
        .query_opt(
            &sql,
            &[
                (&table.relation.oid, Type::OID),
                (&plan.columns, Type::TEXT_ARRAY),
                (&others, Type::TEXT_ARRAY),
                (read, Type::TEXT_ARRAY),
                (&table.relation.plain_schema, Type::TEXT),
                (&table.attempts_table(), Type::TEXT),
                (&table.staged(), Type::TEXT),
            ],
        )
        .await?;
    let row = row.ok_or_else(|| PgErrorClass::Passing("it does not answer".to_string()))?;
    Ok(Answers {
        only_reads: row.try_get(0)?,
        may_lose: row.try_get(1)?,
        may_insert: row.try_get(2)?,
        may_update: row.try_get(3)?,
        may_use_lives: row.try_get(4)?,
        may_use_staged: row.try_get(5)?,
        user: row.try_get(6)?,
    })
}

fn refuse_kinds(table: &Table) -> Result<(), Error> {
    let name = &table.name;
    if table.relation.is_unlogged {
        let what = format!("the table {name} is unlogged: a crash of the server empties it");
        return Err(Error::new(ErrorCode::StoreUnsuitable, what)
            .hint("make it logged (`alter table … set logged`), or don't ask for `exactly_once`"));
    }
    if table.relation.kind == "f" {
        let what = format!(
            "the table {name} is a foreign table, whose rows are not committed with those of this server"
        );
        return Err(Error::new(ErrorCode::StoreUnsuitable, what)
            .hint("write to the other server itself, or don't ask for `exactly_once`"));
    }
    Ok(())
}

fn pooled(table: &Table) -> Error {
    let what = format!(
        "the address of the server of {} is that of a connection pooler in transaction mode, and `upsert` depends on sessions",
        table.name
    );
    Error::new(ErrorCode::StoreUnsuitable, what)
        .because("each transaction may be carried out by another process of the server")
        .hint("add `exactly_once`, which works through it; or set its `pool_mode` to `session`, or connect to the server itself")
}

fn read_only(table: &Table) -> Error {
    let what = format!("the server of the table {} is read-only", table.name);
    Error::new(ErrorCode::StoreUnsuitable, what)
        .because("it is a standby, or the user's transactions are read-only")
        .hint("name the primary server, or several with `target_session_attrs=read-write`")
}

fn forbidden(table: &Table, user: &str, what: &str) -> Error {
    let name = &table.name;
    let what =
        format!("the user {user} may not write to {name} as the sink does: it may not {what}");
    Error::new(ErrorCode::InvalidJob, what).hint(format!(
        "grant it: `grant … on {name} to {user}`, and `create` on its schema for the sink's own tables"
    ))
}
