//! Tests of the file sink in real directories.

use std::fs;

use ardea_core::{ErrorCode, FileUse, ManualClock, OutboxRuntime};
use ardea_testkit::ProcessorTest;
use serde::Serialize;

use super::*;
use crate::files;
use crate::testing::{Driven, Fed, context, error_contains};

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
    assert!(
        error_contains(&error, &["file is a file, not a folder"]),
        "{error}"
    );
    assert!(error.is_permanent());
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
        let output = LocalOutput::new(plan.clone(), Instance::ONLY, None);
        WriteFilesP::<RecordWriter<u32, _>, _>::new(plan.clone(), output, &writing)
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

#[test]
fn a_link_that_leads_to_nothing_yet_stays_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (
        dir.path().join("new/target.txt"),
        dir.path().join("link.txt"),
    );
    std::os::unix::fs::symlink("new/target.txt", &link).unwrap();
    let mut fed = Fed::start(write_lines(&link));
    fed.feed([1, 2]).unwrap().finish().unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&target).unwrap(), "1\n2\n");
    assert_eq!(names(dir.path()), ["link.txt", "new"]);
}

/// Creates a rotating sink as in another process, which does not share the path claims of this
/// process.
fn of_another_process(path: &Path) -> Fed<String> {
    let plan = write_lines::<String>(path).rotate_bytes(8).plan;
    let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
        let output = LocalOutput::new(plan.clone(), instance, None);
        let writing = Writing::new(Lines);
        let processor =
            WriteFilesP::<RecordWriter<String, _>, _>::new(plan.clone(), output, &writing);
        Ok(Box::new(processor))
    };
    Fed::start(Sink::new("write", Arc::new(supply)))
}

#[test]
fn rotating_sinks_of_several_processes_share_the_numbers_and_replace_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    let mut sinks = [of_another_process(&path), of_another_process(&path)];
    let mut expected = Vec::new();
    for round in 0..20 {
        for (who, sink) in ["a", "b"].iter().zip(&mut sinks) {
            let record = format!("{who} {round}");
            sink.feed([record.clone()]).unwrap();
            expected.push(record);
        }
    }
    // A file created meanwhile takes the name.
    let taken = names(dir.path());
    let part = taken.iter().find(|name| name.ends_with(".part"));
    let taken = part.map(|part| part.trim_end_matches(".part").to_string());
    if let Some(taken) = taken {
        fs::write(dir.path().join(taken), "z\n").unwrap();
        expected.push("z".to_string());
    }
    sinks.iter_mut().for_each(|sink| sink.finish().unwrap());
    let mut found: Vec<String> = Vec::new();
    for name in names(dir.path()) {
        assert!(!name.ends_with(".part"), "{name}");
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        found.extend(text.lines().map(String::from));
    }
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_numbered_file_whose_name_is_taken_meanwhile_gets_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::start(write_lines(dir.path().join("out")).rotate_bytes(100));
    fed.feed([1]).unwrap();
    fs::write(dir.path().join("out-000000"), "theirs").unwrap();
    fs::write(dir.path().join("out-000001"), "theirs").unwrap();
    fed.finish().unwrap();
    let read = |name| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(
        names(dir.path()),
        ["out-000000", "out-000001", "out-000002"]
    );
    assert_eq!(
        ["out-000000", "out-000001", "out-000002"].map(read),
        ["theirs", "theirs", "1\n"]
    );
}

#[test]
fn the_highest_numbers_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let file = |number: u64| dir.path().join(format!("out-{number}.txt"));
    let sink = || write_lines(dir.path().join("out.txt")).rotate_bytes(1);
    fs::write(file(u64::MAX), "").unwrap();
    Fed::start(sink()).feed([1]).unwrap().finish().unwrap();
    assert!(dir.path().join("out-000000.txt").exists());
    fs::write(file(u64::MAX - 1), "").unwrap();
    let error = Fed::start(sink()).feed([1]).err().expect("an error");
    assert_eq!(error.code(), ErrorCode::WriteFailed);
    assert!(error.to_string().contains("no number is left"), "{error}");
}

#[test]
fn one_sinks_part_is_not_another_sinks_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q");
    let _first = Fed::<u8>::start(write_lines(&path));
    for name in ["q.part", "q"] {
        let second = write_lines(dir.path().join(name));
        let error = Fed::<u8>::new(second, context("s")).err().expect(name);
        assert_eq!(error.code(), ErrorCode::InvalidJob, "{name}");
    }
}

#[test]
fn it_says_which_files_it_would_replace_also_if_it_has_as_many_instances_as_the_node_likes() {
    let dir = tempfile::tempdir().unwrap();
    let sink = write_lines::<u8>(dir.path().join("out.txt")).parallelism(Parallelism::Auto);
    let files = sink.build().into_parts().1.files(2);
    for name in ["out-0.txt", "out-1.txt", "out-0.txt.part"] {
        assert!(files.contains(&FileUse::Writes(dir.path().join(name))));
    }
}

#[test]
fn draining_gives_up_a_pipe_without_a_reader_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    crate::testing::named_pipe(&path);
    for (drain, code) in [
        (true, ErrorCode::WriteFailed),
        (false, ErrorCode::Cancelled),
    ] {
        let context = context("s");
        if drain {
            context.signals.drain();
        } else {
            context.signals.cancel();
        }
        let error = Fed::<u8>::new(write_lines(&path), context).err().unwrap();
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains("has no reader"), "{error}");
    }
}

#[test]
fn a_slow_reader_of_a_pipe_gets_all_of_a_job_that_drains() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    crate::testing::named_pipe(&path);
    let opening = {
        let path = path.clone();
        std::thread::spawn(move || fs::File::open(path).unwrap())
    };
    let mut fed = Fed::start(write_lines(&path));
    let mut reader = opening.join().unwrap();
    crate::testing::signals(&fed.context).drain();
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).map(|_| text)
    });
    fed.feed(0..50_000).unwrap().finish().unwrap();
    drop(fed);
    assert_eq!(read.join().unwrap().unwrap().lines().count(), 50_000);
}

#[test]
fn what_is_written_reads_back_or_is_set_aside() {
    #[derive(Serialize, serde::Deserialize, Clone, PartialEq, Debug)]
    struct Mean {
        key: String,
        mean: f64,
        last: Option<f64>,
    }
    let mean = |key: &str, mean, last| Mean {
        key: key.into(),
        mean,
        last,
    };
    let rows = [
        mean("a", f64::NAN, None),
        mean("b", f64::INFINITY, None),
        mean("c", 1.0, Some(f64::NAN)),
        mean("d", 0.5, Some(-1.5)),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("means.jsonl");
    let mut fed = Fed::start(write_json_lines(&path));
    fed.feed(rows.clone()).unwrap().finish().unwrap();
    let letters = fed.context.dead_letters.sample();
    let origins: Vec<_> = letters.iter().map(|letter| &*letter.origin).collect();
    assert_eq!(origins, ["record 0", "record 1", "record 2"]);
    assert!(letters[0].reason.contains("NaN"), "{}", letters[0].reason);
    let mut back = Driven::<Mean>::start(files::json_lines(&path));
    assert_eq!(back.run().unwrap().values(), [&rows[3]]);

    drop(fed);
    let mut fed = Fed::start(write_json_lines(&path).non_finite(NonFinite::Null));
    fed.feed(rows.clone()).unwrap().finish().unwrap();
    assert_eq!(fed.context.dead_letters.count(), 0);
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("{\"key\":\"a\",\"mean\":null,\"last\":null}\n"),
        "{text}"
    );

    // CSV supports NaN and infinite numbers.
    let path = dir.path().join("means.csv");
    let mut fed = Fed::start(write_csv(&path));
    fed.feed(rows).unwrap().finish().unwrap();
    let mut back = Driven::<Mean>::start(files::csv(&path));
    let back = back.run().unwrap().values();
    assert!(back[0].mean.is_nan() && back[1].mean.is_infinite() && back.len() == 4);
}

#[test]
fn names_that_are_not_utf8_are_kept_and_shown_escaped() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(OsStr::from_bytes(b"M\xfcnchen.txt"));
    let mut fed = Fed::start(write_lines(&path));
    fed.feed([1, 2]).unwrap().finish().unwrap();
    drop(fed);
    let numbered = dir.path().join(OsStr::from_bytes(b"M\xfcnchen-000000.txt"));
    for _ in 0..2 {
        let mut fed = Fed::start(write_lines(&path).rotate_bytes(100));
        fed.feed([3]).unwrap().finish().unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
    assert_eq!(fs::read_to_string(&numbered).unwrap(), "3\n");
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        3,
        "the numbers go on"
    );
    let mut back = Driven::<String>::start(files::lines(&path));
    assert_eq!(back.run().unwrap().values(), ["1", "2"]);
    let mut all = Driven::<String>::start(files::lines(dir.path()).suffix(".txt"));
    assert_eq!(all.run().unwrap().values().len(), 4);

    let below = path.join("out");
    let error = Fed::<u8>::new(write_lines(below), context("s"));
    let error = error.err().unwrap();
    assert!(error.to_string().contains("M\\xFCnchen.txt"), "{error}");
}
