//! Tests of reading files to their end.

use std::fs;
use std::io::Write;

use ardea_core::{ErrorCode, OnError, Ordinal, OutboxRuntime};
use ardea_testkit::{Expected, SourceTest};
use serde::Deserialize;

use super::*;
use crate::testing::{Driven, context, error_contains, gzip, signals, stateful_context};

#[derive(Deserialize, Debug, PartialEq)]
pub(super) struct Flight {
    pub carrier: String,
    pub delay: Option<i32>,
}

pub(super) fn file(name: &str, content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    (dir, path)
}

pub(super) fn numbers(count: usize) -> String {
    (0..count)
        .map(|n| format!("line {n} {}\n", n * 7919 % 104729))
        .collect()
}

#[test]
fn a_directory_is_read_in_order_and_split_over_instances() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("b"), "3\n4").unwrap();
    fs::write(dir.path().join("a"), "1\n2\n").unwrap();
    let mut driven = Driven::start(lines(dir.path()));
    assert_eq!(driven.run().unwrap().values(), ["1", "2", "3", "4"]);
    let mut second = context("s");
    second.instance = Instance {
        index: 1,
        parallelism: 2,
    };
    let mut driven: Driven<String> = Driven::new(lines(dir.path()), second).unwrap();
    assert_eq!(driven.run().unwrap().values(), ["3", "4"]);
}

#[test]
fn compressed_files_are_known_by_their_first_bytes() {
    let text = numbers(3000);
    let twice = [gzip(text.as_bytes()), gzip(b"more\n")].concat();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for (content, count) in [(twice, 3001), (zstd, 3000)] {
        let (_dir, path) = file("data", content);
        let mut driven = Driven::start(lines(path));
        assert_eq!(driven.run().unwrap().records.len(), count);
    }
}

#[test]
fn invalid_text_goes_where_the_policy_says_with_its_place() {
    let (_dir, path) = file("in", b"good\nb\xffd\nalso good\n");
    let mut driven = Driven::start(lines(&path));
    assert_eq!(driven.run().unwrap().values(), ["good", "also good"]);
    let letter = &driven.context.dead_letters.sample()[0];
    assert_eq!(letter.raw, b"b\xffd");
    assert_eq!(letter.origin, format!("{}:2", path.display()));
    assert_eq!(letter.reason, "not UTF-8 from byte 1 on");

    let mut dropping = Driven::start(lines(&path).on_error(OnError::Drop));
    dropping.run().unwrap();
    assert_eq!(dropping.context.dead_letters.dropped(), 1);
    assert_eq!(dropping.context.metrics.snapshot().bad, 1);

    let mut failing = Driven::start(lines(&path).on_error(OnError::Fail));
    assert!(error_contains(
        &failing.run().err().unwrap(),
        &["in:2", "UTF-8"]
    ));
}

#[test]
fn long_lines_pass_and_longer_ones_than_the_limit_do_not() {
    let long = "x".repeat(10 << 20);
    let (_dir, path) = file("in", format!("a\n{long}\n{}\nb\n", "y".repeat(17 << 20)));
    let mut driven = Driven::start(lines(&path));
    driven.run().unwrap();
    assert_eq!(driven.values(), ["a", &long, "b"]);
    let letter = &driven.context.dead_letters.sample()[0];
    assert!(
        letter.origin.ends_with("in:3") && letter.reason.contains("17825792"),
        "{letter:?}"
    );
    assert_eq!(letter.raw.len(), 4096);
}

#[test]
fn csv_reads_into_types_and_sets_malformed_records_aside() {
    let text = "delay,carrier\r\n5,\"A\nA\"\r\n,UA\nlate,UA\n1\n\n-3,B6";
    let (_dir, path) = file("in.csv", text);
    let mut driven = Driven::start(csv::<Flight>(path));
    let flight = |carrier: &str, delay| Flight {
        carrier: carrier.into(),
        delay,
    };
    assert_eq!(
        driven.run().unwrap().values(),
        [
            &flight("A\nA", Some(5)),
            &flight("UA", None),
            &flight("B6", Some(-3))
        ]
    );
    let places: Vec<_> = driven
        .letters()
        .into_iter()
        .map(|(origin, _)| origin)
        .collect();
    assert!(
        places[0].ends_with(":5") && places[1].ends_with(":6"),
        "{places:?}"
    );
}

#[test]
fn malformed_json_is_set_aside_line_by_line() {
    let (_dir, path) = file("in", "{\"carrier\":\"UA\"}\n{\"carrier\":\n\n[]\n");
    let mut driven = Driven::start(json_lines::<Flight>(path));
    assert_eq!(driven.run().unwrap().records.len(), 1);
    assert_eq!(driven.letters().len(), 2);
}

#[test]
fn it_says_which_files_it_would_read_now() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let used = |source: FileSource<String, Lines>| source.build().into_parts().1.files(1);
    let reads = |names: &[&str]| -> Vec<FileUse> {
        names.iter().map(|name| FileUse::Reads(at(name))).collect()
    };
    let all = || lines(dir.path());
    assert_eq!(used(all().suffix(".csv")), []);
    for name in ["b.csv", "a.csv", ".c.csv", "d.csv.part", "report.json"] {
        fs::write(at(name), "").unwrap();
    }
    assert_eq!(used(all().suffix(".csv")), reads(&["a.csv", "b.csv"]));
    assert_eq!(used(all()), reads(&["a.csv", "b.csv", "report.json"]));
    assert_eq!(used(lines(at("later"))), reads(&["later"]));
}

#[test]
fn a_missing_file_fails_the_start_and_is_named() {
    let error = Driven::<String>::new(lines("/no/such/file"), context("s"))
        .err()
        .unwrap();
    assert_eq!(error.code(), ErrorCode::ReadFailed);
    assert!(error_contains(
        &error,
        &["/no/such/file", "check that it exists"]
    ));
}

#[test]
fn draining_ends_it_in_the_middle_with_what_was_read() {
    let (_dir, path) = file("in", numbers(200_000));
    let mut driven = Driven::start(lines(path));
    driven.run_until_records(10);
    signals(&driven.context).drain();
    driven.run().unwrap();
    assert!(driven.records.len() < 200_000);
}

#[test]
fn drained_behind_its_last_byte_it_has_come_to_its_end_and_before_it_not() {
    for (count, is_all) in [(2, true), (200_000, false)] {
        let (_dir, path) = file("in", numbers(count).trim_end());
        let location = Location::of(&path).unwrap();
        let listing = Arc::new(Listing::new(location, None));
        let mut reader = ReadP::<AsRows<String, Lines>, _>::new(
            InitialListing::new(listing, Ok(vec![(path, None)])),
            &Reading::new(Lines),
        );
        let context = context("s");
        reader.init(&context).unwrap();
        let mut outbox = Outbox::new(1, count + 1);
        outbox.set_budget(1);
        // The source has read the first 256 KiB and emitted one line.
        assert!(!reader.complete(&mut outbox).unwrap().done);
        outbox.set_budget(count + 1);
        context.signals.drain();
        while !reader.on_drain(&mut outbox).unwrap().done {}
        assert_eq!(reader.is_at_end(), is_all);
        let mut lane = outbox.lane::<String>(Ordinal::FIRST).unwrap();
        assert_eq!(lane.rows().len() == count, is_all);
    }
}

#[test]
fn a_pipe_hands_on_what_it_has_and_waits_for_more() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    let mut driven = Driven::start(lines(path));
    writer.write_all(b"a\nb").unwrap();
    driven.run_until_records(1);
    drop(writer);
    drop(reader);
    assert_eq!(driven.run().unwrap().values(), ["a", "b"]);
}

#[test]
fn draining_delivers_half_a_line_that_was_read_from_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    crate::testing::named_pipe(&path);
    let mut driven = Driven::start(lines(&path));
    let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all(b"a\nhalf").unwrap();
    driven.run_until_records(1);
    signals(&driven.context).drain();
    assert_eq!(driven.run().unwrap().values(), ["a", "half"]);
}

#[test]
fn what_comes_compressed_through_a_named_pipe_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    crate::testing::named_pipe(&path);
    for packed in [gzip(b"a\nb"), crate::testing::zstd(b"a\nb")] {
        let mut driven = Driven::start(lines(&path));
        let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(&packed).unwrap();
        drop(writer);
        assert_eq!(driven.run().unwrap().values(), ["a", "b"]);
    }
}

#[test]
fn a_named_pipe_without_a_writer_holds_up_neither_start_nor_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    crate::testing::named_pipe(&path);
    for drain in [true, false] {
        let mut driven: Driven<String> = Driven::start(lines(&path));
        assert!(!driven.step().unwrap().done, "it waits for a writer");
        let signals = signals(&driven.context);
        if drain {
            signals.drain()
        } else {
            signals.cancel()
        }
        driven.run().unwrap();
    }
    let mut driven = Driven::start(lines(&path));
    let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all(b"a\nb\n").unwrap();
    driven.run_until_records(2);
    drop(writer);
    assert_eq!(driven.run().unwrap().values(), ["a", "b"]);
}

#[test]
fn the_contract_is_kept_in_every_schedule() {
    let (_dir, path) = file("in", "1\n2\nnot a number\n3\n");
    let (_, supplier, ..) = json_lines::<u32>(path).build().into_parts();
    SourceTest::supplied(supplier)
        .output::<u32>([1, 2, 3])
        .configure(|test| test.expect_dead_letters(1))
        .survives()
        .run();
}

#[test]
fn files_go_on_where_they_were_read_to_packed_or_not_also_as_several_instances() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for file in 0..5u64 {
        let mut text = String::from("carrier,delay\n");
        for line in 0..30u64 {
            let carrier = format!("c{file}-{line}");
            text.push_str(&format!("{carrier},{line}\n"));
            expected.push((carrier, line));
        }
        let (name, content) = match file % 3 {
            0 => (format!("{file}.csv"), text.into_bytes()),
            1 => (format!("{file}.csv.gz"), gzip(text.as_bytes())),
            _ => (
                format!("{file}.csv.zst"),
                crate::testing::zstd(text.as_bytes()),
            ),
        };
        fs::write(dir.path().join(name), content).unwrap();
    }
    #[derive(Deserialize, Debug, PartialEq)]
    struct Line {
        delay: u64,
        carrier: String,
    }
    let source = csv::<Line>(dir.path()).build();
    let (_, supplier, ..) = source.into_parts();
    let lines = expected
        .into_iter()
        .map(|(carrier, delay)| Line { delay, carrier });
    SourceTest::supplied(supplier)
        .output(Expected::ordered(lines))
        .survives()
        .run();
}

#[test]
fn who_has_files_left_and_is_to_read_others_now_is_refused_with_both_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["a", "b"] {
        fs::write(at(name), numbers(200_000)).unwrap();
    }
    let mut before = resumed(lines(at("a")), None);
    before.run_until_records(1);
    let snapshot = before.snapshot().unwrap();
    let mut other = Driven::new(lines(at("b")), stateful_context(0, 1)).unwrap();
    let error = other.give_back(&snapshot).unwrap_err();
    let (left, now) = (at("a").display().to_string(), at("b").display().to_string());
    assert!(
        error_contains(&error, &[&left, &now, "recovery.start_over"]),
        "{error}"
    );
    // The same file through a symbolic link, and as a file of a directory.
    std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
    for path in [at("link"), dir.path().to_path_buf()] {
        resumed(lines(path), Some(&snapshot)).run().unwrap();
    }
    // Files read to their end are not in the snapshot.
    before.run().unwrap();
    let snapshot = before.snapshot().unwrap();
    let mut other = resumed(lines(at("b")), Some(&snapshot));
    assert!(other.run().unwrap().records.is_empty());
}

/// Returns a source in a job with state, restored from a snapshot if given.
fn resumed(
    source: FileSource<String, Lines>,
    from: Option<&ardea_core::StateChunk>,
) -> Driven<String> {
    let mut driven = Driven::new(source, stateful_context(0, 1)).unwrap();
    if let Some(from) = from {
        driven.give_back(from).unwrap();
    }
    driven
}

#[test]
fn what_was_listed_stays_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text = |name: &str| (0..40).map(|n| format!("{name}{n}\n")).collect::<String>();
    let mut all = String::new();
    for name in ["b", "c", "d"] {
        fs::write(at(name), text(name)).unwrap();
        all.push_str(&text(name));
    }
    let mut before = resumed(lines(dir.path()), None);
    before.run_until_records(1);
    let snapshot = before.snapshot().unwrap();
    let seen = before.values().len();
    assert!((41..80).contains(&seen), "in the middle of the second file");
    fs::remove_file(at("b")).unwrap();
    for name in ["a", "bb", "e"] {
        fs::write(at(name), "new\n").unwrap();
    }
    let mut after = resumed(lines(dir.path()), Some(&snapshot));
    let left: Vec<&str> = all.lines().skip(seen).collect();
    assert_eq!(after.run().unwrap().values(), left);
    // A source that had read everything reads nothing after a restore.
    let snapshot = after.snapshot().unwrap();
    fs::remove_dir_all(dir.path()).unwrap();
    let mut again = resumed(lines(dir.path()), Some(&snapshot));
    assert!(again.run().unwrap().records.is_empty());
}

#[test]
fn a_snapshot_before_the_first_record_says_what_was_listed() {
    let (dir, path) = file("a", "1\n");
    let snapshot = resumed(lines(dir.path()), None).snapshot().unwrap();
    fs::write(dir.path().join("b"), "2\n").unwrap();
    let mut after = resumed(lines(dir.path()), Some(&snapshot));
    assert_eq!(after.run().unwrap().values(), ["1"]);
    drop(path);
}

#[test]
fn a_file_that_has_changed_before_its_place_fails_the_job() {
    let text = numbers(100);
    for (content, why) in [
        (text[..50].to_string(), "by now"),
        (text[..text.len() - 1].to_string(), "by now"),
        (text.replace("line", "LINE"), "another file"),
        (text.replace("line 99", "LINE 99"), "another file"),
    ] {
        let (_dir, path) = file("in", &text);
        let mut before = resumed(lines(&path), None);
        before.run_until_records(1);
        let snapshot = before.snapshot().unwrap();
        fs::write(&path, content).unwrap();
        let mut after = resumed(lines(&path), Some(&snapshot));
        let error = after.run().err().expect(why);
        assert!(
            error_contains(&error, &["in", why, "without the checkpoint"]),
            "{error}"
        );
    }
}

#[test]
fn lines_that_are_added_to_a_file_that_was_read_to_its_end_are_left_alone() {
    let (_dir, path) = file("in", "1\n2\n");
    let snapshot = resumed(lines(&path), None)
        .run()
        .unwrap()
        .snapshot()
        .unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"3\n").unwrap();
    let mut after = resumed(lines(&path), Some(&snapshot));
    assert!(after.run().unwrap().records.is_empty());
}

#[test]
fn lines_keep_their_numbers() {
    let (_dir, path) = file("in", numbers(100));
    let mut before = resumed(lines(&path), None);
    before.run_until_records(1);
    let (snapshot, seen) = (before.snapshot().unwrap(), before.records.len());
    let mut after: Driven<bool> =
        Driven::new(json_lines::<bool>(&path), stateful_context(0, 1)).unwrap();
    after.give_back(&snapshot).unwrap();
    after.run().unwrap();
    let letters = after.letters();
    assert_eq!(letters.len(), 100 - seen);
    assert!(
        letters[0].0.ends_with(&format!(":{}", seen + 1)),
        "{letters:?}"
    );
}

#[test]
fn what_can_not_be_read_again_is_said_and_what_is_not_there_fails_a_job_that_begins() {
    let forgets = |path: &str| {
        let (_, supplier, ..) = lines(path).build().into_parts();
        supplier.supply(Instance::ONLY).unwrap().unsaved_state()
    };
    assert!(forgets("/dev/null").is_some_and(|what| what.contains("plain file")));
    assert_eq!(forgets("/etc/hostname"), None);
    let mut missing = resumed(lines("/no/such/file"), None);
    assert_eq!(missing.run().err().unwrap().code(), ErrorCode::ReadFailed);
}

#[test]
fn a_snapshot_behind_any_call_loses_no_file_whether_it_is_packed_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    // With an empty file before those with lines, the first call ends right after opening a file,
    // at READS_PER_CALL.
    for file in 0..50 {
        let name = format!("{file:02}");
        let count = if file == 0 { 0 } else { 1 + file % 4 };
        let text: String = (0..count).map(|n| format!("{name}-{n}\n")).collect();
        expected.extend(text.lines().map(String::from));
        let (name, content) = match file % 3 {
            0 => (name, text.into_bytes()),
            1 => (format!("{name}.gz"), gzip(text.as_bytes())),
            _ => (format!("{name}.zst"), crate::testing::zstd(text.as_bytes())),
        };
        fs::write(dir.path().join(name), content).unwrap();
    }
    for drains in [false, true] {
        for calls in 0.. {
            let mut before = resumed(lines(dir.path()), None);
            while before.calls() < calls && !before.done {
                let _ = before.step().unwrap();
            }
            let is_all = before.done;
            if drains && !is_all {
                signals(&before.context).drain();
                before.run().unwrap();
            }
            let snapshot = before.snapshot().unwrap();
            let mut after = resumed(lines(dir.path()), Some(&snapshot));
            after.run().unwrap();
            let all = [before.values(), after.values()].concat();
            assert!(
                all == expected.iter().collect::<Vec<_>>(),
                "{calls} calls: {all:?}"
            );
            assert_eq!(after.letters(), [], "{calls} calls");
            if is_all {
                break;
            }
        }
    }
}
