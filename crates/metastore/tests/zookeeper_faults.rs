//! Tests specific to ZooKeeper: counters that restart, and session timeouts of the server.

use ardea_core::ErrorCode;
use ardea_metastore::conformance::{Proxy, Server, Skipped};
use ardea_metastore::zookeeper::ZooKeeperState;
use ardea_metastore::{Expected, MetadataStore, StateOptions, StatePath};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

fn path(text: &str) -> StatePath {
    StatePath::parse(text).expect("a path")
}

async fn open(address: SocketAddr) -> ZooKeeperState {
    let (servers, root) = ([address.to_string()], path("/prod"));
    let state = ZooKeeperState::connect(&servers, &root, StateOptions::default());
    state.await.expect("it connects")
}

/// With ZooKeeper's comparison alone, a write would succeed if the node is recreated between its
/// read and its change, which a slow connection makes likely.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_writer_does_not_take_a_node_made_anew_for_the_one_that_it_read() {
    const LIVES: u32 = 40;
    let server = match Server::start("zookeeper.sh") {
        Ok(server) => server,
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED a test of ZooKeeper: {why}");
            return;
        }
    };
    let proxy = Proxy::start(server.address()).expect("a proxy");
    let (maker, writer) = (open(server.address()).await, open(proxy.address()).await);
    proxy.slow(Duration::from_millis(10));
    let node = path("/node");
    let touched = node.clone();
    let toucher = tokio::spawn(async move {
        loop {
            let Some(seen) = writer.get(&touched).await.expect("read") else {
                continue;
            };
            if *seen.value == *b"end" {
                return;
            }
            let expected = Expected::Version(seen.version);
            match writer.set(&touched, &seen.value, expected).await {
                Ok(_) => {}
                Err(error) => assert_eq!(error.code(), ErrorCode::MetastoreConflict, "{error}"),
            }
        }
    });
    // Each incarnation of the node lasts about as long as a write.
    let mut lives = tokio::time::interval(Duration::from_millis(55));
    for life in 0..LIVES {
        let value = life.to_string();
        let made = maker.set(&node, value.as_bytes(), Expected::Absent);
        made.await.expect("made");
        lives.tick().await;
        let held = maker.get(&node).await.expect("read").expect("there");
        assert_eq!(
            String::from_utf8_lossy(&held.value),
            value,
            "another life's mark"
        );
        maker.delete(&node, Expected::Any).await.expect("deleted");
    }
    maker
        .set(&node, b"end", Expected::Absent)
        .await
        .expect("made");
    toucher.await.expect("no panic");
}
