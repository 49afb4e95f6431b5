//! Tests of servers behind a connection pooler.

use std::fs;
use std::io::Write;
use std::sync::OnceLock;

use ardea_connectors::postgres::{OnReplaced, Row, read, write};
use ardea_core::{Epoch, ErrorCode, Instance, Sink};
use ardea_metastore::conformance::{Server, Skipped};
use ardea_pipeline::Pipeline;
use ardea_testkit::ExternalHarness;

use super::capabilities::refusal;
use super::environment::{ask, number};
use super::reading::{Order, assert_each_once, create, several, small};

/// Addresses of a database: through the pooler in its three modes, and of the server itself.
struct Addresses {
    by_transaction: String,
    by_session: String,
    by_statement: String,
    direct: String,
    /// Common prefix of the pooler addresses.
    pooler: String,
}

fn pooled_server() -> Option<Addresses> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(|| match Server::start("pgbouncer.sh") {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED tests of pgbouncer: {why}");
            None
        }
    });
    let server = server.as_ref()?;
    let port = fs::read_to_string(server.folder().join("server.port")).unwrap();
    let through = |name| format!("postgres://postgres@{}/{name}", server.address());
    Some(Addresses {
        by_transaction: through("postgres"),
        by_session: through("by_session"),
        by_statement: through("by_statement"),
        pooler: through(""),
        direct: format!(
            "postgres://postgres@{}:{}/postgres",
            server.address().ip(),
            port.trim()
        ),
    })
}

fn fill(n: &u64, row: &mut Row<'_>) {
    row.set(n % 100).set(n);
}

fn run(sink: Sink<u64>, count: u64) -> ardea_core::Result<()> {
    let p = Pipeline::new("pooled");
    let numbers: Vec<u64> = (0..count).collect();
    p.read_from(ardea_connectors::collections::items(numbers))
        .write_to(sink);
    p.run()
}

#[test]
fn a_table_is_read_through_a_pooler_by_several_instances() {
    let Some(addresses) = pooled_server() else {
        return;
    };
    create(&addresses.direct, "pooled_orders", 2_000);
    for url in [&addresses.by_transaction, &addresses.by_session] {
        let p = Pipeline::new("read");
        let source = small(read::<Order>(url, "pooled_orders", "id"));
        let orders = p
            .read_from(source.parallelism(several(3)).build())
            .collect();
        p.run().unwrap();
        assert_each_once(orders.take(), 2_000);
    }
    let p = Pipeline::new("read");
    let source = read::<Order>(&addresses.by_statement, "pooled_orders", "id");
    let _orders = p.read_from(source.build()).collect();
    let error = p.run().expect_err("statement mode").to_string();
    assert!(error.contains("pool_mode"), "{error}");
}

#[test]
fn rows_are_written_through_a_pooler_at_once() {
    let Some(addresses) = pooled_server() else {
        return;
    };
    ask(
        &addresses.direct,
        "create table pooled_plain (k bigint, n bigint)",
    );
    ask(
        &addresses.direct,
        "create table pooled_latest (k bigint primary key, n bigint)",
    );
    let url = &addresses.by_transaction;
    run(
        write(url, "pooled_plain", ["k", "n"], fill)
            .parallelism(several(2))
            .build(),
        5_000,
    )
    .unwrap();
    assert_eq!(
        number(
            &addresses.direct,
            "select count(distinct n) from pooled_plain"
        ),
        5_000
    );
    let latest = |url: &str| write(url, "pooled_latest", ["k", "n"], fill).upsert(["k"]);
    run(latest(url).build(), 5_000).unwrap();
    assert_eq!(
        number(&addresses.direct, "select min(n) from pooled_latest"),
        4_900
    );
    let error = run(latest(&addresses.by_statement).build(), 1).expect_err("statement mode");
    assert_eq!(error.code(), ErrorCode::StoreUnsuitable, "{error}");
}

#[test]
fn settings_do_not_stay_with_the_connections_of_others() {
    let Some(addresses) = pooled_server() else {
        return;
    };
    create(&addresses.direct, "pooled_settings", 10);
    let p = Pipeline::new("read");
    let source = read::<Order>(&addresses.by_transaction, "pooled_settings", "id");
    let _orders = p.read_from(source.build()).collect();
    p.run().unwrap();
    let shown = ask(&addresses.by_transaction, "show client_min_messages");
    assert_eq!(shown[0][0], "notice");
}

#[test]
fn rows_are_shown_exactly_once_through_a_pooler() {
    let Some(addresses) = pooled_server() else {
        return;
    };
    ask(
        &addresses.direct,
        "create table pooled_once (k bigint, n bigint check (n <> 7))",
    );
    let sink = write(&addresses.by_transaction, "pooled_once", ["k", "n"], fill).exactly_once();
    let sink = sink.on_replaced(OnReplaced::Fail).build().into_parts().1;
    let mut kept = None;
    for epoch in 1..=6u64 {
        let mut life = ExternalHarness::begin(&sink, "pooled_once", Instance::ONLY, kept.as_ref());
        life.write((epoch - 1) * 1_000..epoch * 1_000);
        let ended = life.end_epoch(Epoch(epoch), epoch % 2 == 0);
        let shown = number(&addresses.direct, "select count(*) from pooled_once");
        assert!(
            shown <= (epoch - 1) * 1_000,
            "nothing of this epoch: {shown}"
        );
        // Sometimes the attempt dies before it receives the commit.
        if epoch % 3 > 0 {
            life.commit(&ended);
        }
        kept = Some(ended);
    }
    drop(ExternalHarness::begin(
        &sink,
        "pooled_once",
        Instance::ONLY,
        kept.as_ref(),
    ));
    let found = ask(
        &addresses.direct,
        "select count(*), count(distinct n), max(n) from pooled_once",
    );
    assert_eq!(found[0], ["5999", "5999", "5999"]);
}

#[test]
fn an_upsert_that_depends_on_sessions_is_refused_before_anything_is_written() {
    let Some(addresses) = pooled_server() else {
        return;
    };
    ask(
        &addresses.direct,
        "create table pooled_fenced (k bigint primary key, n bigint)",
    );
    let upsert = |url: &str| {
        let sink = write(url, "pooled_fenced", ["k", "n"], fill).upsert(["k"]);
        sink.build().into_parts().1
    };
    let sink = upsert(&addresses.by_transaction);
    let mut life = ExternalHarness::begin(&sink, "pooled_fenced", Instance::ONLY, None);
    let error = refusal(&mut life);
    assert_eq!(error.code(), ErrorCode::StoreUnsuitable);
    let error = error.to_string();
    assert!(
        error.contains("pooler") && error.contains("exactly_once"),
        "{error}"
    );
    assert_eq!(
        number(&addresses.direct, "select count(*) from pooled_fenced"),
        0
    );
    for url in [&addresses.by_session, &addresses.direct] {
        let mut life = ExternalHarness::begin(&upsert(url), "pooled_fenced", Instance::ONLY, None);
        life.write(0..10u64);
        life.end_epoch(Epoch(1), true);
        assert_eq!(
            number(&addresses.direct, "select count(*) from pooled_fenced"),
            10
        );
    }
}

#[test]
fn pools_of_one_and_two_connections_are_enough() {
    let Some(addresses) = pooled_server() else {
        return;
    };
    create(&addresses.direct, "few_orders", 2_000);
    for (pool, instances) in [
        ("one_by_transaction", 3),
        ("two_by_transaction", 3),
        ("one_by_session", 1),
        ("two_by_session", 2),
    ] {
        let url = format!("{}{pool}", addresses.pooler);
        let p = Pipeline::new("few");
        let source = small(read::<Order>(&url, "few_orders", "id"));
        let orders = p
            .read_from(source.parallelism(several(instances)).build())
            .collect();
        p.run().unwrap();
        assert_each_once(orders.take(), 2_000);

        let table = format!("few_{pool}");
        ask(
            &addresses.direct,
            &format!("create table {table} (k bigint, n bigint)"),
        );
        let sink = write(&url, &table, ["k", "n"], fill).parallelism(several(instances));
        run(sink.build(), 1_000).unwrap();
        let sink = write(&url, &table, ["k", "n"], fill).exactly_once().build();
        let mut life = ExternalHarness::begin(&sink.into_parts().1, &table, Instance::ONLY, None);
        life.write(1_000..2_000u64);
        let ended = life.end_epoch(Epoch(1), true);
        life.commit(&ended);
        let count = format!("select count(distinct n) from {table}");
        assert_eq!(number(&addresses.direct, &count), 2_000, "{pool}");
    }
}

#[test]
fn an_instance_without_a_connection_of_the_pool_is_refused() {
    let Some(addresses) = pooled_server() else {
        return;
    };
    let url = format!("{}one_refused", addresses.pooler);
    ask(
        &addresses.direct,
        "create table pooled_alone (k bigint, n bigint)",
    );
    let sink = write(&url, "pooled_alone", ["k", "n"], fill).exactly_once();
    let sink = sink.build().into_parts().1;
    let instance = |index| Instance {
        index,
        parallelism: 2,
    };
    let mut first = ExternalHarness::begin(&sink, "pooled_alone", instance(0), None);
    first.write(0..10u64);
    let ended = first.end_epoch(Epoch(1), true);
    first.commit(&ended);
    let mut second = ExternalHarness::begin(&sink, "pooled_alone", instance(1), None);
    let error = refusal(&mut second);
    assert_eq!(error.code(), ErrorCode::StoreUnsuitable, "{error}");
    assert!(error.to_string().contains("pool_size"), "{error}");
}
