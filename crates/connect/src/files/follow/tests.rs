//! Following: growth, rotation, truncation, from the end, and a file that comes later.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use ardea_testkit::SourceTest;

use super::*;
use crate::files::lines;
use crate::testing::{Driven, context, signals};

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

/// Steps until the source finds nothing more to read.
fn until_quiet(driven: &mut Driven<String>) {
    let mut quiet = 0;
    while quiet < 4 {
        quiet = if driven.step().unwrap().made {
            0
        } else {
            quiet + 1
        };
    }
}

#[test]
fn a_partial_line_is_kept_until_its_newline_comes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "one\ntw");
    let mut driven = following(&path);
    driven.run_until_records(1);
    until_quiet(&mut driven);
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
    until_quiet(&mut driven);
    append(&dir.path().join("log.1"), " words");
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
    until_quiet(&mut driven);
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
        until_quiet(&mut driven);
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
    until_quiet(&mut driven);
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
    until_quiet(&mut driven);
    append(&path, "first\nsecond\n");
    driven.run_until_records(2);
    assert_eq!(driven.values(), ["first", "second"], "all of it is new");
    signals(&driven.context).drain();
    driven.run().unwrap();
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

#[test]
fn a_file_that_is_truncated_while_its_lines_are_skipped_is_read_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, "new\n");
    let mut followed = Followed::open(&path).unwrap().unwrap();
    let length_before = 10 * READ_SIZE as u64;
    followed.skip_lines(length_before).unwrap();
    assert_eq!(followed.position, 0);
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
            crate::testing::says(&error, &["cannot follow", "plain"]),
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
    until_quiet(&mut driven);
    let mut early: Driven<String> = Driven::start(lines(&path).follow().wait_for_file());
    until_quiet(&mut early);
    fs::remove_file(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    append(&path, "2\n");
    driven.run_until_records(2);
    assert_eq!(driven.values(), ["1", "2"]);
    early.run_until_records(2);
}
