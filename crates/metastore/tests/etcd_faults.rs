//! Tests specific to etcd: compacted history, and leases revoked by another client.

use ardea_core::ErrorCode;
use ardea_metastore::conformance::{Proxy, Server, Skipped};
use ardea_metastore::etcd::EtcdState;
use ardea_metastore::{Expected, MetadataStore, SessionEnd, StateOptions, StatePath};
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn path(text: &str) -> StatePath {
    StatePath::parse(text).expect("a path")
}

/// Starts a server; returns `None`, and prints the reason, if there is none.
fn server() -> Option<Server> {
    match Server::start("etcd.sh") {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED tests of etcd: {why}");
            None
        }
    }
}

async fn open(address: SocketAddr) -> EtcdState {
    let options = StateOptions {
        session_timeout: Duration::from_secs(3),
        timeout: Duration::from_secs(2),
    };
    let state = EtcdState::connect(&[address.to_string()], &path("/prod"), options).await;
    state.expect("it connects")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_survives_a_history_that_was_thrown_away_while_it_was_cut_off() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.address()).expect("a proxy");
    let (state, direct) = (open(proxy.address()).await, open(server.address()).await);
    let mut node = state.watch_node(&path("/a")).await.expect("watched");
    let mut names = state.watch_children(&path("/b")).await.expect("watched");
    assert_eq!(node.next().await.expect("told"), None);
    assert!(names.next().await.expect("told").is_empty());

    proxy.cut();
    for round in 0..20 {
        let value = format!("{round}");
        direct
            .set(&path("/a"), value.as_bytes(), Expected::Any)
            .await
            .expect("set");
        let child = path("/b").child(&value).expect("a path");
        direct.set(&child, b"", Expected::Any).await.expect("set");
    }
    let last = direct
        .set(&path("/a"), b"last", Expected::Any)
        .await
        .expect("set");
    let mut raw = etcd_client::Client::connect([server.address().to_string()], None)
        .await
        .expect("it connects");
    raw.compact(last.get().cast_signed(), None)
        .await
        .expect("compacted");
    proxy.heal();

    let told = tokio::time::timeout(Duration::from_secs(30), async {
        while node
            .next()
            .await
            .expect("told")
            .is_none_or(|node| node.version != last)
        {}
        while names.next().await.expect("told").len() != 20 {}
    });
    told.await.expect("the last states are told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_somebody_revokes_ends_the_session() {
    let Some(server) = server() else { return };
    let state = open(server.address()).await;
    let (session, ending) = state.open_session().await.expect("a session");
    session.create(&path("/a"), b"").await.expect("made");
    let lease = i64::from_str_radix(session.id().as_str(), 16).expect("a lease");
    let mut raw = etcd_client::Client::connect([server.address().to_string()], None)
        .await
        .expect("it connects");
    raw.lease_revoke(lease).await.expect("revoked");
    // At once when the lease is used, and soon when it is renewed.
    let error = session
        .create(&path("/b"), b"")
        .await
        .expect_err("its lease is gone");
    assert_eq!(error.code(), ErrorCode::SessionEnded, "{error}");
    let end = tokio::time::timeout(Duration::from_secs(30), ending).await;
    assert!(matches!(end.expect("it is told"), SessionEnd::Expired(_)));
    assert_eq!(state.get(&path("/a")).await.expect("read"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_no_server_heard_of_is_known_not_to_be_made() {
    let Some(server) = server() else { return };
    let state = open(server.address()).await;
    server.kill();
    // The first request may use the broken connection; later ones show that the server is
    // unreachable.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let error = state
            .set(&path("/a"), b"", Expected::Any)
            .await
            .expect_err("nobody is there");
        if error.code() == ErrorCode::StateUnavailable {
            return;
        }
        assert_eq!(error.code(), ErrorCode::OutcomeUnknown, "{error}");
        assert!(Instant::now() < deadline, "still: {error}");
    }
}
