//! Tests of watching a directory: files that appear, vanish and are replaced, over several attempts
//! of a job.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use ardea_core::{Epoch, ErrorCode, SnapshotRequest, StateChunk};
use ardea_testkit::SourceTest;

use super::*;
use crate::files::lines;
use crate::format::Lines;
use crate::testing::{Driven, context, error_contains, gzip, signals, stateful_context};

/// Returns a source that polls a directory without a pause.
fn watched(path: &Path) -> WatchSource<String, Lines> {
    lines(path).watch().poll_interval(Duration::ZERO)
}

/// Publishes a complete file.
fn publish(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    let part = folder.join(format!(".{name}.new"));
    fs::write(&part, content).unwrap();
    fs::rename(part, folder.join(name)).unwrap();
}

fn resumed(path: &Path, from: Option<&StateChunk>) -> Driven<String> {
    let mut driven = Driven::new(watched(path), stateful_context(0, 1)).unwrap();
    if let Some(from) = from {
        driven.give_back(from).unwrap();
    }
    driven
}

#[test]
fn files_that_appear_are_read_once_and_those_that_are_being_written_are_not() {
    let dir = tempfile::tempdir().unwrap();
    publish(dir.path(), "a", "1\n2");
    let mut driven = Driven::start(watched(dir.path()));
    driven.run_until_records(2);
    for name in ["x.part", "x.tmp", ".x"] {
        fs::write(dir.path().join(name), "half").unwrap();
    }
    fs::create_dir(dir.path().join("subdirectory")).unwrap();
    driven.until_quiet();
    publish(dir.path(), "b", gzip(b"3\n"));
    publish(dir.path(), "a0", "4\n");
    driven.run_until_records(4);
    fs::rename(dir.path().join("x.part"), dir.path().join("c")).unwrap();
    driven.run_until_records(5);
    driven.until_quiet();
    let values = driven.values();
    assert_eq!(values[..2], ["1", "2"]);
    assert!(values.contains(&&"3".to_string()) && values.contains(&&"4".to_string()));
    assert_eq!(values[4], "half");
    signals(&driven.context).drain();
    driven.run().unwrap();
}

#[test]
fn a_file_that_replaces_another_is_read_and_one_that_is_only_touched_is_not() {
    let dir = tempfile::tempdir().unwrap();
    publish(dir.path(), "status", "1\n");
    let mut driven = Driven::start(watched(dir.path()));
    driven.run_until_records(1);
    for content in ["2\n", "3\n", "3 and more\n"] {
        let count = driven.records.len();
        fs::remove_file(dir.path().join("status")).unwrap();
        publish(dir.path(), "status", content);
        driven.run_until_records(count + 1);
    }
    let path = dir.path().join("status");
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"added\n").unwrap();
    publish(dir.path(), "other", "4\n");
    driven.run_until_records(5);
    driven.until_quiet();
    assert_eq!(driven.values(), ["1", "2", "3", "3 and more", "4"]);
    let letters = driven.letters();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert!(letters[0].1.contains("17 by now"), "{letters:?}");
    set_age(&path, Duration::from_secs(50));
    publish(dir.path(), "another", "5\n");
    driven.run_until_records(6);
    driven.until_quiet();
    assert_eq!((driven.records.len(), driven.letters().len()), (6, 1));
}

/// Sets the modification time of a file or directory to `age` before now.
fn set_age(path: &Path, age: Duration) {
    let file = fs::File::open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn a_file_that_grows_in_a_directory_at_rest_is_a_dead_letter() {
    let dir = tempfile::tempdir().unwrap();
    publish(dir.path(), "log", "1\n");
    set_age(dir.path(), Duration::from_secs(10));
    let mut driven = Driven::start(watched(dir.path()));
    driven.run_until_records(1);
    driven.until_quiet();
    let path = dir.path().join("log");
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"added\n").unwrap();
    driven
        .run_until(|driven| !driven.letters().is_empty())
        .unwrap();
    driven.until_quiet();
    let letters = driven.letters();
    assert_eq!((driven.records.len(), letters.len()), (1, 1), "{letters:?}");
}

#[test]
fn lines_that_are_added_while_the_last_records_wait_are_a_dead_letter() {
    let dir = tempfile::tempdir().unwrap();
    // The first call reads to the end, and has room for all but the last record.
    let text: String = (0..63).map(|n| format!("{n}\n")).collect();
    publish(dir.path(), "log", format!("{text}half"));
    let mut driven = Driven::start(watched(dir.path()));
    let _ = driven.step().unwrap();
    assert_eq!(driven.records.len(), 64);
    let path = dir.path().join("log");
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b" a line\n").unwrap();
    driven
        .run_until(|driven| !driven.letters().is_empty())
        .unwrap();
    driven.until_quiet();
    let letters = driven.letters();
    assert_eq!(
        (driven.records.len(), letters.len()),
        (64, 1),
        "{letters:?}"
    );
}

#[test]
fn a_file_that_replaces_one_of_the_same_length_and_time_is_read_and_a_copy_of_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let time = SystemTime::now() - Duration::from_secs(100);
    let publish_then = |content: &str| {
        let part = dir.path().join(".part");
        fs::write(&part, content).unwrap();
        fs::File::open(&part).unwrap().set_modified(time).unwrap();
        fs::rename(&part, dir.path().join("status")).unwrap();
    };
    publish_then("one\n");
    let mut driven = Driven::start(watched(dir.path()));
    driven.run_until_records(1);
    for content in ["two\n", "two\n", "six\n"] {
        publish_then(content);
        driven.until_quiet();
    }
    assert_eq!(driven.values(), ["one", "two", "six"]);
    assert_eq!(driven.letters(), []);
}

#[test]
fn a_file_that_is_renamed_within_the_directory_or_gets_a_second_name_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    publish(dir.path(), "log.2", "1\n");
    publish(dir.path(), "log.1", "2\n");
    let mut driven = resumed(dir.path(), None);
    driven.run_until_records(2);
    // Like log rotation: each file takes the name of the next.
    fs::rename(path("log.2"), path("log.3")).unwrap();
    fs::rename(path("log.1"), path("log.2")).unwrap();
    publish(dir.path(), "log.1", "3\n");
    driven.run_until_records(3);
    driven.until_quiet();
    fs::hard_link(path("log.3"), path("another")).unwrap();
    driven.until_quiet();
    let snapshot = driven.snapshot().unwrap();
    fs::rename(path("log.3"), path("log.4")).unwrap();
    fs::rename(path("log.2"), path("log.3")).unwrap();
    publish(dir.path(), "log.2", "4\n");
    let mut after = resumed(dir.path(), Some(&snapshot));
    after.run_until_records(1);
    after.until_quiet();
    let values: Vec<_> = driven.values().into_iter().chain(after.values()).collect();
    assert_eq!(values, ["2", "1", "3", "4"]);
    assert!(driven.letters().is_empty() && after.letters().is_empty());
}

#[test]
fn a_file_that_is_written_anew_under_another_name_is_read() {
    let dir = tempfile::tempdir().unwrap();
    publish(dir.path(), "a", "1\n");
    let mut driven = Driven::start(watched(dir.path()));
    driven.run_until_records(1);
    fs::rename(dir.path().join("a"), dir.path().join(".a")).unwrap();
    fs::write(dir.path().join(".a"), "2\n").unwrap();
    fs::rename(dir.path().join(".a"), dir.path().join("b")).unwrap();
    driven.run_until_records(2);
    fs::copy(dir.path().join("b"), dir.path().join("copy")).unwrap();
    driven.run_until_records(3);
    driven.until_quiet();
    assert_eq!(driven.values(), ["1", "2", "2"]);
}

#[test]
fn files_that_are_there_can_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    publish(dir.path(), "old", "old\n");
    let source = || watched(dir.path()).only_new();
    let mut driven: Driven<String> = Driven::new(source(), stateful_context(0, 1)).unwrap();
    let snapshot = driven.snapshot().unwrap();
    publish(dir.path(), "new", "new\n");
    driven.run_until_records(1);
    driven.until_quiet();
    assert_eq!(driven.values(), ["new"]);
    let mut after: Driven<String> = Driven::new(source(), stateful_context(0, 1)).unwrap();
    after.give_back(&snapshot).unwrap();
    after.run_until_records(1);
    after.until_quiet();
    assert_eq!(after.values(), ["new"]);
}

#[test]
fn over_many_lives_each_line_comes_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut all, mut expected, mut snapshot) = (Vec::new(), Vec::new(), None);
    for life in 0..25 {
        let name = format!("{life:02}");
        let text: Vec<String> = (0..life * 7 % 50).map(|n| format!("{name}-{n}")).collect();
        let bytes = text
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>();
        match life % 3 {
            0 => publish(dir.path(), &name, gzip(bytes.as_bytes())),
            _ => publish(dir.path(), &name, &bytes),
        }
        expected.extend(text);
        let mut driven = resumed(dir.path(), snapshot.as_ref());
        for _ in 0..life * 3 % 11 {
            let _ = driven.step().unwrap();
        }
        snapshot = Some(driven.snapshot().unwrap());
        all.extend(driven.values().into_iter().cloned());
        // Records after the snapshot do not count.
        let _ = driven.step().unwrap();
    }
    let mut last = resumed(dir.path(), snapshot.as_ref());
    last.run_until_records(expected.len() - all.len());
    last.until_quiet();
    all.extend(last.values().into_iter().cloned());
    all.sort();
    expected.sort();
    assert_eq!(all, expected);
}

/// The entries of a state by name and key.
type Entries = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Applies a snapshot, full or incremental, to the earlier entries.
fn lay(mut entries: Entries, chunk: &StateChunk) -> Entries {
    for entry in chunk {
        let place = (entry.state.to_string(), entry.key.to_vec());
        match entry.value {
            Some(value) => entries.insert(place, value.to_vec()),
            None => entries.remove(&place),
        };
    }
    entries
}

#[test]
fn changes_laid_over_a_committed_snapshot_are_the_whole_state() {
    let dir = tempfile::tempdir().unwrap();
    let mut driven = resumed(dir.path(), None);
    let mut snapshots = vec![lay(Entries::new(), &driven.snapshot().unwrap())];
    driven.commit(Epoch(1)).unwrap();
    let mut committed = 1;
    for round in 0..60u64 {
        let name = format!("{}", round * 7 % 11);
        let path = dir.path().join(&name);
        match round % 4 {
            0 | 1 => publish(dir.path(), &name, "x\n".repeat(round as usize % 5 * 40)),
            2 if path.exists() => fs::remove_file(path).unwrap(),
            _ => {}
        }
        for _ in 0..round % 7 {
            let _ = driven.step().unwrap();
        }
        let epoch = round + 2;
        let changes = SnapshotRequest::changes(Epoch(epoch), Epoch(committed));
        let changes = driven.cut_as(changes).unwrap();
        let before = snapshots[committed as usize - 1].clone();
        let whole = lay(before, &changes);
        let full = driven.cut_as(SnapshotRequest::full(Epoch(epoch))).unwrap();
        assert_eq!(whole, lay(Entries::new(), &full), "round {round}");
        snapshots.push(whole);
        // Some commits are reported late, others never.
        if round % 3 == 2 {
            committed = epoch - round % 2;
            driven.commit(Epoch(committed)).unwrap();
        }
    }
    assert!(snapshots.iter().any(|snapshot| snapshot.len() > 5));
}

#[test]
fn another_number_of_instances_reads_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    for file in 0..10 {
        let text: String = (0..100).map(|n| format!("{file}-{n}\n")).collect();
        publish(dir.path(), &format!("file {file}"), text);
    }
    let mut seen = Vec::new();
    let mut before = resumed(dir.path(), None);
    before.run_until_records(450);
    let snapshot = before.snapshot().unwrap();
    seen.extend(before.values().into_iter().cloned());
    for index in 0..3 {
        let mut driven: Driven<String> =
            Driven::new(watched(dir.path()), stateful_context(index, 3)).unwrap();
        driven.give_back(&snapshot).unwrap();
        driven.until_quiet();
        seen.extend(driven.values().into_iter().cloned());
    }
    seen.sort();
    let count = seen.len();
    seen.dedup();
    assert_eq!((seen.len(), count), (1000, 1000));
}

#[test]
fn what_has_vanished_is_forgotten_unless_the_directory_has() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, aside) = (dir.path().join("inbox"), dir.path().join("aside"));
    fs::create_dir(&folder).unwrap();
    for file in 0..50 {
        publish(&folder, &format!("{file}"), "x\n");
    }
    let mut driven = resumed(&folder, None);
    driven.run_until_records(50);
    driven.until_quiet();
    let full = driven.snapshot().unwrap().byte_len();
    // Like a directory that is mounted elsewhere for a while.
    fs::rename(&folder, &aside).unwrap();
    fs::create_dir(&folder).unwrap();
    driven.until_quiet();
    fs::remove_dir(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    publish(&folder, "new", "new\n");
    driven.run_until_records(51);
    driven.until_quiet();
    assert_eq!(driven.records.len(), 51);
    for file in 0..50 {
        fs::remove_file(folder.join(format!("{file}"))).unwrap();
    }
    driven.until_quiet();
    let left = driven.snapshot().unwrap().byte_len();
    assert!(left * 10 < full, "{left} bytes of {full}");
}

#[test]
fn a_file_that_is_gone_in_the_middle_or_replaced_fails_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..1000).map(|n| format!("line {n}\n")).collect();
    publish(dir.path(), "in", &text);
    let mut before = resumed(dir.path(), None);
    before.run_until_records(10);
    let snapshot = before.snapshot().unwrap();
    publish(dir.path(), "in", text.replace("line", "LINE"));
    let error = resumed(dir.path(), Some(&snapshot))
        .run()
        .err()
        .expect("another one");
    assert!(error_contains(&error, &["in", "another file"]), "{error}");
    fs::remove_file(dir.path().join("in")).unwrap();
    let error = resumed(dir.path(), Some(&snapshot))
        .run()
        .err()
        .expect("it is gone");
    assert_eq!(error.code(), ErrorCode::ReadFailed);
}

#[test]
fn only_a_directory_can_be_watched() {
    let dir = tempfile::tempdir().unwrap();
    publish(dir.path(), "file", "x\n");
    let file = Driven::<String>::new(watched(&dir.path().join("file")), context("s"));
    assert!(error_contains(
        &file.err().unwrap(),
        &["no directory", "follow"]
    ));
    let none = Driven::<String>::new(watched(&dir.path().join("none")), context("s"));
    assert_eq!(none.err().unwrap().code(), ErrorCode::ReadFailed);
}

#[test]
fn the_contract_is_kept_in_every_schedule() {
    let dir = tempfile::tempdir().unwrap();
    publish(dir.path(), "a", "1\n2\n");
    publish(dir.path(), "b", "3\n4");
    let (_, supplier, ..) = watched(dir.path()).build().into_parts();
    SourceTest::supplied(supplier)
        .output::<String>(["1", "2", "3", "4"].map(String::from))
        .drain_after(4)
        .run();
}
