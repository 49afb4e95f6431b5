//! The file sink against real directories.

use ardea_core::{ErrorCode, ManualClock};
use ardea_testkit::ProcessorTest;
use serde::Serialize;

use super::*;
use crate::files;
use crate::testing::{Driven, Fed, context};

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_has_its_name_only_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    fs::write(&path, "old").unwrap();
    let mut fed = Fed::start(write_lines(&path).sync(true));
    fed.feed([1, 2]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    fed.feed([3]).unwrap().finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n");
    assert_eq!(names(dir.path()), ["out.txt"]);
}

#[test]
fn a_job_that_stops_early_leaves_the_old_file_and_its_own_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    fs::write(&path, "old").unwrap();
    let mut fed = Fed::start(write_lines(&path));
    fed.feed([1]).unwrap();
    drop(fed);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(
        fs::read_to_string(dir.path().join("out.txt.part")).unwrap(),
        "1\n"
    );
}

#[test]
fn no_records_make_an_empty_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    Fed::<i32>::start(write_lines(&path)).finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn files_rotate_by_size_each_with_a_header_and_numbers_go_on() {
    #[derive(Serialize)]
    struct Row {
        n: u32,
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.csv");
    for _ in 0..2 {
        let mut fed = Fed::start(write_csv(&path).rotate_bytes(6));
        fed.feed((100..103).map(|n| Row { n }))
            .unwrap()
            .finish()
            .unwrap();
    }
    let expected = (0..6)
        .map(|number| format!("out-{number:06}.csv"))
        .collect::<Vec<_>>();
    assert_eq!(names(dir.path()), expected);
    let third = fs::read_to_string(dir.path().join("out-000002.csv")).unwrap();
    assert_eq!(third, "n\n102\n");
}

#[test]
fn a_silent_stream_still_ends_its_file_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let hand = ManualClock::new();
    let mut context = context("sink");
    context.clock = hand.clock();
    let sink = write_lines(dir.path().join("out")).rotate_after(Duration::from_secs(60));
    let mut fed: Fed<i32> = Fed::new(sink, context).unwrap();
    fed.feed([1]).unwrap();
    assert_eq!(fed.outbox.take_wake_at(), Some(Duration::from_secs(60)));
    hand.advance(Duration::from_secs(60));
    fed.wake().unwrap();
    assert_eq!(names(dir.path()), ["out-000000"]);
    fed.feed([2]).unwrap();
    assert_eq!(names(dir.path()), ["out-000000", "out-000001.part"]);
    fed.finish().unwrap();
}

#[test]
fn instances_write_side_by_side_and_compressed_files_read_back() {
    let dir = tempfile::tempdir().unwrap();
    for index in 0..2 {
        for name in ["a.json.gz", "b.zst"] {
            let sink = write_json_lines(dir.path().join(name));
            let mut fed = Fed::one_of(sink, index, 2);
            fed.feed([index])
                .unwrap()
                .feed([7])
                .unwrap()
                .finish()
                .unwrap();
        }
    }
    assert_eq!(
        names(dir.path()),
        ["a-0.json.gz", "a-1.json.gz", "b-0.zst", "b-1.zst"]
    );
    let mut driven = Driven::start(files::json_lines::<u32>(dir.path()));
    assert_eq!(
        driven.run().unwrap().values(),
        [&0, &7, &1, &7, &0, &7, &1, &7]
    );
    let raw = fs::read(dir.path().join("a-0.json.gz")).unwrap();
    assert_eq!(raw[..2], [0x1f, 0x8b]);
}

#[test]
fn asking_for_compression_adds_the_suffix_once() {
    let sink = write_lines::<u8>("x/out.txt").compression(Compression::Gzip);
    assert_eq!(sink.plan.file(Instance::ONLY, 0), Path::new("x/out.txt.gz"));
    let sink = write_lines::<u8>("x/.out.gz");
    assert_eq!(sink.plan.file(Instance::ONLY, 0), Path::new("x/.out.gz"));
}

#[test]
fn a_path_that_cannot_be_written_fails_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let error = Fed::<u8>::new(write_lines(dir.path()), context("s"))
        .err()
        .unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    fs::write(dir.path().join("file"), "").unwrap();
    let below = dir.path().join("file/out");
    let error = Fed::<u8>::new(write_lines(below), context("s"))
        .err()
        .unwrap();
    assert_eq!(error.code(), ErrorCode::WriteFailed);
}

#[test]
fn a_record_that_the_format_cannot_hold_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.jsonl");
    let mut fed = Fed::start(write_json_lines(&path));
    let bad = std::collections::BTreeMap::from([((1, 2), 3)]);
    fed.feed([Default::default(), bad])
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n");
    assert_eq!(fed.context.dead_letters.sample()[0].origin, "record 1");
}

#[test]
fn the_contract_is_kept_in_every_schedule() {
    let dir = tempfile::tempdir().unwrap();
    let plan = write_lines::<u32>(dir.path().join("out"))
        .rotate_bytes(10)
        .plan;
    let make = move || {
        let writing = Writing::new(Lines);
        WriteFilesP::<u32, _>::new(plan.clone(), Instance::ONLY, &writing)
    };
    ProcessorTest::new(make)
        .input::<u32>((0..10).collect::<Vec<_>>())
        .cancellations(4)
        .run();
}

#[test]
fn a_link_stays_a_link_and_what_it_leads_to_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target.txt"), dir.path().join("link.txt"));
    fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let mut fed = Fed::start(write_lines(&link));
    fed.feed([1, 2]).unwrap().finish().unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&target).unwrap(), "1\n2\n");
}

#[test]
fn a_device_is_written_and_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("null");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    let mut fed = Fed::start(write_lines(&link));
    fed.feed([1, 2]).unwrap().finish().unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    assert_eq!(names(dir.path()), ["null"]);
}
