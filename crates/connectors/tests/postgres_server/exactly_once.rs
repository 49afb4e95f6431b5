//! Tests of an exactly-once sink that is killed at any time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_connectors::postgres::{Row, write};
use ardea_core::{Epoch, ErrorCode, Instance, ProcessorSupplier};
use ardea_testkit::{CapturedEpoch, ExternalHarness, TestRandom};

use super::environment::{ask, failure_of, number, own_server, shared_server, url};

/// Creates a sink that writes each number as a row of `table`.
fn counting(url: &str, table: &str) -> Arc<dyn ProcessorSupplier> {
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n).set(format!("number {n}"));
    };
    let sink = write(url, table, ["n", "name"], fill).exactly_once();
    sink.build().into_parts().1
}

fn create(url: &str, table: &str) {
    ask(url, &format!("create table {table} (n bigint, name text)"));
}

fn begin(
    sink: &Arc<dyn ProcessorSupplier>,
    job: &str,
    kept: Option<&CapturedEpoch>,
) -> ExternalHarness {
    ExternalHarness::begin(sink, job, Instance::ONLY, kept)
}

fn assert_each_is_there_once(url: &str, table: &str, count: u64) {
    let found = ask(
        url,
        &format!("select count(*), count(distinct n), coalesce(max(n), -1) from {table}"),
    );
    let all = count.to_string();
    let most = (count as i64 - 1).to_string();
    assert_eq!(found[0], [&all[..], &all[..], &most[..]]);
}

/// Returns the number of staged rows of a table, and the number of a sink's attempts that have not
/// ended.
fn waiting(url: &str, table: &str, job: &str) -> (u64, u64) {
    let staged = ask(
        url,
        &format!(
            "select oid::regclass from pg_class where relkind = 'r' and relname like 'ardea\\_staged\\_{table}\\_%'"
        ),
    );
    let rows = staged
        .iter()
        .map(|name| number(url, &format!("select count(*) from {}", name[0])))
        .sum();
    let lives = format!(
        "select count(*) from ardea_attempts where sink like '{job}/%' and ended_by is null"
    );
    (rows, number(url, &lives))
}

#[test]
fn each_row_is_there_once_whenever_the_sink_dies() {
    let Some(url) = shared_server() else { return };
    create(&url, "dying");
    let sink = counting(&url, "dying");
    let mut lot = TestRandom::new(7);
    let (mut committed, mut epoch) = (None::<CapturedEpoch>, Epoch::default());
    let (mut read, mut kept_read) = (0, 0);
    let mut life = begin(&sink, "dying", None);
    while read < 4_000 || committed.is_none() {
        let count = 1 + lot.below(60) as u64;
        life.write(read..read + count);
        read += count;
        epoch = epoch.next();
        let kept = life.end_epoch(epoch, lot.below(4) == 0);
        let is_committed = lot.below(3) > 0;
        if is_committed {
            (committed, kept_read) = (Some(kept.clone()), read);
        }
        match lot.below(5) {
            // Crash, possibly after the commit was received and its commands were sent.
            0 => {
                if is_committed && lot.below(2) == 0 {
                    life.begin_commit(epoch);
                }
                drop(life);
                life = begin(&sink, "dying", committed.as_ref());
                read = kept_read;
            }
            // Neither commit nor abort arrives.
            1 => {}
            _ if is_committed => life.commit(&kept),
            _ => life.abort(epoch),
        }
    }
    life.complete();
    let kept = life.end_epoch(epoch.next(), false);
    life.commit(&kept);
    assert!(!life.awaits_commit());
    assert_each_is_there_once(&url, "dying", read);
    assert_eq!(waiting(&url, "dying", "dying"), (0, 1));
}

#[test]
fn each_row_is_there_once_whenever_the_server_dies() {
    let Some(server) = own_server() else { return };
    let url = url(&server);
    create(&url, "killed");
    let sink = counting(&url, "killed");
    let mut life = begin(&sink, "killed", None);
    for number in 1..=5 {
        life.write((number - 1) * 10_000..number * 10_000 - 5_000);
        // Kills the server while rows are staged and while they are published; sometimes the sink
        // crashes too.
        server.kill();
        server.restart();
        life.write(number * 10_000 - 5_000..number * 10_000);
        let kept = life.end_epoch(Epoch(number), number % 2 == 0);
        life.begin_commit(Epoch(number));
        server.kill();
        if number % 2 == 0 {
            drop(life);
            server.restart();
            life = begin(&sink, "killed", Some(&kept));
        } else {
            server.restart();
            life.commit(&kept);
        }
    }
    assert_each_is_there_once(&url, "killed", 50_000);
    assert_eq!(waiting(&url, "killed", "killed").0, 0);
}

#[test]
fn who_takes_over_shows_what_was_committed_and_the_earlier_run_fails() {
    let Some(url) = shared_server() else { return };
    create(&url, "two");
    let sink = counting(&url, "two");
    let mut first = begin(&sink, "two", None);
    first.write(0u64..3_000);
    let kept = first.end_epoch(Epoch(1), true);
    first.write(3_000u64..4_000);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| drop(begin(&sink, "two", Some(&kept))));
        }
    });
    let second = begin(&sink, "two", Some(&kept));
    assert_each_is_there_once(&url, "two", 3_000);
    // Late actions of the earlier run have no effect.
    let error = failure_of(&mut first);
    assert_eq!(error.code(), ErrorCode::Superseded, "{error}");
    assert_each_is_there_once(&url, "two", 3_000);
    assert_eq!(waiting(&url, "two", "two"), (0, 1));
    drop(second);
}

#[test]
fn other_numbers_of_instances_share_what_is_left() {
    let Some(url) = shared_server() else { return };
    create(&url, "shared");
    let sink = counting(&url, "shared");
    let instances = |count: u32, kept: Option<&CapturedEpoch>| -> Vec<ExternalHarness> {
        let instance = |index| Instance {
            index,
            parallelism: count,
        };
        (0..count)
            .map(|index| ExternalHarness::begin(&sink, "shared", instance(index), kept))
            .collect()
    };
    let mut next = 0;
    let mut kept = None;
    for (round, count) in [3, 1, 4, 2, 2].into_iter().enumerate() {
        let mut all = instances(count, kept.as_ref());
        assert_eq!(number(&url, "select count(*) from shared"), next);
        for life in &mut all {
            life.write(next..next + 100);
            next += 100;
        }
        let snapshots = all
            .iter_mut()
            .map(|life| life.end_epoch(Epoch(round as u64 + 1), false));
        // The epoch is committed, and all instances crash before they receive the commit.
        kept = Some(CapturedEpoch::merge(snapshots));
        // Rows of the next epoch are lost with the instances.
        all[0].write(1_000_000u64..1_000_100);
    }
    drop(instances(1, kept.as_ref()));
    assert_each_is_there_once(&url, "shared", next);
    assert_eq!(waiting(&url, "shared", "shared"), (0, 1));
}

#[test]
fn what_a_run_has_left_that_never_committed_is_removed() {
    let Some(url) = shared_server() else { return };
    create(&url, "abandoned");
    let sink = counting(&url, "abandoned");
    let mut first = begin(&sink, "abandoned", None);
    first.write(0u64..500);
    first.end_epoch(Epoch(1), true);
    drop(first);
    assert_eq!(waiting(&url, "abandoned", "abandoned"), (500, 1));
    let mut second = begin(&sink, "abandoned", None);
    second.write(0u64..10);
    let kept = second.end_epoch(Epoch(1), true);
    assert_eq!(waiting(&url, "abandoned", "abandoned").1, 1);
    second.commit(&kept);
    assert_eq!(waiting(&url, "abandoned", "abandoned"), (0, 1));
    assert_each_is_there_once(&url, "abandoned", 10);
}

#[test]
fn rows_that_are_refused_when_they_are_shown_are_dead_letters() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table choosy (n bigint check (n not in (3, 700)), name varchar(10))",
    );
    let sink = counting(&url, "choosy");
    let mut life = begin(&sink, "choosy", None);
    // "number 1000" is too long and is refused when staged.
    life.write(0u64..1_001);
    let kept = life.end_epoch(Epoch(1), true);
    life.commit(&kept);
    let mut letters = life.dead_letters().sample();
    letters.sort_by_key(|letter| letter.origin.len());
    let origins: Vec<_> = letters.iter().map(|letter| &letter.origin[..]).collect();
    assert_eq!(origins, ["record 3", "record 700", "record 1000"]);
    assert_eq!(number(&url, "select count(*) from choosy"), 998);
    life.write(1_000_000u64..1_000_001);
    let kept = life.end_epoch(Epoch(2), false);
    life.commit(&kept);
}

fn origins(life: &ExternalHarness) -> Vec<String> {
    let letters = life.dead_letters().sample().into_iter();
    letters.map(|letter| letter.origin.to_string()).collect()
}

#[test]
fn a_row_that_a_deferred_constraint_refuses_is_a_dead_letter() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table deferring (n bigint unique deferrable initially deferred, name text); \
         insert into deferring values (7, 'before')",
    );
    let sink = counting(&url, "deferring");
    let mut life = begin(&sink, "deferring", None);
    life.write(0u64..20);
    let kept = life.end_epoch(Epoch(1), true);
    life.commit(&kept);
    assert_eq!(origins(&life), ["record 7"]);
    assert_each_is_there_once(&url, "deferring", 20);
}

#[test]
fn a_refused_row_is_told_of_if_the_answer_of_the_commit_is_lost() {
    let Some(server) = own_server() else { return };
    let url = url(&server);
    ask(
        &url,
        "create table lossy (n bigint check (n <> 3), name text)",
    );
    let sink = counting(&url, "lossy");
    let mut life = begin(&sink, "lossy", None);
    life.write(0u64..10);
    let kept = life.end_epoch(Epoch(1), true);
    // The server commits, and delays the response.
    ask(
        &url,
        "alter system set synchronous_standby_names = 'nobody'",
    );
    ask(&url, "select pg_reload_conf()");
    life.begin_commit(Epoch(1));
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where wait_event = 'SyncRep' and backend_type = 'client backend'";
    let deadline = Instant::now() + Duration::from_secs(60);
    while number(&url, end) == 0 {
        assert!(Instant::now() < deadline, "nothing is committed");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    ask(&url, "alter system reset synchronous_standby_names");
    ask(&url, "select pg_reload_conf()");
    life.commit(&kept);
    assert_eq!(origins(&life), ["record 3"]);
    drop(life);
    // The process may have died before it reported the row.
    let next = begin(&sink, "lossy", Some(&kept));
    assert_eq!(origins(&next), ["record 3 of the previous run"]);
    drop(next);
    let next = begin(&sink, "lossy", Some(&kept));
    assert_eq!(origins(&next), [""; 0]);
    assert_eq!(number(&url, "select count(*) from lossy"), 9);
}

#[test]
fn nothing_is_seen_before_it_is_committed_and_then_the_latest_of_each_key() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table unseen (n bigint primary key, name text)",
    );
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n % 10).set(n);
    };
    let sink = write(&url, "unseen", ["n", "name"], fill)
        .upsert(["n"])
        .exactly_once();
    let sink = sink.build().into_parts().1;
    let mut life = begin(&sink, "unseen", None);
    life.write(0u64..50);
    let kept = life.end_epoch(Epoch(1), true);
    life.write(50u64..60);
    assert_eq!(number(&url, "select count(*) from unseen"), 0);
    life.commit(&kept);
    let found = ask(&url, "select count(*), min(name), max(name) from unseen");
    assert_eq!(found[0], ["10", "40", "49"]);
}
