//! Tests of servers named by sentinels.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ardea_connectors::collections::items;
use ardea_connectors::redis::{Commands, write};
use ardea_core::{Epoch, ErrorCode, Instance};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_metastore::conformance::Server;
use ardea_pipeline::Pipeline;
use ardea_testkit::ExternalHarness;

use super::refused::{refusal, supplier};
use super::{ask, numbers, started};

/// A sentinel with a primary and a replica.
struct Sentinel {
    server: Server,
    first: String,
    deadline: Instant,
}

impl Sentinel {
    /// Starts the servers. If this fails, prints a message and returns `None`.
    fn start() -> Option<Sentinel> {
        let server = started("redis-sentinel.sh")?;
        let mut sentinel = Sentinel {
            server,
            first: String::new(),
            deadline: Instant::now() + Duration::from_secs(120),
        };
        sentinel.first = sentinel.primary();
        Some(sentinel)
    }

    fn address(&self) -> String {
        format!("redis://{}/", self.server.address())
    }

    /// Returns the address of a sink.
    fn sink_address(&self) -> String {
        format!("redis+sentinel://{}/main", self.server.address())
    }

    /// Returns the server that the sentinel names.
    fn primary(&self) -> String {
        let question = ["SENTINEL", "get-master-addr-by-name", "main"];
        let (host, port): (String, u16) = ask(&self.address(), &question);
        format!("redis://{host}:{port}/")
    }

    fn begin_failover(&self) {
        let _: () = ask(&self.address(), &["SENTINEL", "FAILOVER", "main"]);
    }

    /// Returns true once the first server has become a replica.
    fn has_demoted_first(&self) -> bool {
        assert!(Instant::now() < self.deadline, "there is no failover");
        format!("{:?}", ask::<redis::Value>(&self.first, &["ROLE"])).contains("slave")
    }
}

#[test]
fn the_server_that_sentinels_name_is_written_to_also_when_it_is_another_one() {
    const RECORDS: u64 = 100_000;
    let Some(sentinel) = Sentinel::start() else {
        return;
    };
    let p = Pipeline::new("sentinel");
    let sink = write(
        sentinel.sink_address(),
        |n: &u64, commands: &mut Commands| {
            commands.hset("seen", n, n);
        },
    );
    p.read_from(items(numbers(RECORDS)))
        .write_to(sink.idempotent());
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    while ask::<u64>(&sentinel.first, &["EXISTS", "seen"]) == 0 {
        assert!(Instant::now() < sentinel.deadline, "nothing is written");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    sentinel.begin_failover();
    job.join().unwrap();
    while sentinel.primary() == sentinel.first {
        assert!(Instant::now() < sentinel.deadline, "no replica takes over");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let seen = || ask::<u64>(&sentinel.primary(), &["HLEN", "seen"]);
    assert_eq!(seen(), RECORDS);

    // The first server still accepts commands.
    let again = write(
        sentinel.sink_address(),
        |n: &u64, commands: &mut Commands| {
            commands.set("last", n);
        },
    );
    let p = Pipeline::new("again");
    p.read_from(items(numbers(10))).write_to(again);
    p.run().unwrap();
    assert_eq!(ask::<u64>(&sentinel.primary(), &["GET", "last"]), 9);
}

#[test]
fn a_failover_amid_an_exactly_once_job_loses_and_doubles_nothing() {
    const PER_EPOCH: u64 = 100;
    let Some(sentinel) = Sentinel::start() else {
        return;
    };
    let append = |n: &u64, commands: &mut Commands| {
        commands.command("RPUSH", &[&"all", n]);
    };
    let sink = supplier(write(sentinel.sink_address(), append).exactly_once());
    let mut life = ExternalHarness::begin(&sink, "failover", Instance::ONLY, None);
    let mut epoch = 0;
    let mut last = u64::MAX;
    // Epochs continue from before the failover until the first server has become a replica.
    while epoch < last {
        life.write(epoch * PER_EPOCH..(epoch + 1) * PER_EPOCH);
        epoch += 1;
        let ended = life.end_epoch(Epoch(epoch), false);
        life.commit(&ended);
        if epoch == 20 {
            sentinel.begin_failover();
        }
        if last == u64::MAX && epoch >= 20 && sentinel.has_demoted_first() {
            last = epoch + 20;
        }
    }
    assert_ne!(sentinel.primary(), sentinel.first);
    let all: Vec<u64> = ask(&sentinel.primary(), &["LRANGE", "all", "0", "-1"]);
    assert!(all.into_iter().eq(0..epoch * PER_EPOCH), "once, in order");
}

/// Starts a stale sentinel, which misses the failover and still names the first server. It ends
/// with the process.
fn start_stale_sentinel(first: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let place = first.trim_start_matches("redis://").trim_end_matches('/');
    let (host, port) = place.rsplit_once(':').unwrap();
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let named = format!("*2\r\n{}{}", bulk(host), bulk(port));
    let replicas = format!("*1\r\n*2\r\n{}{}", bulk("flags"), bulk("slave"));
    let serve = move |stream: TcpStream| {
        let mut to = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let answer = match &line[..] {
                "PING" => "+PONG\r\n",
                "SETINFO" => "+OK\r\n",
                "GET-MASTER-ADDR-BY-NAME" => &named,
                "SLAVES" => &replicas,
                _ => continue,
            };
            if to.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn({
                let serve = serve.clone();
                move || serve(stream)
            });
        }
    });
    address
}

#[test]
fn a_sentinel_that_missed_a_failover_is_not_believed() {
    let Some(sentinel) = Sentinel::start() else {
        return;
    };
    let stale = start_stale_sentinel(&sentinel.first);
    let url = format!(
        "redis+sentinel://{stale},{}/main",
        sentinel.server.address()
    );
    let append = |n: &u64, commands: &mut Commands| {
        commands.command("RPUSH", &[&"all", n]);
    };
    let sink = supplier(write(url, append).exactly_once());
    let mut life = ExternalHarness::begin(&sink, "stale", Instance::ONLY, None);
    life.write(0..10u64);
    let ended = life.end_epoch(Epoch(1), true);
    life.commit(&ended);
    sentinel.begin_failover();
    while sentinel.primary() == sentinel.first {
        assert!(Instant::now() < sentinel.deadline, "no replica takes over");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    life.write(10..20u64);
    let ended = life.end_epoch(Epoch(2), true);
    life.commit(&ended);
    let all: Vec<u64> = ask(&sentinel.primary(), &["LRANGE", "all", "0", "-1"]);
    assert!(all.into_iter().eq(0..20), "once, in order");
}

#[test]
fn a_name_that_sentinels_do_not_know_is_refused() {
    let Some(sentinel) = Sentinel::start() else {
        return;
    };
    let url = format!("redis+sentinel://{}/other", sentinel.server.address());
    let error = refusal(write(url, |n: &u64, commands: &mut Commands| {
        commands.set("n", n);
    }));
    assert_eq!(error.code(), ErrorCode::InvalidConfig, "{error}");
    assert!(error.to_string().contains("other"), "{error}");
}

#[test]
fn sentinels_are_asked_with_their_own_login() {
    let Some(sentinel) = Sentinel::start() else {
        return;
    };
    let url = sentinel.sink_address();
    let sink = || {
        write(&url, |n: &u64, commands: &mut Commands| {
            commands.set("login", n);
        })
    };
    let user = ["ACL", "SETUSER", "watcher", "on", ">secret", "+@all"];
    let _: () = ask(&sentinel.address(), &user);
    let _: () = ask(&sentinel.address(), &["ACL", "SETUSER", "default", "off"]);
    let p = Pipeline::new("login");
    p.read_from(items(numbers(10)))
        .write_to(sink().sentinel_login(Some("watcher"), "secret"));
    p.run().unwrap();
    assert_eq!(ask::<u64>(&sentinel.first, &["GET", "login"]), 9);
    for sink in [sink(), sink().sentinel_login(Some("watcher"), "guess")] {
        let error = refusal(sink);
        assert_eq!(error.code(), ErrorCode::Network, "{error}");
        assert!(!error.to_string().contains("guess"), "{error}");
    }
}

#[test]
fn a_sentinel_is_not_taken_for_a_server() {
    let Some(sentinel) = Sentinel::start() else {
        return;
    };
    let sink = write(sentinel.address(), |n: &u64, commands: &mut Commands| {
        commands.set("n", n);
    });
    let error = refusal(sink);
    assert_eq!(error.code(), ErrorCode::InvalidConfig, "{error}");
    assert!(error.to_string().contains("redis+sentinel"), "{error}");
}
