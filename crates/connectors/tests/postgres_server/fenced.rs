//! Tests of upserts of an attempt that dies while an upsert is in progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_connectors::postgres::{Row, write};
use ardea_core::{Epoch, Instance, ProcessorSupplier};
use ardea_testkit::ExternalHarness;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use super::environment::{ask, number, shared_server};

/// A transaction that holds its locks until it is dropped.
struct Held {
    _runtime: Runtime,
    _client: Client,
}

fn hold(url: &str, sql: &str) -> Held {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(sql).await.unwrap();
        client
    });
    Held {
        _runtime: runtime,
        _client: client,
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Creates a sink that writes each number as the value of a single key.
fn latest(url: &str, table: &str) -> Arc<dyn ProcessorSupplier> {
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(1i64).set(n);
    };
    let sink = write(url, table, ["k", "n"], fill).upsert(["k"]);
    sink.build().into_parts().1
}

#[test]
fn what_a_dead_life_has_under_way_is_not_written_behind_what_comes_later() {
    let Some(url) = shared_server() else { return };
    ask(&url, "create table fenced (k bigint primary key, n bigint)");
    let sink = latest(&url, "fenced");
    let mut first = ExternalHarness::begin(&sink, "fenced", Instance::ONLY, None);
    first.write([1u64]);
    let kept = first.end_epoch(Epoch(1), false);
    assert_eq!(number(&url, "select n from fenced"), 1);
    let held = hold(&url, "begin; select n from fenced for update");
    first.write([2u64]);
    eventually("its statement waits on the server", || {
        let waiting = "select count(*) from pg_stat_activity \
                       where wait_event_type = 'Lock' and query like '%\"fenced\"%'";
        number(&url, waiting) == 1
    });
    drop(first);
    let mut second = ExternalHarness::begin(&sink, "fenced", Instance::ONLY, Some(&kept));
    let sessions = "select count(*) from pg_stat_activity where application_name like 'ardea %' \
                    and query like '%\"fenced\"%' and wait_event_type = 'Lock'";
    assert_eq!(number(&url, sessions), 0, "that of the first is over");
    drop(held);
    second.write([3u64]);
    second.end_epoch(Epoch(2), false);
    assert_eq!(number(&url, "select n from fenced"), 3);
}
