//! Tests with clusters.

use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ardea_connectors::collections::items;
use ardea_connectors::redis::{Commands, write};
use ardea_core::{Epoch, ErrorCode, Instance};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_metastore::conformance::Server;
use ardea_pipeline::Pipeline;
use ardea_testkit::ExternalHarness;
use redis::cluster::{ClusterClient, ClusterConnection};

use super::refused::{refusal, supplier};
use super::{numbers, started, url};

fn shared_cluster() -> Option<&'static Server> {
    static CLUSTER: OnceLock<Option<Server>> = OnceLock::new();
    CLUSTER.get_or_init(|| started("redis-cluster.sh")).as_ref()
}

fn connection(url: &str) -> ClusterConnection {
    ClusterClient::new(vec![url])
        .unwrap()
        .get_connection()
        .unwrap()
}

fn ask<A: redis::FromRedisValue>(connection: &mut ClusterConnection, command: &[&str]) -> A {
    let mut asked = redis::cmd(command[0]);
    asked.arg(&command[1..]);
    asked.query(connection).unwrap()
}

/// Appends each number to the list of its remainder modulo 50, and writes a hash for each number.
fn spread(n: &u64, commands: &mut Commands) {
    commands.command("RPUSH", &[&format!("list:{}", n % 50), n]);
    commands.hset(format!("hash:{n}"), "n", n);
}

fn assert_spread(url: &str, count: u64) {
    let mut connection = connection(url);
    for list in 0..50 {
        let numbers: Vec<u64> = ask(
            &mut connection,
            &["LRANGE", &format!("list:{list}"), "0", "-1"],
        );
        assert!(
            numbers.into_iter().eq((list..count).step_by(50)),
            "in order: {list}"
        );
    }
    for n in (0..count).step_by(997) {
        assert_eq!(
            ask::<u64>(&mut connection, &["HGET", &format!("hash:{n}"), "n"]),
            n
        );
    }
}

#[test]
fn commands_go_to_the_nodes_of_their_keys_in_the_order_of_each_key() {
    let Some(server) = shared_cluster() else {
        return;
    };
    let url = url(server);
    let p = Pipeline::new("cluster");
    p.read_from(items(numbers(20_000)))
        .write_to(write(&url, spread));
    p.run().unwrap();
    assert_spread(&url, 20_000);
}

#[test]
fn each_command_counts_once_in_a_cluster_that_does_not_tell_that_it_is_one() {
    let Some(server) = shared_cluster() else {
        return;
    };
    let url = url(server);
    let mut connection = connection(&url);
    let nodes: String = ask(&mut connection, &["CLUSTER", "NODES"]);
    for (user, denied) in [
        ("careful", &["-@dangerous"][..]),
        ("silent", &["-info", "-cluster|info"]),
    ] {
        for node in nodes.lines() {
            let address = node.split([' ', '@']).nth(1).unwrap();
            let mut allow = vec!["ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all"];
            allow.extend(denied);
            let _: () = super::ask(&format!("redis://{address}/"), &allow);
        }
        let p = Pipeline::new("untold");
        let sink = move |n: &u64, commands: &mut Commands| {
            commands.incr_by(format!("{user}:{}", n % 50), 1);
        };
        let login = url.replacen("redis://", &format!("redis://{user}:secret@"), 1);
        p.read_from(items(numbers(5_000)))
            .write_to(write(&login, sink));
        let node = Node::start(NodeConfig::default()).unwrap();
        let job = p.submit(&node, JobConfig::default()).unwrap();
        job.join().unwrap();
        assert_eq!(job.dead_letters().count(), 0, "{user}");
        for key in 0..50 {
            let count: u64 = ask(&mut connection, &["GET", &format!("{user}:{key}")]);
            assert_eq!(count, 100, "{user}:{key}");
        }
    }
}

#[test]
fn a_command_that_its_node_refuses_is_a_dead_letter_of_its_record() {
    let Some(server) = shared_cluster() else {
        return;
    };
    let url = url(server);
    let p = Pipeline::new("refused");
    let sink = write(&url, |n: &u64, commands: &mut Commands| {
        match n {
            3 => commands.command("MSET", &[&"apart:1", n, &"apart:2", n]),
            5 => commands.command("NO SUCH COMMAND", &[n]),
            n => commands.set(format!("alone:{n}"), n),
        };
    });
    p.read_from(items(numbers(100))).write_to(sink);
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.join().unwrap();
    let mut letters = job.dead_letters().sample();
    letters.sort_by(|one, other| one.origin.cmp(&other.origin));
    let origins: Vec<_> = letters.iter().map(|letter| &letter.origin[..]).collect();
    assert_eq!(origins, ["record 3", "record 5"]);
    assert!(
        letters[0].reason.contains("same slot"),
        "{}",
        letters[0].reason
    );
    assert_eq!(ask::<u64>(&mut connection(&url), &["GET", "alone:99"]), 99);
}

#[test]
fn every_command_is_carried_out_in_order_while_slots_move() {
    const RECORDS: u64 = 60_000;
    let Some(server) = started("redis-cluster.sh") else {
        return;
    };
    let url = url(&server);
    let p = Pipeline::new("moving");
    p.read_from(items(numbers(RECORDS)))
        .write_to(write(&url, spread));
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut connection = connection(&url);
    while ask::<u64>(&mut connection, &["EXISTS", "hash:0"]) == 0 {
        assert!(Instant::now() < deadline, "nothing is written");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let nodes: String = ask(&mut connection, &["CLUSTER", "NODES"]);
    let ids: Vec<_> = nodes
        .lines()
        .filter(|line| !line.contains("slave"))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let moved = Command::new("redis-cli")
        .args(["--cluster", "reshard", &server.address().to_string()])
        .args(["--cluster-from", ids[0], "--cluster-to", ids[1]])
        .args(["--cluster-slots", "500", "--cluster-yes"])
        .output()
        .unwrap();
    assert!(moved.status.success(), "{moved:?}");
    job.join().unwrap();
    assert_eq!(job.dead_letters().count(), 0);
    assert_spread(&url, RECORDS);
}

#[test]
fn a_cluster_is_refused_by_a_sink_that_works_exactly_once_without_a_hash_tag() {
    let Some(server) = shared_cluster() else {
        return;
    };
    let url = url(server);
    let count = |n: &u64, commands: &mut Commands| {
        commands.incr_by("without tag", *n as i64);
    };
    let error = refusal(write(&url, count).exactly_once());
    assert_eq!(error.code(), ErrorCode::StoreUnsuitable, "{error}");
    assert!(error.to_string().contains("hash_tag"), "{error}");
    assert_eq!(
        ask::<u64>(&mut connection(&url), &["EXISTS", "without tag"]),
        0
    );
}

#[test]
fn commands_with_a_hash_tag_count_once_and_others_are_dead_letters() {
    let Some(server) = shared_cluster() else {
        return;
    };
    let url = url(server);
    let sink = |tag: &str| {
        let count = |n: &u64, commands: &mut Commands| {
            match n % 1_000 {
                7 => commands.incr_by("elsewhere", 1),
                _ => commands.incr_by("{orders}:sum", *n as i64),
            };
        };
        supplier(write(&url, count).exactly_once().hash_tag(tag))
    };
    let mut kept = None;
    let mut letters = 0;
    for epoch in 1..=6u64 {
        let mut life =
            ExternalHarness::begin(&sink("orders"), "tagged", Instance::ONLY, kept.as_ref());
        life.write((epoch - 1) * 1_000..epoch * 1_000);
        let ended = life.end_epoch(Epoch(epoch), epoch % 2 == 0);
        // Sometimes the attempt dies before or during the commit.
        match epoch % 3 {
            0 => life.begin_commit(ended.epoch),
            1 => {}
            _ => life.commit(&ended),
        }
        letters += life.dead_letters().count();
        kept = Some(ended);
    }
    let error = ExternalHarness::try_begin(&sink("other"), "tagged", Instance::ONLY, kept.as_ref());
    let error = error.err().expect("notes would not be found").to_string();
    assert!(error.contains("hash_tag"), "{error}");
    let life = ExternalHarness::begin(&sink("orders"), "tagged", Instance::ONLY, kept.as_ref());
    letters += life.dead_letters().count();
    let mut connection = connection(&url);
    let all: u64 = (0..6_000).filter(|n| n % 1_000 != 7).sum();
    assert_eq!(ask::<u64>(&mut connection, &["GET", "{orders}:sum"]), all);
    assert_eq!(ask::<u64>(&mut connection, &["EXISTS", "elsewhere"]), 0);
    assert!(letters >= 1, "they are told");
}

#[test]
fn a_failover_of_a_node_loses_and_doubles_nothing() {
    let Some(server) = started("redis-cluster.sh") else {
        return;
    };
    let port = std::fs::read_to_string(server.folder().join("replica.port")).unwrap();
    let replica = format!("redis://{}:{}/", server.address().ip(), port.trim());
    let role = || format!("{:?}", super::ask::<redis::Value>(&replica, &["ROLE"]));
    // The slots of this tag belong to the node with the replica.
    let append = |n: &u64, commands: &mut Commands| {
        commands.command("RPUSH", &[&"{orders}:all", n]);
    };
    let sink = write(url(&server), append)
        .exactly_once()
        .hash_tag("orders");
    let mut life = ExternalHarness::begin(&supplier(sink), "failover", Instance::ONLY, None);
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut epoch = 0;
    let mut last = u64::MAX;
    while epoch < last {
        assert!(Instant::now() < deadline, "the replica does not take over");
        life.write(epoch * 100..(epoch + 1) * 100);
        epoch += 1;
        let ended = life.end_epoch(Epoch(epoch), false);
        life.commit(&ended);
        if epoch == 20 {
            let _: () = super::ask(&replica, &["CLUSTER", "FAILOVER"]);
        }
        if last == u64::MAX && epoch >= 20 && role().contains("master") {
            last = epoch + 20;
        }
    }
    let all: Vec<u64> = super::ask(&replica, &["LRANGE", "{orders}:all", "0", "-1"]);
    assert!(all.into_iter().eq(0..epoch * 100), "once, in order");
}

#[test]
fn a_cluster_that_dies_is_waited_for_and_every_record_is_carried_out() {
    const RECORDS: u64 = 60_000;
    let Some(server) = started("redis-cluster.sh") else {
        return;
    };
    let url = url(&server);
    let p = Pipeline::new("dying");
    let sink = write(&url, |n: &u64, commands: &mut Commands| {
        commands.set(n, n);
    });
    p.read_from(items(numbers(RECORDS)))
        .write_to(sink.idempotent());
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while ask::<u64>(&mut connection(&url), &["EXISTS", "0"]) == 0 {
        assert!(Instant::now() < deadline, "nothing is written");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    server.kill();
    server.restart();
    job.join().unwrap();
    let mut connection = connection(&url);
    for n in 0..RECORDS {
        if n % 101 == 0 {
            assert_eq!(ask::<u64>(&mut connection, &["GET", &n.to_string()]), n);
        }
    }
}
