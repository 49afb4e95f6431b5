//! Servers that sentinels name.

use std::time::{Duration, Instant};

use ardea_connect::collections::items;
use ardea_connect_redis::{Commands, write};
use ardea_core::ErrorCode;
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_pipeline::Pipeline;

use super::refused::refusal;
use super::{ask, numbers, started};

#[test]
fn the_server_that_sentinels_name_is_written_to_also_when_it_is_another_one() {
    const RECORDS: u64 = 100_000;
    let Some(server) = started("redis-sentinel.sh") else {
        return;
    };
    let sentinel = format!("redis://{}/", server.address());
    let primary = || -> String {
        let (host, port): (String, u16) =
            ask(&sentinel, &["SENTINEL", "get-master-addr-by-name", "main"]);
        format!("redis://{host}:{port}/")
    };
    let first = primary();
    // Times and numbers of its commands are known to the replica before they are answered.
    let _: () = ask(&first, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let url = format!("redis+sentinel://{}/main", server.address());
    let p = Pipeline::new("sentinel");
    let sink = write(url, |n: &u64, commands: &mut Commands| {
        commands.hset("seen", n, n);
    });
    // What the first server has confirmed it may lose with its life, so that the same comes again.
    p.read_from(items(numbers(RECORDS)))
        .write_to(sink.idempotent());
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while ask::<u64>(&first, &["EXISTS", "seen"]) == 0 {
        assert!(Instant::now() < deadline, "nothing is written");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    // It hands over to the replica, which has all that it has confirmed.
    let _: () = ask(&sentinel, &["SENTINEL", "FAILOVER", "main"]);
    job.join().unwrap();
    while primary() == first {
        assert!(Instant::now() < deadline, "the replica does not take over");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    // Until the failover has ended, sentinels list the first server among their primaries.
    let role_of_first = || format!("{:?}", ask::<redis::Value>(&first, &["ROLE"]));
    while !role_of_first().contains("slave") {
        assert!(Instant::now() < deadline, "the first server stays primary");
        std::thread::park_timeout(Duration::from_millis(10));
    }

    let again = write(
        format!("redis+sentinel://{}/main", server.address()),
        |n: &u64, commands: &mut Commands| {
            commands.set("last", n);
        },
    );
    let p = Pipeline::new("again");
    p.read_from(items(numbers(10))).write_to(again);
    p.run().unwrap();
    assert_eq!(ask::<u64>(&primary(), &["GET", "last"]), 9);
}

#[test]
fn a_sentinel_is_not_taken_for_a_server() {
    let Some(server) = started("redis-sentinel.sh") else {
        return;
    };
    let url = format!("redis://{}/", server.address());
    let sink = write(url, |n: &u64, commands: &mut Commands| {
        commands.set("n", n);
    });
    let error = refusal(sink);
    assert_eq!(error.code(), ErrorCode::InvalidConfig, "{error}");
    assert!(error.to_string().contains("redis+sentinel"), "{error}");
}
