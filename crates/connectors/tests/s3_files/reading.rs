//! Tests of sources.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_connectors::files::{self, FileSource};
use ardea_connectors::format::Lines;
use ardea_connectors::inference::{InferredFormat, infer_file};
use ardea_core::{Epoch, ErrorCode, ProcessorSupplier, SnapshotRequest};
use ardea_pipeline::Pipeline;

use super::driven::{Driven, together};
use super::environment::{Folder, own_server};

/// Timeout of conditions in tests.
const PATIENCE: Duration = Duration::from_secs(90);

/// Returns lines of about 20 MB, so that several ranges are read.
fn large_text() -> String {
    (0..400_000u32)
        .map(|n| format!("{n:06} {:>40}\n", n.wrapping_mul(2_654_435_761)))
        .collect()
}

fn supplier(source: FileSource<String, Lines>) -> Arc<dyn ProcessorSupplier> {
    source.build().into_parts().1
}

/// Reads until `is_enough` or the end.
fn read(
    driven: &mut Driven,
    into: &mut Vec<String>,
    is_enough: impl Fn(&[String]) -> bool,
) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let mut is_done = false;
    while !is_done && !is_enough(into) {
        is_done = driven.read(1_000, into);
        assert!(Instant::now() < deadline, "{} lines have come", into.len());
    }
    is_done
}

/// Reads an object of lines by several instances, in attempts with different numbers of instances.
/// All instances of an attempt must have lines.
fn check_shared(source: FileSource<String, Lines>, text: &str) {
    let source = supplier(source);
    let (mut all, mut snapshots) = (Vec::new(), Vec::new());
    for (attempt, count) in [(1u64, 2u32), (2, 3), (3, 2)] {
        let before = together(&std::mem::take(&mut snapshots));
        for index in 0..count {
            let mut driven = Driven::new(&source, "shared", (index, count));
            if attempt > 1 {
                driven = driven.restored(attempt - 1, &before).expect("restored");
            }
            let mut own = Vec::new();
            match attempt {
                3 => assert!(read(&mut driven, &mut own, |_| false)),
                _ => drop(read(&mut driven, &mut own, |own| own.len() >= 30_000)),
            }
            assert!(!own.is_empty());
            snapshots.push(driven.snapshot(SnapshotRequest::full(Epoch(attempt))));
            all.append(&mut own);
            if attempt < 3 {
                // Records read after the snapshot do not count.
                driven.read(100, &mut Vec::new());
            }
        }
    }
    all.sort_unstable();
    assert!(all.iter().map(String::as_str).eq(text.lines()));
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn a_large_object_is_shared_and_read_on_by_another_number_of_instances() {
    let folder = Folder::new();
    let text = large_text();
    folder.put("in.txt", text.clone());
    check_shared(
        files::lines(folder.path("in.txt")).block_bytes(1 << 20),
        &text,
    );
}

/// Compresses a text in members of these sizes, which are repeated.
fn members(text: &str, sizes: &[usize], pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let (mut rest, mut all) = (text.as_bytes(), Vec::new());
    for size in sizes.iter().cycle() {
        let (member, next) = rest.split_at((*size).min(rest.len()));
        all.extend(pack(member));
        rest = next;
        if rest.is_empty() {
            break;
        }
    }
    all
}

fn zstd_frame(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 1).expect("packed")
}

fn gzip_member(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).expect("packed");
    encoder.finish().expect("packed")
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn a_compressed_object_of_several_members_is_shared_as_well() {
    let folder = Folder::new();
    let text = large_text();
    let mixed = [1_000, 300_000, 50_000, 2_000_000];
    let objects = [
        ("in.zst", members(&text, &mixed, zstd_frame)),
        ("in.gz", members(&text, &mixed, gzip_member)),
        ("in.txt", members(&text, &[64_000], gzip_member)),
    ];
    for (name, object) in objects {
        assert!(object.len() > 2 << 20, "{name} has {} bytes", object.len());
        folder.put(name, object);
        check_shared(files::lines(folder.path(name)).block_bytes(1 << 17), &text);
    }
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn a_compressed_object_of_one_member_is_read_by_one_instance() {
    let folder = Folder::new();
    let text = large_text();
    folder.put("in.gz", gzip_member(text.as_bytes()));
    let source = supplier(files::lines(folder.path("in.gz")).block_bytes(1 << 18));
    let read_by = |index| {
        let mut own = Vec::new();
        assert!(read(
            &mut Driven::new(&source, "whole", (index, 2)),
            &mut own,
            |_| false
        ));
        own
    };
    assert!(read_by(0).iter().map(String::as_str).eq(text.lines()));
    assert!(read_by(1).is_empty());
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn the_objects_below_a_prefix_are_read_packed_or_not() {
    let folder = Folder::new();
    let packed = zstd::encode_all(&b"carrier,delay\nAA,3\n"[..], 1).expect("packed");
    folder.put("a.csv", "carrier,delay\nUA,1\nUA,bad\n");
    folder.put("b.csv.zst", packed);
    folder.put(".hidden.csv", "carrier,delay\nXX,9\n");
    folder.put("deeper/c.csv", "carrier,delay\nXX,9\n");
    let p = Pipeline::new("flights");
    let flights = p
        .read_from(files::csv::<(String, i32)>(folder.path("")).build())
        .collect();
    p.run().expect("read");
    assert_eq!(flights.take_sorted(), [("AA".into(), 3), ("UA".into(), 1)]);
    let first = files::first_listed(folder.path(""), Some(".csv")).expect("listed");
    let schema = infer_file(&first, InferredFormat::Csv(b','), 10).expect("read");
    assert_eq!(schema.fields().len(), 2);
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn a_pattern_names_the_objects_that_match() {
    let folder = Folder::new();
    for name in ["day-2.txt", "day-10.txt", "night-1.txt", "deeper/day-3.txt"] {
        folder.put(name, format!("{name}\n"));
    }
    let p = Pipeline::new("days");
    let source = files::lines(folder.path("day-*.txt")).build();
    let lines = p.read_from(source).collect();
    p.run().expect("read");
    assert_eq!(lines.take_sorted(), ["day-10.txt", "day-2.txt"]);
    let error = files::listed(folder.path("week-*.txt")).expect_err("no such object");
    assert!(error.to_string().contains("matches"), "{error}");
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn what_is_missing_or_refused_fails_the_job_at_its_start() {
    let folder = Folder::new();
    let start = |path: &str| {
        let source = supplier(files::lines(path));
        let mut driven = Driven::new(&source, "refused", (0, 1));
        driven.try_read(1, &mut Vec::new()).expect_err("refused")
    };
    let error = start(&folder.path("missing"));
    assert_eq!(error.code(), ErrorCode::ReadFailed);
    assert!(
        error.to_string().contains(&folder.shown("missing")),
        "{error}"
    );
    let error = start(&folder.path("x").replace("states", "no-such-bucket"));
    assert!(error.to_string().contains("no such bucket"), "{error}");
    assert!(error.is_permanent(), "{error}");
    for wrong in [
        "s3://",
        "s3://me:secret@states/x",
        "s3://states/x?colour=red",
    ] {
        let source = supplier(files::lines(wrong));
        let instance = ardea_core::Instance::ONLY;
        let error = source.supply(instance).err().expect("malformed");
        assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn an_object_that_is_replaced_while_it_is_read_is_damaged() {
    for is_removed in [false, true] {
        let folder = Folder::new();
        folder.put("in.txt", large_text());
        let source = supplier(files::lines(folder.path("in.txt")));
        let mut driven = Driven::new(&source, "replaced", (0, 1));
        let mut lines = Vec::new();
        read(&mut driven, &mut lines, |lines| !lines.is_empty());
        match is_removed {
            true => folder.remove("in.txt"),
            false => folder.put("in.txt", "another\n"),
        }
        let deadline = Instant::now() + PATIENCE;
        let error = loop {
            match driven.try_read(1_000, &mut lines) {
                Ok(is_done) => assert!(!is_done && Instant::now() < deadline),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), ErrorCode::ReadFailed);
        let why = if is_removed { "removed" } else { "replaced" };
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn an_object_that_was_replaced_fails_the_restored_job() {
    let folder = Folder::new();
    folder.put("in.txt", large_text());
    let source = supplier(files::lines(folder.path("in.txt")));
    let mut driven = Driven::new(&source, "restored", (0, 1));
    let mut lines = Vec::new();
    read(&mut driven, &mut lines, |lines| !lines.is_empty());
    let snapshot = driven.snapshot(SnapshotRequest::full(Epoch(1)));
    folder.put("in.txt", large_text());
    // An object with the same content is the same.
    let mut same = Driven::new(&source, "restored", (0, 1))
        .restored(1, &snapshot)
        .expect("restored");
    read(&mut same, &mut lines, |lines| lines.len() > 5_000);
    assert!(
        lines
            .iter()
            .map(String::as_str)
            .eq(large_text().lines().take(lines.len()))
    );
    folder.put("in.txt", large_text().replace('1', "2"));
    let mut other = Driven::new(&source, "restored", (0, 1))
        .restored(1, &snapshot)
        .expect("restored");
    let error = other.try_read(1, &mut lines).expect_err("another object");
    assert!(error.to_string().contains("another file"), "{error}");
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn a_store_that_dies_and_comes_back_is_waited_for() {
    let server = own_server().expect("a server");
    let folder = Folder::at(&server);
    let text = large_text();
    folder.put("in.txt", text.clone());
    let source = supplier(files::lines(folder.path("in.txt")));
    let mut driven = Driven::new(&source, "waits", (0, 1));
    let mut lines = Vec::new();
    read(&mut driven, &mut lines, |lines| !lines.is_empty());
    server.kill();
    // The lines that have been read are emitted, and then nothing.
    let mut calls_without_lines = 0;
    while calls_without_lines < 5 {
        let before = lines.len();
        assert!(!driven.read(10_000, &mut lines));
        calls_without_lines += u32::from(lines.len() == before);
    }
    assert!(lines.len() < 400_000);
    let snapshot = driven.snapshot(SnapshotRequest::full(Epoch(1)));
    let read_before = lines.len();
    server.restart();
    assert!(read(&mut driven, &mut lines, |_| false));
    assert!(lines.iter().map(String::as_str).eq(text.lines()));
    let mut again = Driven::new(&source, "waits", (0, 1))
        .restored(1, &snapshot)
        .expect("restored");
    let mut rest = Vec::new();
    assert!(read(&mut again, &mut rest, |_| false));
    assert_eq!(rest, lines[read_before..]);
}
