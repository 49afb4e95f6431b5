//! Cases about watchers: they start with the current state, never miss the last one, and never go
//! back in time.

use super::site::Site;
use super::soon;
use super::tree::path;
use crate::{Expected, Node, StatePath, Version, Watcher};
use ardea_core::ErrorCode;

/// Returns the next state of a node, as text.
async fn next_value(watcher: &mut Watcher<Option<Node>>) -> Option<String> {
    let node = soon("the next state", watcher.next())
        .await
        .expect("a state")?;
    Some(String::from_utf8_lossy(&node.value).into_owned())
}

/// Reads states until one matches.
pub(super) async fn until<T: Clone>(
    what: &str,
    watcher: &mut Watcher<T>,
    mut is_it: impl FnMut(&T) -> bool,
) -> T {
    soon(what, async {
        loop {
            let state = watcher.next().await.expect("a state");
            if is_it(&state) {
                return state;
            }
        }
    })
    .await
}

pub async fn the_present_state_comes_first(site: &Site) {
    let (state, other) = (site.open().await, site.open().await);
    other
        .set(&path("/a/b"), b"here", Expected::Any)
        .await
        .expect("made");
    let mut node = state.watch_node(&path("/a/b")).await.expect("watched");
    let mut names = state.watch_children(&path("/a")).await.expect("watched");
    let mut absent = state
        .watch_node(&path("/nowhere/at/all"))
        .await
        .expect("watched");
    let mut none = state
        .watch_children(&path("/nowhere"))
        .await
        .expect("watched");
    let mut root = state.watch_node(&StatePath::root()).await.expect("watched");
    assert_eq!(next_value(&mut node).await.as_deref(), Some("here"));
    assert_eq!(soon("names", names.next()).await.expect("a state"), ["b"]);
    assert_eq!(next_value(&mut absent).await, None);
    assert!(
        soon("names", none.next())
            .await
            .expect("a state")
            .is_empty()
    );
    assert_eq!(next_value(&mut root).await, None);
}

pub async fn birth_change_and_death_of_a_node_are_told(site: &Site) {
    let (state, other) = (site.open().await, site.open().await);
    let path = path("/jobs/a");
    let mut watchers = Vec::new();
    for watching in [&state, &other] {
        let mut watcher = watching.watch_node(&path).await.expect("watched");
        assert_eq!(next_value(&mut watcher).await, None);
        watchers.push(watcher);
    }
    for round in ["first", "second"] {
        other
            .set(&path, round.as_bytes(), Expected::Absent)
            .await
            .expect("made");
        for watcher in &mut watchers {
            assert_eq!(next_value(watcher).await.as_deref(), Some(round));
        }
        other
            .set(&path, b"changed", Expected::Any)
            .await
            .expect("set");
        for watcher in &mut watchers {
            assert_eq!(next_value(watcher).await.as_deref(), Some("changed"));
        }
        other.delete(&path, Expected::Any).await.expect("deleted");
        for watcher in &mut watchers {
            assert_eq!(next_value(watcher).await, None);
        }
    }
}

pub async fn births_and_deaths_of_children_are_told(site: &Site) {
    let (state, other) = (site.open().await, site.open().await);
    let mut names = state.watch_children(&path("/jobs")).await.expect("watched");
    assert!(
        soon("names", names.next())
            .await
            .expect("a state")
            .is_empty()
    );
    other
        .set(&path("/jobs/b"), b"", Expected::Any)
        .await
        .expect("made");
    until("b", &mut names, |names| *names == ["b"]).await;
    // Grandchildren, values and siblings are not reported.
    other
        .set(&path("/jobs/b/c"), b"", Expected::Any)
        .await
        .expect("made");
    other
        .set(&path("/jobs/b"), b"value", Expected::Any)
        .await
        .expect("set");
    other
        .set(&path("/jobsb/x"), b"", Expected::Any)
        .await
        .expect("made");
    other
        .set(&path("/jobs/a"), b"", Expected::Any)
        .await
        .expect("made");
    assert_eq!(
        soon("names", names.next()).await.expect("a state"),
        ["a", "b"]
    );
    other
        .delete(&path("/jobs/b/c"), Expected::Any)
        .await
        .expect("deleted");
    other
        .delete(&path("/jobs/b"), Expected::Any)
        .await
        .expect("deleted");
    assert_eq!(soon("names", names.next()).await.expect("a state"), ["a"]);
    // The parent is deleted as well, and recreated.
    other
        .delete(&path("/jobs/a"), Expected::Any)
        .await
        .expect("deleted");
    other
        .delete(&path("/jobs"), Expected::Any)
        .await
        .expect("deleted");
    assert!(
        soon("names", names.next())
            .await
            .expect("a state")
            .is_empty()
    );
    other
        .set(&path("/jobs/z"), b"", Expected::Any)
        .await
        .expect("made");
    until("z", &mut names, |names| *names == ["z"]).await;
}

pub async fn the_last_state_is_told_under_churn(site: &Site) {
    const WRITES: u64 = 60;
    let (writer, reader) = (site.open().await, site.open().await);
    let (busy, coming) = (path("/busy/node"), path("/busy/coming"));
    let mut watchers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut node = reader.watch_node(&busy).await.expect("watched");
        let mut names = reader
            .watch_children(&path("/busy"))
            .await
            .expect("watched");
        watchers.spawn(async move {
            let mut newest = Version::new(0);
            let last = WRITES.to_string();
            until("the last value", &mut node, |node| {
                let Some(node) = node else { return false };
                assert!(node.version > newest, "{} after {newest}", node.version);
                newest = node.version;
                *node.value == *last.as_bytes()
            })
            .await;
            until("the last names", &mut names, |names| {
                *names == ["end", "node"]
            })
            .await;
        });
    }
    for write in 1..=WRITES {
        writer
            .set(&busy, write.to_string().as_bytes(), Expected::Any)
            .await
            .expect("set");
        match write % 2 {
            0 => writer
                .delete(&coming, Expected::Any)
                .await
                .expect("deleted"),
            _ => drop(
                writer
                    .set(&coming, b"", Expected::Absent)
                    .await
                    .expect("made"),
            ),
        }
    }
    writer
        .set(&path("/busy/end"), b"", Expected::Absent)
        .await
        .expect("made");
    while let Some(ended) = watchers.join_next().await {
        ended.expect("the last state was reported");
    }
}

pub async fn a_watcher_ends_with_its_metadata_store(site: &Site) {
    let state = site.open().await;
    let mut watcher = state.watch_node(&path("/a")).await.expect("watched");
    let mut names = state.watch_children(&path("/a")).await.expect("watched");
    assert_eq!(next_value(&mut watcher).await, None);
    drop(state);
    let error = soon("the end", watcher.next())
        .await
        .expect_err("it has ended");
    assert_eq!(error.code(), ErrorCode::Cancelled);
    // The current state may still be delivered before the end.
    let ended = soon("the end", async {
        loop {
            if let Err(error) = names.next().await {
                return error;
            }
        }
    });
    assert_eq!(ended.await.code(), ErrorCode::Cancelled);
}
