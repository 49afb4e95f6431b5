//! Tests of following: growth, rotation, truncation, reading from the end, and a file that is
//! created later.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;

use ardea_core::StateChunk;
use ardea_testkit::SourceTest;
use serde::Deserialize;

use super::*;
use crate::files::lines;
use crate::testing::{Driven, context, error_contains, signals, stateful_context};

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn following(path: &Path) -> Driven<String> {
    Driven::start(lines(path).follow())
}

#[test]
fn a_partial_line_is_kept_until_its_newline_comes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "one\ntw");
    let mut driven = following(&path);
    driven.run_until_records(1);
    driven.until_quiet();
    assert_eq!(driven.values(), ["one"]);
    append(&path, "o\nthree\n");
    driven.run_until_records(3);
    assert_eq!(driven.values(), ["one", "two", "three"]);
}

#[test]
fn a_rotated_file_is_finished_before_the_new_one_begins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "1\n2\n");
    let mut driven = following(&path);
    driven.run_until_records(1);
    append(&path, "3\nlast");
    fs::rename(&path, dir.path().join("log.1")).unwrap();
    driven.until_quiet();
    append(&dir.path().join("log.1"), " words\n");
    append(&path, "4\n");
    driven.run_until_records(5);
    assert_eq!(driven.values(), ["1", "2", "3", "last words", "4"]);
    assert!(driven.letters().is_empty());
}

#[test]
fn a_truncated_file_is_read_from_its_beginning_and_half_a_line_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "first\nhalf a li");
    let mut driven = following(&path);
    driven.run_until_records(1);
    driven.until_quiet();
    fs::write(&path, "new\n").unwrap();
    driven.run_until_records(2);
    assert_eq!(driven.values(), ["first", "new"]);
    assert!(
        driven.letters()[0].0.ends_with("log:2"),
        "{:?}",
        driven.letters()
    );
}

#[test]
fn a_log_that_is_copied_and_truncated_is_read_once_also_by_a_job_that_was_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.log");
    // Like logrotate with `copytruncate`.
    let rotate = || {
        fs::copy(&path, dir.path().join("app.log.1")).unwrap();
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .unwrap();
    };
    append(&path, "1\n2\n");
    let mut driven = resumed(lines(&path).follow(), None);
    driven.run_until_records(2);
    rotate();
    driven.until_quiet();
    append(&path, "3\n");
    driven.run_until_records(3);
    assert_eq!(driven.values(), ["1", "2", "3"]);
    let snapshot = driven.snapshot().unwrap();
    rotate();
    append(&path, "4\n5\n");
    let mut after = resumed(lines(&path).follow(), Some(&snapshot));
    after.run_until_records(2);
    after.until_quiet();
    assert_eq!(after.values(), ["4", "5"]);
    assert!(after.letters().is_empty());
}

#[test]
fn draining_and_cancelling_end_it_while_it_waits_and_draining_delivers_half_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "a\nhalf");
    for drain in [true, false] {
        let mut driven = following(&path);
        let signals = signals(&driven.context);
        driven.run_until_records(1);
        if drain {
            signals.drain()
        } else {
            signals.cancel()
        }
        driven.run().unwrap();
        let expected: &[&str] = if drain { &["a", "half"] } else { &["a"] };
        assert_eq!(driven.values(), expected);
    }
}

#[test]
fn from_the_end_only_what_comes_is_read_and_an_unfinished_line_comes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let long = "x".repeat(READ_SIZE);
    for (old, new, expected) in [
        ("", "a\n", "a".to_string()),
        ("old\nolder\n", "a\n", "a".to_string()),
        ("old\nhal", "f\n", "half".to_string()),
        ("hal", "f\n", "half".to_string()),
        (&format!("old\n{long}"), "y\n", format!("{long}y")),
    ] {
        fs::write(&path, old).unwrap();
        let mut driven = Driven::start(lines(&path).follow().from_end());
        driven.until_quiet();
        append(&path, new);
        driven.run_until_records(1);
        append(&path, "\u{fffd}\n");
        driven.run_until_records(2);
        assert_eq!(driven.values()[0], &expected);
    }
    fs::write(&path, "old\n").unwrap();
    let mut driven: Driven<String> = Driven::start(lines(&path).follow().from_end());
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"good\n\xff\n").unwrap();
    driven.run_until_records(1);
    driven.until_quiet();
    let origin = &driven.letters()[0].0;
    assert!(origin.ends_with("log from byte 4:2"), "{origin}");
    fs::rename(&path, dir.path().join("log.1")).unwrap();
    append(&path, "of another file\n");
    driven.run_until_records(2);
    assert_eq!(driven.values(), ["good", "of another file"]);
}

#[test]
fn a_file_that_is_not_there_yet_can_be_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut driven = Driven::start(lines(&path).follow().from_end().wait_for_file());
    driven.until_quiet();
    append(&path, "first\nsecond\n");
    driven.run_until_records(2);
    assert_eq!(driven.values(), ["first", "second"], "all of it is new");
    signals(&driven.context).drain();
    driven.run().unwrap();
}

#[test]
fn settings_that_mean_nothing_for_one_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "a\n");
    let source = || lines(&path);
    for (source, why) in [
        (source().suffix(".log"), "`suffix`"),
        (source().parallelism(2), "one instance"),
        (source().on_damage(crate::OnDamage::Keep), "`on_damage`"),
    ] {
        let error = Driven::<String>::new(source.follow(), context("s"))
            .err()
            .expect(why);
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(error_contains(&error, &[why]), "{error}");
    }
}

#[test]
fn a_header_cannot_be_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.csv");
    append(&path, "n\n1\n");
    let error = Driven::<(u32,)>::new(crate::files::csv(&path).follow().from_end(), context("s"));
    assert_eq!(error.err().unwrap().code(), ErrorCode::InvalidConfig);
}

#[test]
fn what_cannot_be_followed_fails_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x.gz"), "").unwrap();
    crate::testing::named_pipe(&dir.path().join("pipe"));
    for path in [
        dir.path().join("pipe"),
        dir.path().to_path_buf(),
        dir.path().join("x.gz"),
        dir.path().join("none"),
    ] {
        let error = Driven::new(lines(&path).follow(), context("s"))
            .err()
            .expect("an error");
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
    }
}

#[test]
fn the_contract_is_kept_in_every_schedule() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "1\n2\n3\nhalf");
    let (_, supplier, ..) = lines(&path).follow().build().into_parts();
    let expected = ["1", "2", "3", "half"].map(String::from);
    SourceTest::supplied(supplier)
        .output::<String>(expected)
        .drain_after(3)
        .run();
}

/// Returns a source in a job with state, restored from a snapshot if given.
fn resumed(
    source: FollowSource<String, crate::format::Lines>,
    from: Option<&StateChunk>,
) -> Driven<String> {
    let mut driven = Driven::new(source, stateful_context(0, 1)).unwrap();
    if let Some(from) = from {
        driven.give_back(from).unwrap();
    }
    driven
}

/// Returns the snapshot of a source that has read `count` lines, all lines of the file.
fn cut_behind(path: &Path, count: usize) -> StateChunk {
    let mut before = resumed(lines(path).follow(), None);
    before.run_until_records(count);
    before.until_quiet();
    assert_eq!(before.records.len(), count);
    before.snapshot().unwrap()
}

#[test]
fn it_goes_on_behind_the_last_line_that_was_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "1\n2\nha");
    let snapshot = cut_behind(&path, 2);
    append(&path, "lf\n3\n");
    let mut after = resumed(lines(&path).follow().from_end(), Some(&snapshot));
    after.run_until_records(2);
    assert_eq!(after.values(), ["half", "3"]);
}

#[test]
fn half_a_line_stays_in_the_file_when_a_job_drains_that_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "1\nha");
    let mut before = resumed(lines(&path).follow(), None);
    before.run_until_records(1);
    before.until_quiet();
    signals(&before.context).drain();
    assert_eq!(before.run().unwrap().values(), ["1"]);
    append(&path, "lf\n");
    let snapshot = before.snapshot().unwrap();
    let mut after = resumed(lines(&path).follow(), Some(&snapshot));
    after.run_until_records(1);
    assert_eq!(after.values(), ["half"]);
}

#[test]
fn what_was_rotated_meanwhile_is_finished_before_the_new_one_begins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "1\n2\n");
    let snapshot = cut_behind(&path, 2);
    append(&path, "3\n");
    fs::rename(&path, dir.path().join("log.1")).unwrap();
    for has_new in [false, true] {
        if has_new {
            append(&path, "4\n");
        }
        let mut after = resumed(lines(&path).follow(), Some(&snapshot));
        let expected: &[&str] = if has_new { &["3", "4"] } else { &["3"] };
        after.run_until_records(expected.len());
        after.until_quiet();
        assert_eq!(after.values(), expected);
    }
}

#[test]
fn a_copy_is_as_good_and_what_is_nowhere_fails_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "1\n2\n");
    let snapshot = cut_behind(&path, 2);
    fs::write(dir.path().join("copy"), "1\n2\n3\n").unwrap();
    fs::remove_file(&path).unwrap();
    let lost = |content: Option<&str>| {
        if let Some(content) = content {
            fs::write(dir.path().join("other"), content).unwrap();
            fs::rename(dir.path().join("other"), &path).unwrap();
        }
        let mut after: Driven<String> =
            Driven::new(lines(&path).follow(), stateful_context(0, 1)).unwrap();
        let error = after.give_back(&snapshot).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ReadFailed);
        assert!(
            error_contains(&error, &["log", "4 bytes", "without the checkpoint"]),
            "{error}"
        );
        assert!(error.is_permanent());
    };
    lost(None);
    lost(Some("x\n2\n3\n4\n"));
    fs::rename(dir.path().join("copy"), &path).unwrap();
    let mut after = resumed(lines(&path).follow(), Some(&snapshot));
    after.run_until_records(1);
    assert_eq!(after.values(), ["3"]);
}

#[test]
fn what_was_truncated_meanwhile_is_read_from_its_beginning_also_if_it_has_grown() {
    for content in ["a\n", "a\nbcdef\nghi\n"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, "1\n2\n");
        let snapshot = cut_behind(&path, 2);
        fs::write(&path, content).unwrap();
        let mut after = resumed(lines(&path).follow(), Some(&snapshot));
        let count = content.lines().count();
        after.run_until_records(count);
        assert!(after.values().into_iter().eq(content.lines()));
    }
}

#[test]
fn from_the_end_stays_where_that_was_and_lines_keep_their_places() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "old\n");
    let mut before = resumed(lines(&path).follow().from_end(), None);
    let snapshot = before.snapshot().unwrap();
    append(&path, "1\n");
    before.run_until_records(1);
    let later = before.snapshot().unwrap();
    let mut after = resumed(lines(&path).follow().from_end(), Some(&snapshot));
    after.run_until_records(1);
    assert_eq!(after.values(), ["1"]);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"\xff\n2\n").unwrap();
    let mut after = resumed(lines(&path).follow().from_end(), Some(&later));
    after.run_until_records(1);
    assert_eq!(after.values(), ["2"]);
    let letters = after.letters();
    assert!(letters[0].0.ends_with("log from byte 4:2"), "{letters:?}");
}

#[test]
fn a_file_that_comes_while_the_job_is_away_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let source = || lines(&path).follow().from_end().wait_for_file();
    let snapshot = resumed(source(), None).snapshot().unwrap();
    append(&path, "first\n");
    let mut after = resumed(source(), Some(&snapshot));
    after.run_until_records(1);
    assert_eq!(after.values(), ["first"]);
}

#[test]
fn a_header_is_known_in_the_middle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.csv");
    append(&path, "b,a\n1,2\n");
    let source = || crate::files::csv::<Pair>(&path).follow();
    #[derive(Deserialize, Debug, PartialEq)]
    struct Pair {
        a: u32,
        b: u32,
    }
    let mut before: Driven<Pair> = Driven::new(source(), stateful_context(0, 1)).unwrap();
    before.run_until_records(1);
    let snapshot = before.snapshot().unwrap();
    append(&path, "3,4\n");
    let mut after: Driven<Pair> = Driven::new(source(), stateful_context(0, 1)).unwrap();
    after.give_back(&snapshot).unwrap();
    after.run_until_records(1);
    assert_eq!(after.values(), [&Pair { a: 4, b: 3 }]);
}

#[test]
fn over_many_lives_each_line_comes_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "");
    let (mut all, mut written, mut snapshot) = (Vec::new(), 0, None);
    for life in 0..30 {
        let lines_now = life * 7 % 50;
        let text = (written..written + lines_now).map(|n| format!("{n}\n"));
        append(&path, &text.collect::<String>());
        written += lines_now;
        if life == 9 {
            fs::rename(&path, dir.path().join("log.1")).unwrap();
            append(&path, "");
        }
        let mut driven = resumed(lines(&path).follow(), snapshot.as_ref());
        for _ in 0..life * 3 % 11 {
            let _ = driven.step().unwrap();
        }
        snapshot = Some(driven.snapshot().unwrap());
        all.extend(driven.values().into_iter().cloned());
        // Records after the snapshot do not count.
        let _ = driven.step().unwrap();
    }
    let mut last = resumed(lines(&path).follow(), snapshot.as_ref());
    last.run_until_records(written - all.len());
    all.extend(last.values().into_iter().cloned());
    assert!(all.into_iter().eq((0..written).map(|n| n.to_string())));
}

#[test]
fn a_file_that_is_truncated_while_its_lines_are_skipped_is_read_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "new\n");
    let mut followed = Followed::open(&path).unwrap().unwrap();
    let length_before = 10 * READ_SIZE as u64;
    followed.skip_lines_of(length_before).unwrap();
    assert_eq!(followed.position(), 0);
    let mut text = String::new();
    followed.read_to_string(&mut text).unwrap();
    assert_eq!(text, "new\n");
}

#[test]
fn what_is_no_plain_file_is_refused_as_that_also_when_it_comes_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let refused = |error: Error| {
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(
            crate::testing::error_contains(&error, &["cannot follow", "plain"]),
            "{error}"
        );
    };
    append(&path, "1\n");
    let mut driven = following(&path);
    driven.run_until_records(1);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused(driven.run().err().expect("an error"));
    refused(
        Driven::<String>::new(lines(&path).follow(), context("s"))
            .err()
            .expect("an error"),
    );
}

#[test]
fn a_folder_that_is_replaced_for_a_while_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, aside) = (dir.path().join("logs"), dir.path().join("aside"));
    fs::create_dir(&folder).unwrap();
    let path = folder.join("log");
    append(&path, "1\n");
    let mut driven = following(&path);
    driven.run_until_records(1);
    fs::rename(&folder, &aside).unwrap();
    fs::write(&folder, "no folder").unwrap();
    driven.until_quiet();
    let mut early: Driven<String> = Driven::start(lines(&path).follow().wait_for_file());
    early.until_quiet();
    fs::remove_file(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    append(&path, "2\n");
    driven.run_until_records(2);
    assert_eq!(driven.values(), ["1", "2"]);
    early.run_until_records(2);
}

/// Follows a file to its end, changes its content in place, and checks the records that follow.
fn expect_behind(before: &str, after: &str, expected: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, before);
    let mut driven = following(&path);
    let count = before.lines().count();
    driven.run_until_records(count);
    driven.until_quiet();
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    file.write_all(after.as_bytes()).unwrap();
    driven.run_until_records(count + expected.len());
    driven.until_quiet();
    assert_eq!(driven.values()[count..], *expected);
}

#[test]
fn a_file_that_is_truncated_and_has_grown_again_is_read_from_its_beginning() {
    let before = "aaaa 1\naaaa 2\naaaa 3\n";
    for after in [
        "bbbb 1\nbbbb 2\nbbbb 3\n",
        "bbbbbbbbbbbb 1\nbbbbbbbbbbbbbbb 2\nbbbbbbbbbbbbbb 3\n",
        "aaaa 1\naaaa 2\naaaa 4\naaaa 5\n",
        "b\n",
    ] {
        let expected: Vec<&str> = after.lines().collect();
        expect_behind(before, after, &expected);
    }
    let long: String = (0..50_000).map(|n| format!("line {n}\n")).collect();
    let other = long.replace("line", "LINE");
    let expected: Vec<&str> = other.lines().collect();
    expect_behind(&long, &other, &expected);
}

#[test]
fn a_writer_that_goes_on_at_its_old_place_leaves_a_hole_that_costs_one_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut writer = fs::File::create(&path).unwrap();
    writer
        .write_all("old line\n".repeat(100).as_bytes())
        .unwrap();
    let mut driven = following(&path);
    driven.run_until_records(100);
    driven.until_quiet();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    writer.write_all(b"lost\nnew\n").unwrap();
    driven.run_until_records(101);
    assert_eq!(driven.values()[100], "new");
    let letters = driven.letters();
    assert!(letters[0].1.contains("zero bytes"), "{letters:?}");
}

#[test]
fn from_the_end_the_bytes_that_were_passed_over_are_compared_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "old 1\nold 2\n");
    let mut driven = Driven::start(lines(&path).follow().from_end());
    driven.until_quiet();
    fs::write(&path, "new 1\nnew 2\nnew 3\n").unwrap();
    driven.run_until_records(3);
    assert_eq!(driven.values(), ["new 1", "new 2", "new 3"]);

    append(&path, "");
    let source = || lines(&path).follow().from_end();
    let snapshot = resumed(source(), None).snapshot().unwrap();
    fs::write(&path, "NEW 1\nNEW 2\nNEW 3\nNEW 4\n").unwrap();
    let mut after = resumed(source(), Some(&snapshot));
    after.run_until_records(4);
    assert_eq!(after.values(), ["NEW 1", "NEW 2", "NEW 3", "NEW 4"]);
}

#[test]
fn what_was_not_read_yet_may_be_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let text: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
    append(&path, &text);
    let mut driven = following(&path);
    driven.run_until_records(1);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let length = text.find("line 60000\n").unwrap();
    file.set_len(length as u64).unwrap();
    driven.run_until_records(60_000);
    driven.until_quiet();
    assert_eq!(driven.records.len(), 60_000);
}
