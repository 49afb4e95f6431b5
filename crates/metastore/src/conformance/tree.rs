//! Cases about the tree: values, versions, conditions, parents and children.

use super::site::Site;
use super::soon;
use crate::{Expected, MAX_VALUE_BYTES, MetadataStore, StatePath, Version, dump};
use ardea_core::{ErrorCode, Result};
use std::sync::Arc;

/// Parses a path.
pub(super) fn path(text: &str) -> StatePath {
    StatePath::parse(text).expect("a path")
}

fn code<T>(result: Result<T>) -> Option<ErrorCode> {
    result.err().map(|error| error.code())
}

pub async fn a_node_is_read_as_it_was_set(site: &Site) {
    let state = site.open().await;
    let values = [
        vec![],
        vec![0, 255, 10, 13],
        b"text".to_vec(),
        vec![7; MAX_VALUE_BYTES],
    ];
    for (name, value) in ["empty", "bytes", "a.b-c_d:e+f@g=h%20~", "large"]
        .iter()
        .zip(values)
    {
        let path = path("/values").child(name).expect("a path");
        assert_eq!(state.get(&path).await.expect("read"), None);
        let version = state
            .set(&path, &value, Expected::Absent)
            .await
            .expect("set");
        let node = state.get(&path).await.expect("read").expect("there");
        assert!(*node.value == *value, "{name}");
        assert_eq!(node.version, version);
        assert_eq!(node.session, None);
    }
    // Another client reads the same.
    let other = site.open().await;
    let node = other.get(&path("/values/bytes")).await.expect("read");
    assert_eq!(&*node.expect("there").value, [0, 255, 10, 13]);
}

pub async fn an_absent_node_is_made_by_exactly_one_of_many(site: &Site) {
    let path = path("/jobs/a/master");
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16u8 {
        let (state, path) = (site.open().await, path.clone());
        tasks.spawn(async move {
            let made = state.set(&path, &[number], Expected::Absent).await;
            (number, made)
        });
    }
    let mut winners = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        match ended.expect("no panic") {
            (number, Ok(version)) => winners.push((number, version)),
            (_, Err(error)) => assert_eq!(error.code(), ErrorCode::MetastoreConflict, "{error}"),
        }
    }
    let [(number, version)] = winners[..] else {
        panic!("one should have made it, not {winners:?}");
    };
    let node = site
        .open()
        .await
        .get(&path)
        .await
        .expect("read")
        .expect("there");
    assert_eq!((&*node.value, node.version), (&[number][..], version));
}

pub async fn a_conditional_set_needs_the_present_version(site: &Site) {
    let state = site.open().await;
    let path = path("/plan");
    let first = state
        .set(&path, b"1", Expected::Absent)
        .await
        .expect("made");
    let second = state
        .set(&path, b"2", Expected::Version(first))
        .await
        .expect("set");
    assert!(second > first);
    let error = state
        .set(&path, b"3", Expected::Version(first))
        .await
        .expect_err("too late");
    assert_eq!(error.code(), ErrorCode::MetastoreConflict);
    let text = error.to_string();
    for part in [
        "/plan",
        state.place(),
        &first.to_string(),
        &second.to_string(),
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let never = Expected::Version(Version::new(second.get() + 1000));
    assert_eq!(
        code(state.set(&path, b"3", never).await),
        Some(ErrorCode::MetastoreConflict)
    );
    assert_eq!(
        code(state.set(&path, b"3", Expected::Absent).await),
        Some(ErrorCode::MetastoreConflict)
    );
    let absent = StatePath::parse("/nowhere").expect("a path");
    let error = state.set(&absent, b"x", Expected::Version(first)).await;
    assert_eq!(code(error), Some(ErrorCode::MetastoreConflict));
    assert_eq!(state.get(&absent).await.expect("read"), None);
    assert_eq!(
        &*state.get(&path).await.expect("read").expect("there").value,
        b"2"
    );
}

pub async fn a_set_without_condition_makes_and_overwrites(site: &Site) {
    let state = site.open().await;
    let path = path("/a/b");
    let first = state.set(&path, b"1", Expected::Any).await.expect("made");
    let second = state.set(&path, b"2", Expected::Any).await.expect("set");
    assert!(second > first);
    assert_eq!(
        &*state.get(&path).await.expect("read").expect("there").value,
        b"2"
    );
}

pub async fn missing_ancestors_are_made_without_a_value(site: &Site) {
    let state = site.open().await;
    state
        .set(&path("/a/b/c/d"), b"deep", Expected::Absent)
        .await
        .expect("made");
    for above in ["/a", "/a/b", "/a/b/c"] {
        let node = state.get(&path(above)).await.expect("read").expect("there");
        assert!(node.value.is_empty());
        assert_eq!(node.session, None);
    }
    // An existing ancestor keeps its value.
    state
        .set(&path("/a"), b"mine", Expected::Any)
        .await
        .expect("set");
    state
        .set(&path("/a/e/f"), b"", Expected::Any)
        .await
        .expect("made");
    let node = state.get(&path("/a")).await.expect("read").expect("there");
    assert_eq!(&*node.value, b"mine");
    // A refused change creates no ancestors.
    let wrong = Expected::Version(node.version);
    assert!(state.set(&path("/x/y"), b"", wrong).await.is_err());
    assert_eq!(state.get(&path("/x")).await.expect("read"), None);
}

pub async fn a_node_with_children_is_not_deleted(site: &Site) {
    let state = site.open().await;
    let version = state
        .set(&path("/a"), b"", Expected::Any)
        .await
        .expect("made");
    state
        .set(&path("/a/b"), b"", Expected::Any)
        .await
        .expect("made");
    // Nodes whose names have the same prefix are no children.
    state
        .set(&path("/a/bc"), b"", Expected::Any)
        .await
        .expect("made");
    for expected in [Expected::Any, Expected::Version(version)] {
        let error = state
            .delete(&path("/a"), expected)
            .await
            .expect_err("it has children");
        assert_eq!(error.code(), ErrorCode::MetastoreRefused, "{error}");
    }
    state
        .delete(&path("/a/b"), Expected::Any)
        .await
        .expect("deleted");
    state
        .delete(&path("/a/bc"), Expected::Any)
        .await
        .expect("deleted");
    state
        .delete(&path("/a"), Expected::Version(version))
        .await
        .expect("deleted");
    assert_eq!(state.get(&path("/a")).await.expect("read"), None);
    assert!(
        state
            .children(&StatePath::root())
            .await
            .expect("read")
            .is_empty()
    );
}

pub async fn a_conditional_delete_needs_the_present_version(site: &Site) {
    let state = site.open().await;
    let path = path("/a");
    let first = state.set(&path, b"1", Expected::Any).await.expect("made");
    let second = state.set(&path, b"2", Expected::Any).await.expect("set");
    assert_eq!(
        code(state.delete(&path, Expected::Version(first)).await),
        Some(ErrorCode::MetastoreConflict)
    );
    state
        .delete(&path, Expected::Version(second))
        .await
        .expect("deleted");
    assert_eq!(
        code(state.delete(&path, Expected::Version(second)).await),
        Some(ErrorCode::MetastoreConflict)
    );
    state
        .delete(&path, Expected::Any)
        .await
        .expect("it is gone, as asked");
}

pub async fn a_change_of_what_is_damaged_spares_what_is_whole(site: &Site) {
    let state = site.open().await;
    let (there, absent) = (path("/there"), path("/above/absent"));
    let version = state.set(&there, b"1", Expected::Any).await.expect("made");
    for path in [&there, &absent] {
        let error = state.set(path, b"2", Expected::Damaged).await;
        let error = error.expect_err("it is not damaged");
        assert_eq!(error.code(), ErrorCode::MetastoreConflict, "{error}");
        assert!(error.to_string().contains("damaged"), "{error}");
        let deleted = state.delete(path, Expected::Damaged).await;
        assert_eq!(code(deleted), Some(ErrorCode::MetastoreConflict));
    }
    let node = state.get(&there).await.expect("read").expect("there");
    assert_eq!((&*node.value, node.version), (&b"1"[..], version));
    assert_eq!(state.get(&path("/above")).await.expect("read"), None);
    // For an undamaged node, the other conditions must be used.
    let deleted = state.delete(&there, Expected::Absent).await;
    assert_eq!(code(deleted), Some(ErrorCode::MetastoreConflict));
    let deleted = state.delete(&absent, Expected::Absent).await;
    deleted.expect("it is not there");
}

pub async fn versions_grow_and_never_come_back(site: &Site) {
    let state = site.open().await;
    let (one, other) = (path("/one"), path("/other"));
    let mut last = state.set(&one, b"", Expected::Any).await.expect("made");
    for _ in 0..5 {
        // The number of writes of the node is the same in each round: only the version differs.
        let stale = last;
        state
            .delete(&one, Expected::Version(stale))
            .await
            .expect("deleted");
        let apart = state.set(&other, b"", Expected::Any).await.expect("set");
        last = state.set(&one, b"", Expected::Absent).await.expect("made");
        assert!(stale < apart && apart < last, "{stale} {apart} {last}");
        let late = state.set(&one, b"late", Expected::Version(stale)).await;
        assert_eq!(code(late), Some(ErrorCode::MetastoreConflict));
        assert_eq!(
            code(state.delete(&one, Expected::Version(stale)).await),
            Some(ErrorCode::MetastoreConflict)
        );
    }
    assert!(
        state
            .get(&one)
            .await
            .expect("read")
            .expect("there")
            .value
            .is_empty()
    );
}

pub async fn a_stale_version_never_matches_a_reborn_node(site: &Site) {
    const LIVES: u64 = 100;
    const TOUCHERS: u64 = 6;
    let maker = site.open().await;
    let node = path("/reborn");
    // Other tasks read the value and write it back with the version they read, while this task
    // deletes and recreates the node.
    let mut touchers = tokio::task::JoinSet::new();
    for _ in 0..TOUCHERS {
        let (writer, node) = (site.open().await, node.clone());
        touchers.spawn(async move {
            loop {
                let Some(seen) = writer.get(&node).await.expect("read") else {
                    continue;
                };
                let life = number(&seen.value);
                if life >= LIVES {
                    return;
                }
                let expected = Expected::Version(seen.version);
                let mark = life.to_string();
                let touched = writer.set(&node, mark.as_bytes(), expected);
                if let Err(error) = touched.await {
                    assert_eq!(error.code(), ErrorCode::MetastoreConflict, "{error}");
                }
            }
        });
    }
    for life in 0..LIVES {
        let value = life.to_string();
        let made = maker.set(&node, value.as_bytes(), Expected::Absent);
        made.await.expect("made");
        for _ in 0..2 {
            let held = maker.get(&node).await.expect("read").expect("there");
            assert_eq!(
                number(&held.value),
                life,
                "it was overwritten with an older value"
            );
        }
        maker.delete(&node, Expected::Any).await.expect("deleted");
    }
    let end = LIVES.to_string();
    let made = maker.set(&node, end.as_bytes(), Expected::Absent);
    made.await.expect("made");
    while let Some(ended) = soon("the last value", touchers.join_next()).await {
        ended.expect("no panic");
    }
}

pub async fn children_are_direct_and_sorted(site: &Site) {
    let state = site.open().await;
    assert!(
        state
            .children(&path("/nowhere"))
            .await
            .expect("read")
            .is_empty()
    );
    for node in [
        "/jobs/b",
        "/jobs/a/deep/er",
        "/jobs/c.d",
        "/jobs2/x",
        "/jobs/10",
        "/jobs/9",
    ] {
        state
            .set(&path(node), b"", Expected::Any)
            .await
            .expect("made");
    }
    assert_eq!(
        state.children(&path("/jobs")).await.expect("read"),
        ["10", "9", "a", "b", "c.d"]
    );
    assert_eq!(
        state.children(&path("/jobs/a")).await.expect("read"),
        ["deep"]
    );
    assert_eq!(
        state.children(&StatePath::root()).await.expect("read"),
        ["jobs", "jobs2"]
    );
    assert!(
        state
            .children(&path("/jobs/b"))
            .await
            .expect("read")
            .is_empty()
    );
}

pub async fn two_roots_side_by_side_do_not_see_each_other(site: &Site) {
    let (left, right) = (site.open_root("left").await, site.open_root("left2").await);
    let path = path("/jobs/a");
    let mut seen = right.watch_node(&path).await.expect("watched");
    assert_eq!(
        soon("the present state", seen.next())
            .await
            .expect("a state"),
        None
    );
    left.set(&path, b"left", Expected::Absent)
        .await
        .expect("made");
    assert_eq!(right.get(&path).await.expect("read"), None);
    assert!(
        right
            .children(&StatePath::root())
            .await
            .expect("read")
            .is_empty()
    );
    right
        .set(&path, b"right", Expected::Absent)
        .await
        .expect("made");
    let node = soon("what was made here", seen.next())
        .await
        .expect("a state");
    assert_eq!(&*node.expect("there").value, b"right");
    left.delete(&path, Expected::Any).await.expect("deleted");
    assert!(right.get(&path).await.expect("read").is_some());
}

/// Increments the number at a path, with retries; fails if the outcome is unknown.
pub(super) async fn add_one(state: &dyn MetadataStore, path: &StatePath) -> Result<()> {
    loop {
        let node = state.get(path).await?;
        let number = node.as_ref().map_or(0, |node| number(&node.value));
        let expected = node.map_or(Expected::Absent, |node| Expected::Version(node.version));
        match state
            .set(path, (number + 1).to_string().as_bytes(), expected)
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == ErrorCode::MetastoreConflict => {}
            Err(error) => return Err(error),
        }
    }
}

/// Parses the number in a value.
pub(super) fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .expect("a number")
}

pub async fn a_hundred_tasks_count_to_the_right_sum(site: &Site) {
    let mut states = Vec::new();
    for _ in 0..4 {
        states.push(site.open().await);
    }
    let count = path("/count");
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..100 {
        let (state, count) = (Arc::clone(&states[task % 4]), count.clone());
        tasks.spawn(async move { add_one(&*state, &count).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic").expect("counted");
    }
    let node = states[0].get(&count).await.expect("read").expect("there");
    assert_eq!(number(&node.value), 100);
}

pub async fn what_the_tree_does_not_allow_is_refused_and_changes_nothing(site: &Site) {
    let state = site.open().await;
    let root = StatePath::root();
    let refused = Some(ErrorCode::MetastoreRefused);
    assert_eq!(code(state.set(&root, b"x", Expected::Any).await), refused);
    assert_eq!(code(state.delete(&root, Expected::Any).await), refused);
    assert_eq!(state.get(&root).await.expect("read"), None);
    let large = vec![0; MAX_VALUE_BYTES + 1];
    assert_eq!(
        code(state.set(&path("/a/b"), &large, Expected::Any).await),
        refused
    );
    assert!(state.children(&root).await.expect("read").is_empty());
}

pub async fn a_dump_shows_the_tree(site: &Site) {
    let state = site.open().await;
    let (session, _ending) = state.open_session().await.expect("a session");
    state
        .set(&path("/jobs/a/plan"), b"two\ncontainers", Expected::Any)
        .await
        .expect("made");
    state
        .set(&path("/jobs/b"), &[0xff; 8], Expected::Any)
        .await
        .expect("made");
    session
        .create(&path("/jobs/a/master"), b"10.0.0.7:7000")
        .await
        .expect("made");
    let tree = dump(&*state, &StatePath::root()).await.expect("dumped");
    let text = tree.text(|at, _| at.as_str().ends_with("/b").then(|| "known".into()));
    let lines: Vec<_> = text.lines().collect();
    let [head, jobs, a, master, plan, b] = lines[..] else {
        panic!("{text}");
    };
    assert!(head == "/" || head.starts_with("/  v"), "{head}");
    assert!(jobs.starts_with("└─ jobs  v"), "{jobs}");
    assert!(a.starts_with("   ├─ a  v"), "{a}");
    assert!(master.starts_with("   │  ├─ master  v"), "{master}");
    assert!(
        master.contains(&format!("session {}", session.id())),
        "{master}"
    );
    assert!(master.ends_with("13 bytes  \"10.0.0.7:7000\""), "{master}");
    assert!(plan.starts_with("   │  └─ plan  v"), "{plan}");
    assert!(plan.ends_with("14 bytes  \"two\\ncontainers\""), "{plan}");
    assert!(
        b.starts_with("   └─ b  v") && b.ends_with("8 bytes  known"),
        "{b}"
    );
    assert_eq!(
        tree.text(|_, _| None).lines().last(),
        b.strip_suffix("  known")
    );
}
