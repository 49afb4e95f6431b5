//! Tests of files with killed processes, damaged and foreign files, and a lock held by another
//! process.

use ardea_core::ErrorCode;
use ardea_metastore::{
    Expected, FileState, MetadataStore, ReadResult, StateOptions, StatePath, Version, read_node,
};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = "ARDEA_CRASHES_FOLDER";

fn path(text: &str) -> StatePath {
    StatePath::parse(text).expect("a path")
}

async fn open(folder: &Path) -> FileState {
    let state = FileState::open(folder, StateOptions::default()).await;
    state.expect("it opens")
}

/// Starts a process that writes as fast as possible until it is killed.
fn writer(folder: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "written_by_another_process"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process")
}

/// Not a test: the child process of the test of killed processes.
#[tokio::test]
async fn written_by_another_process() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let state = open(Path::new(&folder)).await;
    let me = std::process::id();
    let (session, _ending) = state.open_session().await.expect("a session");
    let mine = path("/sessions").child(&me.to_string()).expect("a path");
    session.create(&mine, b"").await.expect("made");
    let deep = path(&format!("/deep/{me}/a/b/c"));
    // Ends at the latest with the test that started it.
    let end = Instant::now() + Duration::from_secs(60);
    for round in 0u64.. {
        if Instant::now() > end {
            return;
        }
        let value = format!(
            "{round} {}",
            "x".repeat(usize::try_from(round % 5000).unwrap_or(0))
        );
        state
            .set(&path("/shared"), value.as_bytes(), Expected::Any)
            .await
            .expect("set");
        state
            .set(&deep, value.as_bytes(), Expected::Any)
            .await
            .expect("set");
        for above in ["/a/b/c", "/a/b", "/a", ""] {
            state
                .delete(&path(&format!("/deep/{me}{above}")), Expected::Any)
                .await
                .expect("deleted");
        }
    }
}

#[tokio::test]
async fn processes_killed_while_they_write_leave_a_whole_tree() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = open(folder.path()).await;
    let mut shared = state.watch_node(&path("/shared")).await.expect("watched");
    let (mut told, mut newest) = (Version::new(0), Version::new(0));
    for round in 0..12 {
        let mut writers = [writer(folder.path()), writer(folder.path())];
        // Waits until the processes are writing, a little longer in each round.
        for _ in 0..=round * 3 {
            loop {
                let node = tokio::time::timeout(Duration::from_secs(30), shared.next());
                let node = node.await.expect("they write").expect("told");
                let Some(node) = node else { continue };
                assert!(node.version >= told, "{} after {told}", node.version);
                told = node.version;
                break;
            }
        }
        for writer in &mut writers {
            writer.kill().expect("killed");
            writer.wait().expect("gone");
        }
        // No node of their sessions exists any more, and all other nodes are intact.
        assert!(
            state
                .children(&path("/sessions"))
                .await
                .expect("read")
                .is_empty()
        );
        for owner in state.children(&path("/deep")).await.expect("read") {
            let base = path("/deep").child(&owner).expect("a path");
            for below in ["", "/a", "/a/b", "/a/b/c"] {
                let node = path(&format!("{base}{below}"));
                state.get(&node).await.expect("it is whole");
            }
        }
        let version = state
            .set(&path("/after"), b"", Expected::Any)
            .await
            .expect("set");
        assert!(version > newest.max(told));
        newest = version;
    }
    // Files that they left in the scratch folder are removed by the next open.
    open(folder.path()).await;
    let left = fs::read_dir(folder.path().join("scratch"))
        .expect("read")
        .count();
    assert_eq!(left, 0);
    let dead = fs::read_dir(folder.path().join("sessions"))
        .expect("read")
        .count();
    assert_eq!(dead, 0);
}

#[tokio::test]
async fn a_damaged_file_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = open(folder.path()).await;
    state
        .set(&path("/a"), b"hello", Expected::Any)
        .await
        .expect("set");
    state
        .set(&path("/b"), b"hello", Expected::Any)
        .await
        .expect("set");
    let mut watcher = state.watch_node(&path("/a")).await.expect("watched");
    watcher.next().await.expect("told");
    let file = folder.path().join("tree/a/.node");
    let mut bytes = fs::read(&file).expect("read");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&file, bytes).expect("written");
    let error = state.get(&path("/a")).await.expect_err("damaged");
    assert_eq!(error.code(), ErrorCode::MetastoreCorrupt);
    assert!(error.to_string().contains("tree/a/.node"), "{error}");
    // A watcher reports the error.
    let told = tokio::time::timeout(Duration::from_secs(30), watcher.next()).await;
    let error = told.expect("it is told").expect_err("damaged");
    assert_eq!(error.code(), ErrorCode::MetastoreCorrupt);
    assert!(state.get(&path("/b")).await.expect("read").is_some());
}

#[tokio::test]
async fn a_file_that_is_far_too_long_is_damage_and_is_not_read_into_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = open(folder.path()).await;
    let set = state.set(&path("/a"), b"hello", Expected::Any).await;
    set.expect("set");
    let file = folder.path().join("tree/a/.node");
    let file = fs::File::options().write(true).open(file);
    // A sparse file larger than the memory.
    file.expect("opened").set_len(1 << 40).expect("longer");
    let error = state.get(&path("/a")).await.expect_err("damaged");
    assert_eq!(error.code(), ErrorCode::MetastoreCorrupt);
}

/// Creates a tree with a damaged node between others, and a node of a session whose process is
/// dead.
async fn half_damaged(folder: &Path) {
    let state = open(folder).await;
    for node in ["/jobs/a", "/jobs/b/below", "/jobs/c"] {
        let node = path(node);
        let set = state.set(&node, b"hello", Expected::Any);
        set.await.expect("set");
    }
    let (session, _ending) = state.open_session().await.expect("a session");
    session
        .create(&path("/workers/w"), b"")
        .await
        .expect("made");
    // Simulates the death of its process: the node stays, and the lock is free.
    let life = folder.join("sessions").join(session.id().as_str());
    fs::rename(&life, folder.join("life")).expect("moved");
    drop(session);
    drop(state);
    fs::rename(folder.join("life"), &life).expect("moved");
    fs::write(folder.join("tree/jobs/b/.node"), "").expect("damaged");
}

#[tokio::test]
async fn a_damaged_node_costs_neither_those_beside_it_nor_whoever_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    half_damaged(folder.path()).await;
    let state = open(folder.path()).await;
    assert!(!folder.path().join("tree/workers/w").exists());
    let jobs = path("/jobs");
    let names = state.children(&jobs).await.expect("listed");
    assert_eq!(names, ["a", "b", "c"]);
    let mut watcher = state.watch_children(&jobs).await.expect("watched");
    assert_eq!(watcher.next().await.expect("told"), names);
    let below = state.get(&path("/jobs/b/below")).await.expect("read");
    assert_eq!(&*below.expect("there").value, b"hello");
    // Nodes below it can be changed, and sessions begin and end.
    let more = path("/jobs/b/more");
    let made = state.set(&more, b"", Expected::Absent).await;
    made.expect("made");
    let (session, _ending) = state.open_session().await.expect("a session");
    session
        .create(&path("/workers/w"), b"")
        .await
        .expect("made");
    session.close().await.expect("closed");
    let workers = state.children(&path("/workers")).await.expect("listed");
    assert!(workers.is_empty(), "{workers:?}");
    let damaged = state.get(&path("/jobs/b")).await.expect_err("damaged");
    assert_eq!(damaged.code(), ErrorCode::MetastoreCorrupt);

    let whole = ardea_metastore::dump(&state, &StatePath::root()).await;
    let text = whole.expect("dumped").text(|_, _| None);
    let line = |name: &str| text.lines().find(|line| line.contains(name));
    let told = line("─ b").expect("it is shown");
    assert!(told.contains("damaged: ARD-505"), "{text}");
    assert!(line("─ below").is_some_and(|line| line.contains("\"hello\"")));
}

#[tokio::test]
async fn a_node_that_has_lost_its_file_is_damaged_and_keeps_what_is_below_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = open(folder.path()).await;
    let below = path("/jobs/a/below");
    let set = state.set(&below, b"hello", Expected::Any).await;
    set.expect("set");
    for node in ["tree/jobs/.node", "tree/jobs/a/.node"] {
        fs::remove_file(folder.path().join(node)).expect("it was there");
    }
    let root = StatePath::root();
    let names = state.children(&root).await.expect("listed");
    assert_eq!(names, ["jobs"]);
    for node in ["/jobs", "/jobs/a"] {
        let error = state.get(&path(node)).await.expect_err("damaged");
        assert_eq!(error.code(), ErrorCode::MetastoreCorrupt);
        let made = state.set(&path(node), b"", Expected::Absent).await;
        assert_eq!(
            made.expect_err("it is there").code(),
            ErrorCode::MetastoreCorrupt
        );
    }
    // Nodes beside the ones below it can be created.
    let other = state.set(&path("/jobs/b"), b"", Expected::Absent).await;
    other.expect("made");
    let mended = state.set(&path("/jobs"), b"", Expected::Damaged).await;
    mended.expect("mended");
    let found = state.get(&below).await.expect("read");
    assert_eq!(&*found.expect("there").value, b"hello");
    assert_eq!(state.children(&root).await.expect("listed"), ["jobs"]);
}

/// Functions that replace a node's file by something unreadable.
const UNREADABLE: [fn(&Path); 2] = [
    |file| fs::create_dir(file).expect("a folder"),
    // Reading this from its beginning fails with EIO, as on a failing disk.
    |file| std::os::unix::fs::symlink("/proc/self/mem", file).expect("a link"),
];

#[tokio::test]
async fn a_node_that_the_disk_can_not_read_costs_itself_alone_and_is_mended() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = open(folder.path()).await;
    let (b, jobs) = (path("/jobs/b"), path("/jobs"));
    for node in ["/jobs/a", "/jobs/b"] {
        let set = state.set(&path(node), b"hello", Expected::Any).await;
        set.expect("set");
    }
    let file = folder.path().join("tree/jobs/b/.node");
    for damage in UNREADABLE {
        for remove in [false, true] {
            fs::remove_file(&file).expect("it is a file");
            damage(&file);
            let names = state.children(&jobs).await.expect("listed");
            assert_eq!(names, ["a", "b"]);
            let error = state.get(&b).await.expect_err("it can't be read");
            assert_eq!(error.code(), ErrorCode::MetastoreCorrupt, "{error}");
            drop(open(folder.path()).await);
            match remove {
                true => state.delete(&b, Expected::Damaged).await.expect("deleted"),
                false => drop(state.set(&b, b"2", Expected::Damaged).await.expect("set")),
            }
            let found = state.get(&b).await.expect("read");
            assert_eq!(found.is_none(), remove);
            if remove {
                let made = state.set(&b, b"3", Expected::Absent).await;
                made.expect("made");
            }
        }
    }
    let left = fs::read_dir(folder.path().join("scratch")).expect("read");
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn a_session_that_none_can_be_is_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = open(folder.path()).await;
    let node = path("/workers/w");
    for session in ["1-\0", &"1".repeat(300), "../../lock"] {
        let set = state.set(&node, b"", Expected::Any).await;
        set.expect("set");
        let head = format!("ardea node 1\nversion 1\nsession {session}\nbytes 0\nxxh3 0\n\n");
        fs::write(folder.path().join("tree/workers/w/.node"), head).expect("written");
        let names = state.children(&path("/workers")).await.expect("listed");
        assert_eq!(names, ["w"]);
        let error = state.get(&node).await.expect_err("damaged");
        assert_eq!(error.code(), ErrorCode::MetastoreCorrupt, "{error}");
        state
            .delete(&node, Expected::Damaged)
            .await
            .expect("deleted");
    }
}

#[tokio::test]
async fn a_repair_spares_what_somebody_has_mended_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    half_damaged(folder.path()).await;
    let (one, other) = (open(folder.path()).await, open(folder.path()).await);
    let node = path("/jobs/b");
    let Ok(found @ ReadResult::Damaged(_)) = read_node(&one, &node).await else {
        panic!("it is damaged");
    };
    let version = other.set(&node, b"mended", Expected::Damaged).await;
    let version = version.expect("set");
    let late = one.set(&node, b"late", found.expected()).await;
    let error = late.expect_err("it is mended");
    assert_eq!(error.code(), ErrorCode::MetastoreConflict, "{error}");
    let late = one.delete(&node, found.expected()).await;
    let error = late.expect_err("it is mended");
    assert_eq!(error.code(), ErrorCode::MetastoreConflict, "{error}");
    let node = one.get(&node).await.expect("read").expect("there");
    assert_eq!((&*node.value, node.version), (&b"mended"[..], version));
}

#[tokio::test]
async fn a_damaged_counter_is_no_damage_of_a_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = open(folder.path()).await;
    let node = path("/a");
    state.set(&node, b"1", Expected::Any).await.expect("set");
    fs::write(folder.path().join("clock"), [7; 1024]).expect("damaged");
    let changes = [
        state.set(&node, b"2", Expected::Any).await.map(drop),
        state.set(&path("/b/c"), b"", Expected::Any).await.map(drop),
        state.delete(&node, Expected::Any).await,
        state.open_session().await.map(drop),
    ];
    for change in changes {
        let error = change.expect_err("nothing can be changed");
        assert_eq!(error.code(), ErrorCode::MetastoreRefused, "{error}");
        assert!(error.to_string().contains("counter"), "{error}");
    }
    let found = state.get(&node).await.expect("read").expect("there");
    assert_eq!(&*found.value, b"1");
}

#[tokio::test]
async fn a_damaged_node_is_overwritten_and_removed_by_whoever_sets_no_condition() {
    let folder = tempfile::tempdir().expect("a folder");
    half_damaged(folder.path()).await;
    let state = open(folder.path()).await;
    let node = path("/jobs/b");
    for expected in [Expected::Absent, Expected::Version(Version::new(1))] {
        let error = state.set(&node, b"2", expected).await;
        let error = error.expect_err("what it is is not known");
        assert_eq!(error.code(), ErrorCode::MetastoreCorrupt);
    }
    let version = state.set(&node, b"2", Expected::Any).await.expect("set");
    let found = state.get(&node).await.expect("read").expect("there");
    assert_eq!((&*found.value, found.version), (&b"2"[..], version));
    assert_eq!(state.children(&node).await.expect("read"), ["below"]);

    let file = folder.path().join("tree/jobs/b/.node");
    fs::write(&file, "junk").expect("damaged");
    let error = state
        .delete(&node, Expected::Any)
        .await
        .expect_err("not empty");
    assert_eq!(error.code(), ErrorCode::MetastoreRefused, "{error}");
    let below = path("/jobs/b/below");
    state.delete(&below, Expected::Any).await.expect("deleted");
    let error = state.delete(&node, Expected::Version(version)).await;
    let error = error.expect_err("which version it is is not known");
    assert_eq!(error.code(), ErrorCode::MetastoreCorrupt);
    state.delete(&node, Expected::Any).await.expect("deleted");
    assert!(state.get(&node).await.expect("read").is_none());
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("thesis.tex"), "\\documentclass").expect("written");
    for directory in [
        folder.path().to_path_buf(),
        folder.path().join("thesis.tex"),
    ] {
        let state = FileState::open(&directory, StateOptions::default()).await;
        let error = state.expect_err("it is no root");
        assert_eq!(error.code(), ErrorCode::InvalidConfig, "{error}");
    }
    let names = fs::read_dir(folder.path()).expect("read");
    let names: Vec<_> = names.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["thesis.tex"]);
}

#[tokio::test]
async fn a_lock_that_somebody_keeps_is_not_waited_for_forever() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = StateOptions {
        timeout: Duration::from_millis(200),
        ..StateOptions::default()
    };
    let state = FileState::open(folder.path(), options)
        .await
        .expect("it opens");
    state
        .set(&path("/a"), b"1", Expected::Any)
        .await
        .expect("set");
    let lock = fs::File::open(folder.path().join("lock")).expect("opened");
    lock.lock().expect("locked");
    let error = state
        .set(&path("/a"), b"2", Expected::Any)
        .await
        .expect_err("locked out");
    assert_eq!(error.code(), ErrorCode::StateUnavailable, "{error}");
    // Readers need no lock.
    let node = state.get(&path("/a")).await.expect("read").expect("there");
    assert_eq!(&*node.value, b"1");
    drop(lock);
    state
        .set(&path("/a"), b"2", Expected::Any)
        .await
        .expect("set");
}
