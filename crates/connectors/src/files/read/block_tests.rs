//! Tests of files that several instances share, block by block.

use std::fs;

use ardea_core::{Chunk, OutboxRuntime, StateChunk, Timestamp};
use ardea_testkit::{Expected, SourceTest};
use proptest::prelude::*;

use super::tests::file;
use super::*;
use crate::record_output::AsRows;
use crate::testing::{Driven, bgzip_member, error_contains, signals, stateful_context};

/// Returns a source of the file, with blocks of this size, for each instance of an attempt.
pub(super) fn attempt<T: Send + 'static, D: Decode<T>>(
    source: impl Fn() -> FileSource<T, D>,
    parallelism: u32,
    snapshots: &[StateChunk],
) -> Vec<Driven<T>> {
    let of = |index| {
        let mut driven = Driven::new(source(), stateful_context(index, parallelism)).unwrap();
        driven.give_back_all(snapshots).unwrap();
        driven
    };
    (0..parallelism).map(of).collect()
}

/// Returns the records of all instances, and the dead letters.
pub(super) fn read_all<T: Send + 'static, D: Decode<T>>(
    source: impl Fn() -> FileSource<T, D>,
    parallelism: u32,
) -> (Vec<T>, Vec<(String, String)>) {
    let (mut records, mut letters) = (Vec::new(), Vec::new());
    for mut driven in attempt(source, parallelism, &[]) {
        driven.run().unwrap();
        records.extend(driven.records.drain(..).map(|(record, _)| record));
        letters.extend(driven.letters());
    }
    (records, letters)
}

/// Returns a text of lines with these lengths. Each line begins with its number.
pub(super) fn text(lengths: &[usize], newline: &str, is_ended: bool) -> String {
    let lines = lengths.iter().enumerate();
    let lines = lines.map(|(number, length)| format!("{number:03}{}", "x".repeat(*length)));
    let mut text = lines.collect::<Vec<_>>().join(newline);
    if is_ended && !text.is_empty() {
        text.push_str(newline);
    }
    text
}

proptest! {
    #[test]
    fn each_line_is_read_once_by_any_number_of_instances(
        lengths in prop::collection::vec(prop_oneof![3 => 0usize..20, 1 => 0usize..300], 0..60),
        is_crlf: bool, is_ended: bool, has_mark: bool, block in 1u64..100, instances in 1u32..6,
    ) {
        let text = text(&lengths, if is_crlf { "\r\n" } else { "\n" }, is_ended);
        let mark = if has_mark { "\u{feff}" } else { "" };
        let (_dir, path) = file("in", format!("{mark}{text}"));
        let source = || lines(&path).block_bytes(block);
        let (mut records, letters) = read_all(source, instances);
        records.sort_unstable();
        prop_assert!(records.iter().map(String::as_str).eq(text.lines()));
        prop_assert!(letters.is_empty());
    }

    #[test]
    fn bad_records_name_their_line_in_each_block(
        numbers in prop::collection::vec(prop_oneof![2 => Just("1"), 1 => Just("bad"), 1 => Just("")], 0..60),
        block in 1u64..20, instances in 1u32..5, max_line in 2usize..4,
    ) {
        let (_dir, path) = file("in", numbers.join("\n"));
        let source = || json_lines::<u32>(&path).block_bytes(block).max_line(max_line);
        let (records, letters) = read_all(source, instances);
        prop_assert_eq!(records.len(), numbers.iter().filter(|it| **it == "1").count());
        let mut seen: Vec<_> = letters.into_iter().map(|(origin, _)| origin).collect();
        seen.sort_unstable();
        let bad = (1..).zip(&numbers).filter(|(_, text)| **text == "bad");
        let mut expected: Vec<_> = bad.map(|(line, _)| format!("{}:{line}", path.display())).collect();
        expected.sort_unstable();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn each_line_is_read_once_across_restores_and_rescales(
        lengths in prop::collection::vec(prop_oneof![3 => 0usize..20, 1 => 0usize..100], 0..120),
        block in 1u64..60, is_ended: bool,
        attempts in prop::collection::vec((1u32..5, prop::collection::vec(0usize..8, 5)), 1..5),
    ) {
        let text = text(&lengths, "\n", is_ended);
        let (_dir, path) = file("in", &text);
        let source = || lines(&path).block_bytes(block);
        let (mut snapshots, mut all, mut last) = (Vec::new(), Vec::new(), 1);
        for (parallelism, steps) in attempts {
            let mut instances = attempt(source, parallelism, &snapshots);
            for (driven, steps) in instances.iter_mut().zip(steps) {
                for _ in 0..steps {
                    if !driven.done {
                        let _ = driven.step().unwrap();
                    }
                }
                prop_assert!(driven.records.is_sorted(), "the order of the file");
            }
            snapshots = instances.iter_mut().map(|it| it.snapshot().unwrap()).collect();
            all.extend(instances.iter_mut().flat_map(|it| it.records.drain(..)));
            last = parallelism;
        }
        for driven in &mut attempt(source, last, &snapshots) {
            driven.run().unwrap();
            prop_assert!(driven.records.is_sorted());
            all.append(&mut driven.records);
        }
        let mut all: Vec<String> = all.into_iter().map(|(line, _): (String, Timestamp)| line).collect();
        all.sort_unstable();
        prop_assert!(all.iter().map(String::as_str).eq(text.lines()), "{:?}", all);
    }
}

#[test]
fn the_contract_is_kept_by_shared_files_in_every_schedule() {
    let numbers: String = (0..100).map(|n| format!("{n}\n")).collect();
    let (_dir, path) = file("in", numbers.replace("17", "bad"));
    let (_, supplier, ..) = json_lines::<u32>(path).block_bytes(16).build().into_parts();
    SourceTest::supplied(supplier)
        .output(Expected::unordered((0..100u32).filter(|n| *n != 17)))
        .configure(|test| test.expect_dead_letters(1))
        .survives()
        .run();
}

#[test]
fn a_line_longer_than_many_blocks_is_read_once() {
    let long = "x".repeat(30_000);
    let (_dir, path) = file("in", format!("{long}\na\n{long}\nb\n{long}"));
    let (mut records, _) = read_all(|| lines(&path).block_bytes(10), 3);
    records.sort_unstable();
    assert_eq!(records, ["a", "b", &long, &long, &long]);
}

#[test]
fn an_instance_returns_now_and_then_while_it_finds_no_line() {
    let (_dir, path) = file("in", "x".repeat(20 << 20));
    let source = || lines(&path).block_bytes(1 << 20).max_line(100);
    let mut second: Driven<String> = Driven::new(source(), stateful_context(1, 2)).unwrap();
    // Calls one and two in three have room.
    let _ = second.step().unwrap();
    assert!(!second.done);
    second.run().unwrap();
    assert!(second.records.is_empty() && second.letters().is_empty());
}

#[test]
fn each_instance_has_the_header() {
    let rows: String = (0..100).map(|n| format!("{n},c{n}\n")).collect();
    let (_dir, path) = file("in.csv", format!("delay,carrier\n{rows}"));
    let source = || read(&path, Csv::new().single_line()).block_bytes(50);
    for instances in [1, 3] {
        let (mut flights, letters) = read_all::<super::tests::Flight, _>(source, instances);
        assert_eq!(letters, []);
        flights.sort_by_key(|flight| flight.delay);
        let expected = (0..100).map(|n| (format!("c{n}"), Some(n)));
        let flights = flights.into_iter().map(|it| (it.carrier, it.delay));
        assert!(flights.eq(expected));
    }
}

#[test]
fn a_shared_file_that_becomes_shorter_or_is_rewritten_is_damaged() {
    let text = text(&[40; 1_000], "\n", true);
    for (content, why) in [
        (text[..20_000].to_string(), "shorter"),
        (text.replace('x', "y"), "rewritten"),
    ] {
        let (_dir, path) = file("in", &text);
        let source = || lines(&path).block_bytes(1_000);
        for mut driven in attempt(source, 2, &[]) {
            fs::write(&path, &text).unwrap();
            driven.run_until_records(1);
            fs::write(&path, &content).unwrap();
            let error = driven.run().err().expect(why);
            assert!(error_contains(&error, &["in", why, "instances"]), "{error}");
        }
    }
}

#[test]
fn a_shared_file_that_has_changed_before_its_place_fails_the_restored_job() {
    let text = text(&[40; 1_000], "\n", true);
    for (content, why) in [
        (text[..20_000].to_string(), "by now"),
        (text.replace('x', "y"), "another file"),
    ] {
        let (_dir, path) = file("in", &text);
        let source = || lines(&path).block_bytes(1_000);
        let mut before = attempt(source, 2, &[]);
        let snapshots = before.iter_mut();
        let snapshots = snapshots.map(|it| it.run_until_records(1).snapshot().unwrap());
        let snapshots: Vec<_> = snapshots.collect();
        fs::write(&path, content).unwrap();
        for mut driven in attempt(source, 2, &snapshots) {
            let error = driven.run().err().expect(why);
            let parts = ["in", why, "without the checkpoint"];
            assert!(error_contains(&error, &parts), "{error}");
        }
    }
}

#[test]
fn lines_added_to_a_shared_file_after_the_start_are_not_read() {
    let (_dir, path) = file("in", text(&[10; 100], "\n", true));
    let source = || lines(&path).block_bytes(100);
    let mut instances = attempt(source, 2, &[]);
    let mut all = 0;
    fs::write(&path, text(&[10; 200], "\n", true)).unwrap();
    for driven in &mut instances {
        driven.run().unwrap();
        all += driven.records.len();
    }
    assert_eq!(all, 100);
}

#[test]
fn large_files_of_a_directory_are_shared_and_small_and_compressed_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let large = text(&[40; 100], "\n", true);
    fs::write(dir.path().join("a"), &large).unwrap();
    fs::write(dir.path().join("b"), "b\n").unwrap();
    fs::write(dir.path().join("c"), crate::testing::gzip(large.as_bytes())).unwrap();
    fs::write(dir.path().join("d"), &large).unwrap();
    let source = || lines(dir.path()).block_bytes(64);
    let mut instances = attempt(source, 2, &[]);
    let counts = instances.iter_mut().map(|driven| {
        driven.run().unwrap();
        driven.records.len()
    });
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts.iter().sum::<usize>(), 301);
    // The first instance reads the small file, the second one the compressed one.
    assert!(counts[0] > 80 && counts[1] > 180, "{counts:?}");
}

#[test]
fn a_drained_job_stops_in_the_middle_and_reads_on_there() {
    let text = text(&[10; 1_000], "\n", true);
    let (_dir, path) = file("in", &text);
    let source = || lines(&path).block_bytes(100);
    let mut before = attempt(source, 3, &[]);
    let mut all = Vec::new();
    for driven in &mut before {
        driven.run_until_records(5);
        signals(&driven.context).drain();
        driven.run().unwrap();
        all.append(&mut driven.records);
    }
    assert!(all.len() < 1_000);
    let snapshots: Vec<_> = before.iter_mut().map(|it| it.snapshot().unwrap()).collect();
    for mut driven in attempt(source, 2, &snapshots) {
        driven.run().unwrap();
        all.append(&mut driven.records);
    }
    all.sort_unstable();
    assert!(all.iter().map(|(line, _)| line.as_str()).eq(text.lines()));
}

#[test]
fn the_rest_of_a_file_that_one_instance_has_begun_is_shared_after_a_rescale() {
    let text = text(&[10; 10_000], "\n", true);
    let (_dir, path) = file("in", &text);
    let source = || lines(&path).block_bytes(1_000);
    let mut one = attempt(source, 1, &[]);
    one[0].run_until_records(1);
    let snapshots = [one[0].snapshot().unwrap()];
    let mut counts = Vec::new();
    for mut driven in attempt(source, 3, &snapshots) {
        driven.run().unwrap();
        counts.push(driven.records.len());
    }
    assert_eq!(counts.iter().sum::<usize>() + one[0].records.len(), 10_000);
    assert!(counts.iter().all(|count| *count > 3_000), "{counts:?}");
}

#[test]
fn the_number_of_instances_follows_from_what_can_be_shared() {
    let of = |source: FileSource<String, Lines>| source.instances();
    assert_eq!(of(lines("in")), Parallelism::Auto);
    assert_eq!(of(lines("in").parallelism(3)), Parallelism::from(3));
    for single in [
        of(lines("in").in_order()),
        of(lines("in.gz")),
        csv::<super::tests::Flight>("in.csv").instances(),
    ] {
        assert_eq!(single, Parallelism::ONE);
    }
}

/// Reads an instance's half of a file in blocks of 4 KiB. Returns the greatest number of blocks
/// whose records had not all been emitted, and the greatest size of the buffer.
fn most_in_flight(name: &str, content: &[u8]) -> (usize, usize) {
    let (_dir, path) = file(name, content);
    let instance = Instance {
        index: 0,
        parallelism: 2,
    };
    let listing = Listing::new(Location::of(&path).unwrap(), None).shared(4096);
    let listed = listing.of(instance);
    let supply = InitialListing::new(Arc::new(listing), listed);
    let mut reader = ReadP::<AsRows<String, Lines>, _>::new(supply, &Reading::new(Lines));
    let context = InstanceContext {
        instance,
        ..InstanceContext::detached("read")
    };
    reader.init(&context).unwrap();
    let (mut most, mut outbox, mut records) = ((0, 0), Outbox::new(1, 64), 0);
    loop {
        let done = reader.complete(&mut outbox).unwrap().done;
        let (blocks, bytes) = reader.intake.in_flight();
        most = (most.0.max(blocks), most.1.max(bytes));
        if let Some(chunk) = outbox.take_chunk(0, Chunk::default) {
            records += chunk.len();
        }
        if done {
            assert!(records > 0);
            return most;
        }
    }
}

#[test]
fn a_file_of_any_size_is_read_with_at_most_two_blocks_in_flight() {
    let text = |blocks: usize| "a line of text\n".repeat(blocks * 4096 / 15).into_bytes();
    let members = |blocks: usize| -> Vec<u8> {
        let members = text(blocks);
        members.chunks(4095).flat_map(bgzip_member).collect()
    };
    for blocks in [10, 1000] {
        for (name, content) in [("in", text(blocks)), ("in.gz", members(blocks))] {
            let (in_flight, bytes) = most_in_flight(name, &content);
            assert!((1..=2).contains(&in_flight), "{in_flight} in {name}");
            assert_eq!(bytes, READ_SIZE, "{name} of {blocks} blocks");
        }
    }
}
