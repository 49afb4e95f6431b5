//! Tests of names of tables and columns.

use ardea_connectors::collections::items;
use ardea_connectors::postgres::{Row, TableName, read, write};
use ardea_pipeline::Pipeline;
use serde::{Deserialize, Serialize};

use super::environment::{ask, shared_server};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct User {
    #[serde(rename = "user")]
    name: String,
}

fn users() -> Vec<User> {
    let user = |name: &str| User { name: name.into() };
    vec![user("ann"), user("bob")]
}

fn write_users(url: &str, table: impl Into<TableName>, column: &str) -> ardea_core::Result<()> {
    let p = Pipeline::new("write");
    let fill = |user: &User, row: &mut Row<'_>| {
        row.set(&user.name);
    };
    let sink = write(url, table, [column], fill).upsert([column]);
    p.read_from(items(users())).write_to(sink);
    p.run()
}

fn read_users(url: &str, table: impl Into<TableName>, key: &str) -> ardea_core::Result<Vec<User>> {
    let p = Pipeline::new("read");
    let back = p.read_from(read::<User>(url, table, key).build()).collect();
    p.run()?;
    Ok(back.take())
}

#[test]
fn reader_and_writer_mean_the_same_table() {
    let Some(url) = shared_server() else { return };
    ask(&url, "create schema \"My Schema\"");
    for (given, sql) in [
        ("user", "\"user\""),
        ("Order", "\"Order\""),
        ("select", "\"select\""),
        ("My Schema.Order by", "\"My Schema\".\"Order by\""),
        ("\"dot.ted\"", "\"dot.ted\""),
        ("My Schema.\"a.\"\"b\"", "\"My Schema\".\"a.\"\"b\""),
        ("o'brien", "\"o'brien\""),
        ("ardea_row", "ardea_row"),
    ] {
        ask(
            &url,
            &format!("create table {sql} (\"user\" text primary key)"),
        );
        write_users(&url, given, "user").unwrap();
        assert_eq!(read_users(&url, given, "user").unwrap(), users(), "{given}");
    }
    let name = TableName::new("Order by").in_schema("My Schema");
    assert_eq!(read_users(&url, name, "user").unwrap(), users());
}

#[test]
fn columns_are_taken_as_they_are() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table \"Columns\" (\"Key\" text primary key, \"user\" text generated always as (\"Key\") stored)",
    );
    write_users(&url, "Columns", "Key").unwrap();
    assert_eq!(read_users(&url, "Columns", "Key").unwrap(), users());
}

#[test]
fn names_that_statements_use_are_columns_as_any_other() {
    let Some(url) = shared_server() else { return };
    let names = [
        "ardea_row",
        "key",
        "json",
        "place",
        "r",
        "p",
        "i",
        "waiting",
        "latest",
        "given",
    ];
    let columns: Vec<_> = names.iter().map(|name| format!("{name} text")).collect();
    let columns = columns.join(", ");
    ask(
        &url,
        &format!("create table alike_names (\"user\" text primary key, {columns})"),
    );
    let p = Pipeline::new("write");
    let fill = move |user: &User, row: &mut Row<'_>| {
        for _ in 0..=names.len() {
            row.set(&user.name);
        }
    };
    let written = names.into_iter().chain(["user"]);
    let sink = write(&url, "alike_names", written, fill).upsert(["user"]);
    p.read_from(items(users())).write_to(sink);
    p.run().unwrap();
    assert_eq!(read_users(&url, "alike_names", "user").unwrap(), users());
    assert_eq!(
        read_users(&url, "alike_names", "ardea_row").unwrap(),
        users()
    );

    ask(
        &url,
        "create table own_names (ardea_number text primary key)",
    );
    let error = write_users(&url, "own_names", "ardea_number").unwrap_err();
    assert!(error.to_string().contains("ardea_number"), "{error}");
}

#[test]
fn a_missing_name_is_told_with_what_there_is() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create schema other; create table other.\"Invoice\" (\"User\" text primary key)",
    );
    for error in [
        write_users(&url, "invoice", "user").unwrap_err(),
        read_users(&url, "invoice", "user").unwrap_err(),
    ] {
        assert!(error.to_string().contains("other.Invoice"), "{error}");
    }
    for error in [
        write_users(&url, "other.Invoice", "user").unwrap_err(),
        read_users(&url, "other.Invoice", "user").unwrap_err(),
    ] {
        assert!(error.to_string().contains("it has \"User\""), "{error}");
    }
    let p = Pipeline::new("query");
    let source = ardea_connectors::postgres::query::<User>(&url, "select 1 as \"Id\";", "id");
    let _rows = p.read_from(source.build()).collect();
    let error = p.run().unwrap_err().to_string();
    assert!(error.contains("it has \"Id\""), "{error}");
}
