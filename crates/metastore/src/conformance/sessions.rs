//! Cases about sessions: nodes that are deleted with their owner, however it ends.

use super::site::{Site, options};
use super::tree::path;
use super::watching::until;
use super::{eventually, soon};
use crate::{Expected, SessionEnd, StateOptions, StatePath};
use ardea_core::ErrorCode;
use std::time::Duration;

pub async fn nodes_of_a_session_go_when_it_is_closed(site: &Site) {
    let (state, other) = (site.open().await, site.open().await);
    let (session, ending) = state.open_session().await.expect("a session");
    let (one, two) = (path("/workers/1"), path("/workers/2"));
    for path in [&one, &two] {
        let version = session.create(path, b"host:1").await.expect("made");
        let node = other.get(path).await.expect("read").expect("there");
        assert_eq!((&*node.value, node.version), (&b"host:1"[..], version));
        assert_eq!(node.session.as_ref(), Some(session.id()));
    }
    assert_eq!(
        other.children(&path("/workers")).await.expect("read"),
        ["1", "2"]
    );
    let mut names = other
        .watch_children(&path("/workers"))
        .await
        .expect("watched");
    until("two workers", &mut names, |names| names.len() == 2).await;
    session.close().await.expect("closed");
    // The nodes must be gone immediately.
    assert_eq!(other.get(&one).await.expect("read"), None);
    assert!(
        other
            .children(&path("/workers"))
            .await
            .expect("read")
            .is_empty()
    );
    until("no workers", &mut names, Vec::is_empty).await;
    assert!(matches!(soon("the end", ending).await, SessionEnd::Closed));
    // Ancestors created by a session are permanent.
    assert!(state.get(&path("/workers")).await.expect("read").is_some());
}

pub async fn nodes_of_a_session_go_when_it_is_dropped(site: &Site) {
    let (state, other) = (site.open().await, site.open().await);
    let (session, ending) = state.open_session().await.expect("a session");
    let node = path("/workers/1");
    session.create(&node, b"").await.expect("made");
    let mut watcher = other.watch_node(&node).await.expect("watched");
    until("the node", &mut watcher, Option::is_some).await;
    drop(session);
    until("its end", &mut watcher, Option::is_none).await;
    assert!(matches!(soon("the end", ending).await, SessionEnd::Closed));
}

pub async fn nodes_of_a_session_go_when_its_process_is_killed(site: &Site) {
    let state = site.open().await;
    let node = path("/jobs/a/master");
    let mut watcher = state.watch_node(&node).await.expect("watched");
    let mut names = state
        .watch_children(&path("/jobs/a"))
        .await
        .expect("watched");
    for _ in 0..2 {
        let mut holder = site.holder(&node);
        let held = until("the process's node", &mut watcher, Option::is_some).await;
        assert!(held.expect("there").session.is_some());
        until("its name", &mut names, |names| *names == ["master"]).await;
        holder.kill();
        until("its end", &mut watcher, Option::is_none).await;
        until("no name", &mut names, Vec::is_empty).await;
        assert_eq!(state.get(&node).await.expect("read"), None);
    }
}

pub async fn a_node_of_a_session_can_be_written_and_stays_one(site: &Site) {
    let (state, other) = (site.open().await, site.open().await);
    let (session, _ending) = state.open_session().await.expect("a session");
    let node = path("/workers/1");
    let first = session.create(&node, b"1").await.expect("made");
    let second = other
        .set(&node, b"2", Expected::Version(first))
        .await
        .expect("set");
    other.set(&node, b"3", Expected::Any).await.expect("set");
    let held = other.get(&node).await.expect("read").expect("there");
    assert_eq!(held.session.as_ref(), Some(session.id()));
    assert!(
        other
            .delete(&node, Expected::Version(second))
            .await
            .is_err()
    );
    session.close().await.expect("closed");
    assert_eq!(other.get(&node).await.expect("read"), None);

    let (session, _ending) = state.open_session().await.expect("a session");
    session.create(&node, b"").await.expect("made");
    other.delete(&node, Expected::Any).await.expect("deleted");
    // A new node at that path does not belong to the session, and stays.
    other
        .set(&node, b"mine", Expected::Absent)
        .await
        .expect("made");
    session.close().await.expect("closed");
    assert!(other.get(&node).await.expect("read").is_some());
}

pub async fn a_node_of_a_session_has_no_children(site: &Site) {
    let state = site.open().await;
    let (session, _ending) = state.open_session().await.expect("a session");
    session
        .create(&path("/a/passing"), b"")
        .await
        .expect("made");
    for (below, expected) in [
        ("/a/passing/b", Expected::Any),
        ("/a/passing/b", Expected::Absent),
        ("/a/passing/b/c", Expected::Absent),
    ] {
        let error = state
            .set(&path(below), b"", expected)
            .await
            .expect_err("no children");
        assert_eq!(error.code(), ErrorCode::MetastoreRefused, "{error}");
    }
    let error = session
        .create(&path("/a/passing/d"), b"")
        .await
        .expect_err("no children");
    assert_eq!(error.code(), ErrorCode::MetastoreRefused, "{error}");
    assert!(
        state
            .children(&path("/a/passing"))
            .await
            .expect("read")
            .is_empty()
    );
}

pub async fn a_session_makes_no_node_that_is_there(site: &Site) {
    let state = site.open().await;
    let (one, _ending) = state.open_session().await.expect("a session");
    let (two, _ending) = state.open_session().await.expect("a session");
    assert_ne!(one.id(), two.id());
    let node = path("/a");
    one.create(&node, b"1").await.expect("made");
    for session in [&one, &two] {
        let error = session.create(&node, b"2").await.expect_err("it is there");
        assert_eq!(error.code(), ErrorCode::MetastoreConflict, "{error}");
    }
    two.close().await.expect("closed");
    assert_eq!(
        &*state.get(&node).await.expect("read").expect("there").value,
        b"1"
    );
}

pub async fn a_lease_passes_on_with_a_greater_token(site: &Site) {
    let master = path("/jobs/a/master");
    let mut token = None;
    let mut holders = Vec::new();
    for _ in 0..3 {
        let state = site.open().await;
        let (session, _ending) = state.open_session().await.expect("a session");
        holders.push((state, session));
    }
    for (state, session) in holders {
        // A standby waits until there is no leader, then tries to become it.
        let mut watcher = state.watch_node(&master).await.expect("watched");
        until("no master", &mut watcher, Option::is_none).await;
        let mine = session
            .create(&master, b"me")
            .await
            .expect("it is the only one that tries");
        assert!(Some(mine) > token, "{mine} after {token:?}");
        token = Some(mine);
        session.close().await.expect("closed");
    }
}

pub async fn a_session_outlives_its_metadata_store(site: &Site) {
    let (state, other) = (site.open().await, site.open().await);
    let (session, _ending) = state.open_session().await.expect("a session");
    drop(state);
    session.create(&path("/a"), b"").await.expect("made");
    assert!(other.get(&path("/a")).await.expect("read").is_some());
    session.close().await.expect("closed");
    assert_eq!(other.get(&path("/a")).await.expect("read"), None);
}

pub async fn an_expired_session_is_told_once_and_its_nodes_go(site: &Site) {
    let state = site.open().await;
    let (session, ending) = state.open_session().await.expect("a session");
    let node = path("/jobs/a/master");
    session.create(&node, b"").await.expect("made");
    let mut watcher = state.watch_node(&node).await.expect("watched");
    until("the node", &mut watcher, Option::is_some).await;
    site.expire(session.id());
    // The future completes once and is consumed, so the end can't be reported twice.
    match soon("the end", ending).await {
        SessionEnd::Expired(error) => assert_eq!(error.code(), ErrorCode::SessionEnded, "{error}"),
        SessionEnd::Closed => panic!("it was not closed"),
    }
    site.heal();
    let error = session
        .create(&path("/late"), b"")
        .await
        .expect_err("it has ended");
    assert_eq!(error.code(), ErrorCode::SessionEnded, "{error}");
    until("its end", &mut watcher, Option::is_none).await;
    assert_eq!(state.get(&path("/late")).await.expect("read"), None);
    // An ended session can be closed, and a new one can create the same node.
    let _ = session.close().await;
    let (next, _ending) = state.open_session().await.expect("a session");
    next.create(&node, b"").await.expect("made");
    next.close().await.expect("closed");

    // A session with a long timeout survives a shorter network failure.
    let patient = StateOptions {
        session_timeout: Duration::from_secs(30),
        ..options()
    };
    let state = site.open_with(patient).await;
    let (session, _ending) = state.open_session().await.expect("a session");
    let made = session.create(&node, b"").await.expect("made");
    if let Some((_, proxy)) = site.server() {
        proxy.cut();
        proxy.heal();
    }
    eventually("a read after the break", async || {
        state.get(&node).await.is_ok()
    })
    .await;
    let held = state.get(&node).await.expect("read").expect("there");
    assert_eq!(
        (held.version, held.session.as_ref()),
        (made, Some(session.id()))
    );
    state.children(&StatePath::root()).await.expect("read");
}
