//! Tests of the sink with a real server.

use std::io::Write;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ardea_connectors::collections::items;
use ardea_connectors::redis::{Commands, write};
use ardea_core::{ErrorCode, OnError};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_metastore::conformance::{Server, Skipped};
use ardea_pipeline::Pipeline;

mod cluster;
mod encrypted;
mod exactly_once;
mod refused;
mod sentinel;

/// Starts a server. If this fails, prints a message and returns `None`.
fn own_server() -> Option<Server> {
    started("redis.sh")
}

/// Starts a server with a script.
fn started(script: &str) -> Option<Server> {
    match Server::start(script) {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED tests of {script}: {why}");
            None
        }
    }
}

/// Returns the address of the shared server of all non-disruptive tests. It ends with the process.
fn shared_server() -> Option<String> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(own_server).as_ref().map(url)
}

fn url(server: &Server) -> String {
    format!("redis://{}/", server.address())
}

/// Returns the server's response to a command.
fn ask<A: redis::FromRedisValue>(url: &str, command: &[&str]) -> A {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut asked = redis::cmd(command[0]);
    asked.arg(&command[1..]);
    asked.query(&mut connection).unwrap()
}

fn numbers(count: u64) -> Vec<u64> {
    (0..count).collect()
}

#[test]
fn every_record_is_carried_out_in_order() {
    let Some(url) = shared_server() else { return };
    let p = Pipeline::new("write");
    let sink = write(&url, |n: &u64, commands: &mut Commands| {
        commands
            .hset("last", n % 10, n)
            .incr_by("sum", i64::try_from(*n).unwrap())
            .command("RPUSH", &[&"all", n]);
    });
    p.read_from(items(numbers(20_000))).write_to(sink);
    p.run().unwrap();
    assert_eq!(ask::<u64>(&url, &["GET", "sum"]), 20_000 * 19_999 / 2);
    assert_eq!(ask::<u64>(&url, &["HGET", "last", "3"]), 19_993);
    assert_eq!(
        ask::<Vec<u64>>(&url, &["LRANGE", "all", "0", "-1"]),
        numbers(20_000)
    );
}

#[test]
fn a_refused_command_is_a_dead_letter_of_its_record_and_the_others_are_carried_out() {
    let Some(url) = shared_server() else { return };
    let refused = |n: &u64, commands: &mut Commands| {
        let key = if *n == 3 { "a list" } else { "a number" };
        commands.command("LPUSH", &[&"a list", &0]).incr_by(key, 1);
    };
    let p = Pipeline::new("write");
    p.read_from(items(numbers(6)))
        .write_to(write(&url, refused));
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.join().unwrap();
    let letters = job.dead_letters().sample();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].origin, "record 3");
    assert!(
        letters[0].reason.contains("WRONGTYPE"),
        "{}",
        letters[0].reason
    );
    assert_eq!(ask::<u64>(&url, &["GET", "a number"]), 5);

    let p = Pipeline::new("strict");
    p.read_from(items(numbers(6)))
        .write_to(write(&url, refused).on_error(OnError::Fail));
    let error = p.run().expect_err("it is refused");
    assert_eq!(error.code(), ErrorCode::BadRecord, "{error}");
}

#[test]
fn a_server_that_dies_is_waited_for_and_every_record_is_carried_out() {
    const RECORDS: u64 = 200_000;
    let Some(server) = own_server() else { return };
    let url = url(&server);
    let p = Pipeline::new("write");
    p.read_from(items(numbers(RECORDS))).write_to(write(
        &url,
        |n: &u64, commands: &mut Commands| {
            commands.hset("seen", n, n);
        },
    ));
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while job
        .metrics()
        .iter()
        .all(|instance| instance.metrics.records_in == 0)
    {
        assert!(Instant::now() < deadline, "nothing is written");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    server.kill();
    server.restart();
    job.join().unwrap();
    assert_eq!(ask::<u64>(&url, &["HLEN", "seen"]), RECORDS);
}

#[test]
fn a_server_that_is_full_is_waited_for_and_every_record_is_carried_out() {
    let Some(server) = own_server() else { return };
    let url = url(&server);
    let _: () = ask(&url, &["CONFIG", "SET", "maxmemory", "1"]);
    let p = Pipeline::new("write");
    p.read_from(items(numbers(1_000)))
        .write_to(write(&url, |n: &u64, commands: &mut Commands| {
            // A full server accepts commands that free memory.
            commands.del("gone").hset("all", n, n).set("last", n);
        }));
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ask::<String>(&url, &["INFO", "errorstats"]).contains("OOM") {
        assert!(Instant::now() < deadline, "nothing is written");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let _: () = ask(&url, &["CONFIG", "SET", "maxmemory", "0"]);
    job.join().unwrap();
    assert_eq!(job.dead_letters().count(), 0);
    assert_eq!(ask::<u64>(&url, &["HLEN", "all"]), 1_000);
    assert_eq!(ask::<u64>(&url, &["GET", "last"]), 999);
}

#[test]
fn a_job_whose_server_is_away_can_be_cancelled() {
    let p = Pipeline::new("nobody");
    let sink = write(
        "redis://127.0.0.1:1/",
        |n: &u64, commands: &mut Commands| {
            commands.set("n", n);
        },
    );
    p.read_from(items(numbers(10))).write_to(sink);
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.cancel();
    assert!(job.wait(Duration::from_secs(60)).is_over());
}

#[test]
fn an_address_that_makes_no_sense_fails_the_job_without_telling_it() {
    let p = Pipeline::new("nowhere");
    p.read_from(items(numbers(1))).write_to(write(
        "http://user:secret@x",
        |_: &u64, _: &mut Commands| {},
    ));
    let error = p.run().expect_err("that is no address");
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(!error.to_string().contains("secret"), "{error}");
}
