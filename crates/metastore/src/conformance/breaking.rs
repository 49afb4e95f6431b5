//! Cases with faults: a server that crashes and restarts, connections that break, a network that
//! drops packets.

use super::site::{Site, options};
use super::soon;
use super::tree::{add_one, number, path};
use super::watching::until;
use crate::{Expected, MetadataStore, SessionEnd, StateOptions, StatePath};
use ardea_core::ErrorCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sleeps for the duration of a fault.
async fn lasts(duration: Duration) {
    tokio::time::sleep(duration).await;
}

pub async fn a_killed_server_comes_back_with_everything(site: &Site) {
    let Some((server, _)) = site.server() else {
        return;
    };
    let patient = StateOptions {
        session_timeout: Duration::from_secs(20),
        ..options()
    };
    let state = site.open_with(patient).await;
    let (session, mut ending) = state.open_session().await.expect("a session");
    let (plan, master) = (path("/jobs/a/plan"), path("/jobs/a/master"));
    let before = state
        .set(&plan, b"before", Expected::Any)
        .await
        .expect("set");
    let token = session.create(&master, b"me").await.expect("made");
    let mut watcher = state.watch_node(&plan).await.expect("watched");
    until("what is there", &mut watcher, Option::is_some).await;

    server.kill();
    // A request made meanwhile is answered when the server is back.
    let (reader, asked) = (Arc::clone(&state), plan.clone());
    let read = tokio::spawn(async move { reader.get(&asked).await });
    lasts(Duration::from_secs(1)).await;
    server.restart();

    let node = soon("the answer", read)
        .await
        .expect("no panic")
        .expect("read")
        .expect("there");
    assert_eq!((&*node.value, node.version), (&b"before"[..], before));
    let after = state
        .set(&plan, b"after", Expected::Version(before))
        .await
        .expect("set");
    assert!(after > before.max(token));
    until("what was set afterwards", &mut watcher, |node| {
        node.as_ref().is_some_and(|node| node.version == after)
    })
    .await;
    // The session has survived.
    let held = state.get(&master).await.expect("read").expect("there");
    assert_eq!(
        (held.version, held.session.as_ref()),
        (token, Some(session.id()))
    );
    assert!(futures_is_pending(&mut ending));
    session.close().await.expect("closed");
    assert_eq!(state.get(&master).await.expect("read"), None);
}

fn futures_is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context).is_pending()
}

pub async fn a_cut_connection_is_made_again(site: &Site) {
    let Some((_, proxy)) = site.server() else {
        return;
    };
    let state = site.open().await;
    let mut watcher = state.watch_node(&path("/a")).await.expect("watched");
    let mut names = state.watch_children(&path("/b")).await.expect("watched");
    for round in 0..5 {
        let value = format!("round {round}");
        let name = format!("n{round}");
        state
            .set(&path("/a"), value.as_bytes(), Expected::Any)
            .await
            .expect("set");
        until("the value", &mut watcher, |node| {
            node.as_ref()
                .is_some_and(|node| *node.value == *value.as_bytes())
        })
        .await;
        state
            .set(
                &path("/b").child(&name).expect("a path"),
                b"",
                Expected::Any,
            )
            .await
            .expect("set");
        until("the name", &mut names, |names| names.contains(&name)).await;
        proxy.cut();
        lasts(Duration::from_millis(100)).await;
        proxy.heal();
        // The response to a change may be lost with the connection; a read is retried.
        assert!(state.get(&path("/a")).await.expect("read").is_some());
    }
}

pub async fn ten_seconds_of_stall_lose_nothing(site: &Site) {
    let Some((server, proxy)) = site.server() else {
        return;
    };
    let state = site
        .open_with(StateOptions {
            timeout: Duration::from_secs(3),
            ..options()
        })
        .await;
    let (session, ending) = state.open_session().await.expect("a session");
    let (plan, master) = (path("/plan"), path("/master"));
    state
        .set(&plan, b"before", Expected::Any)
        .await
        .expect("set");
    session.create(&master, b"").await.expect("made");
    let mut watcher = state.watch_node(&plan).await.expect("watched");
    until("what is there", &mut watcher, Option::is_some).await;

    let begin = Instant::now();
    proxy.stall();
    check_unavailable(&*state, &plan).await;
    // The session expires before the stall ends.
    assert!(matches!(
        soon("the end", ending).await,
        SessionEnd::Expired(_)
    ));
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "it was reported after {:?}",
        begin.elapsed()
    );
    // Clients on the other side of the fault keep working.
    let other = site.open_direct(server).await;
    other
        .set(&plan, b"meanwhile", Expected::Any)
        .await
        .expect("set");
    lasts(Duration::from_secs(10).saturating_sub(begin.elapsed())).await;
    proxy.heal();

    let last = soon("a write", async {
        loop {
            if let Ok(version) = state.set(&plan, b"after", Expected::Any).await {
                return version;
            }
        }
    })
    .await;
    until("the last state", &mut watcher, |node| {
        node.as_ref().is_some_and(|node| node.version >= last)
    })
    .await;
    let mut watcher = other.watch_node(&master).await.expect("watched");
    until(
        "the end of the session's node",
        &mut watcher,
        Option::is_none,
    )
    .await;
}

/// Checks that reads and changes both time out.
async fn check_unavailable(state: &dyn MetadataStore, plan: &StatePath) {
    let late = state.get(plan).await.expect_err("no response");
    assert_eq!(late.code(), ErrorCode::StateUnavailable, "{late}");
    let late = state.set(plan, b"perhaps", Expected::Any).await;
    let late = late.expect_err("no response");
    let code = late.code();
    assert!(
        matches!(
            code,
            ErrorCode::StateUnavailable | ErrorCode::OutcomeUnknown
        ),
        "{late}"
    );
}

pub async fn no_count_is_lost_when_connections_break(site: &Site) {
    let Some((server, proxy)) = site.server() else {
        return;
    };
    let (sure, unsure) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let count = path("/count");
    let end = Instant::now() + Duration::from_secs(6);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let state = site.open().await;
        for _ in 0..4 {
            let (state, count) = (Arc::clone(&state), count.clone());
            let (sure, unsure) = (Arc::clone(&sure), Arc::clone(&unsure));
            tasks.spawn(async move {
                while Instant::now() < end {
                    match add_one(&*state, &count).await {
                        Ok(()) => sure.fetch_add(1, Ordering::Relaxed),
                        Err(error) if error.code() == ErrorCode::OutcomeUnknown => {
                            unsure.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(error) => {
                            assert_eq!(error.code(), ErrorCode::StateUnavailable, "{error}");
                            0
                        }
                    };
                }
            });
        }
    }
    for round in 0..8 {
        lasts(Duration::from_millis(400)).await;
        match round % 4 {
            3 => {
                server.kill();
                server.restart();
            }
            1 => {
                proxy.stall();
                lasts(Duration::from_millis(200)).await;
            }
            _ => proxy.cut(),
        }
        lasts(Duration::from_millis(50)).await;
        proxy.heal();
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    let state = site.open().await;
    let counted = number(&state.get(&count).await.expect("read").expect("there").value);
    let (sure, unsure) = (sure.load(Ordering::Relaxed), unsure.load(Ordering::Relaxed));
    assert!(sure > 0, "nothing was counted");
    assert!(
        (sure..=sure + unsure).contains(&counted),
        "{counted} were counted, {sure} surely and {unsure} perhaps"
    );
}

pub async fn a_server_that_is_away_is_not_waited_for_forever(site: &Site) {
    let Some((server, _)) = site.server() else {
        return;
    };
    let hasty = StateOptions {
        timeout: Duration::from_secs(2),
        ..options()
    };
    let state = site.open_with(hasty).await;
    let mut watcher = state.watch_node(&path("/a")).await.expect("watched");
    until("the present state", &mut watcher, Option::is_none).await;
    server.kill();
    let begin = Instant::now();
    let error = state
        .get(&path("/a"))
        .await
        .expect_err("the server is down");
    assert_eq!(error.code(), ErrorCode::StateUnavailable, "{error}");
    assert!(error.to_string().contains(state.place()), "{error}");
    assert!(error.hint_text().is_some());
    let error = state
        .set(&path("/a"), b"", Expected::Any)
        .await
        .expect_err("the server is down");
    let code = error.code();
    assert!(
        matches!(
            code,
            ErrorCode::StateUnavailable | ErrorCode::OutcomeUnknown
        ),
        "{error}"
    );
    let error = state.open_session().await.expect_err("the server is down");
    assert_eq!(error.code(), ErrorCode::StateUnavailable, "{error}");
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
    server.restart();
    state
        .set(&path("/a"), b"", Expected::Any)
        .await
        .expect("it is back");
    until("what was set", &mut watcher, Option::is_some).await;
}
