//! Tests of lines that are written to a file after it was replaced.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_core::{Guarantee, Instance, InstanceContext, ManualClock, StateChunk};

use super::replaced::MAX_OPEN_REPLACED;
use crate::files::lines;
use crate::testing::{Driven, context, signals};

/// A log that is rotated as by logrotate with `create`: the new file exists before the writer opens
/// it.
struct Log {
    dir: tempfile::TempDir,
    rotations: u32,
}

impl Log {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("log")).unwrap();
        Log { dir, rotations: 0 }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn writer(&self) -> File {
        File::options().append(true).open(self.path()).unwrap()
    }

    /// Rotates the log; returns the new name of the old file.
    fn rotate(&mut self) -> PathBuf {
        self.rotations += 1;
        let old = self.dir.path().join(format!("log.{}", self.rotations));
        fs::rename(self.path(), &old).unwrap();
        File::create(self.path()).unwrap();
        old
    }

    /// Returns a followed source, restored from a snapshot if given.
    fn followed(&self, hand: &ManualClock, from: Option<&StateChunk>) -> Driven<String> {
        let context = InstanceContext {
            instance: Instance::ONLY,
            guarantee: Guarantee::ExactlyOnce,
            clock: hand.clock(),
            ..context("kept")
        };
        let mut driven = Driven::new(lines(self.path()).follow(), context).unwrap();
        if let Some(from) = from {
            driven.give_back(from).unwrap();
        }
        driven
    }
}

fn put(file: &mut File, text: &str) {
    file.write_all(text.as_bytes()).unwrap();
}

/// Returns the number of file descriptors of this process in the folder.
fn descriptors(folder: &Path) -> usize {
    let names = fs::read_dir("/proc/self/fd").unwrap();
    let targets = names.filter_map(|name| fs::read_link(name.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(folder)).count()
}

#[test]
fn what_is_written_late_to_a_rotated_file_comes_beside_the_new_one() {
    let (mut log, hand) = (Log::new(), ManualClock::new());
    let mut old = log.writer();
    put(&mut old, "1\n");
    let mut driven = log.followed(&hand, None);
    driven.run_until_records(1);
    log.rotate();
    driven.until_quiet();
    put(&mut old, "2\nha");
    driven.run_until_records(2);
    let mut new = log.writer();
    put(&mut new, "new 1\nnew ha");
    driven.run_until_records(3);
    driven.until_quiet();
    put(&mut old, "lf\n3\n");
    driven.run_until_records(5);
    put(&mut new, "lf\n");
    driven.run_until_records(6);
    let expected = ["1", "2", "new 1", "half", "3", "new half"];
    assert_eq!(driven.values(), expected);
    assert!(driven.letters().is_empty());
}

#[test]
fn a_replaced_file_is_let_go_when_it_has_not_grown_for_five_seconds_and_half_a_line_comes_then() {
    let (mut log, hand) = (Log::new(), ManualClock::new());
    let mut old = log.writer();
    put(&mut old, "1\n");
    let mut driven = log.followed(&hand, None);
    driven.run_until_records(1);
    log.rotate();
    driven.until_quiet();
    for line in 2..5 {
        hand.advance(Duration::from_secs(4));
        put(&mut old, &format!("{line}\n"));
        driven.run_until_records(line);
        driven.until_quiet();
    }
    put(&mut old, "half");
    driven.until_quiet();
    assert_eq!(driven.records.len(), 4);
    hand.advance(Duration::from_secs(5));
    driven.run_until_records(5);
    driven.until_quiet();
    put(&mut old, "too late\n");
    put(&mut log.writer(), "new\n");
    driven.run_until_records(6);
    driven.until_quiet();
    assert_eq!(driven.values(), ["1", "2", "3", "4", "half", "new"]);
}

#[test]
fn without_a_time_a_replaced_file_is_let_go_at_its_end() {
    let mut log = Log::new();
    let mut old = log.writer();
    put(&mut old, "1\nhalf");
    let source = lines(log.path()).follow().rotate_wait(Duration::ZERO);
    let mut driven = Driven::start(source);
    driven.run_until_records(1);
    log.rotate();
    driven.run_until_records(2);
    driven.until_quiet();
    put(&mut old, "late\n");
    put(&mut log.writer(), "new\n");
    driven.run_until_records(3);
    driven.until_quiet();
    assert_eq!(driven.values(), ["1", "half", "new"]);
}

#[test]
fn over_many_lives_lines_of_old_and_new_files_come_once_each() {
    let (mut log, hand) = (Log::new(), ManualClock::new());
    let mut writers = vec![log.writer()];
    let (mut seen, mut written, mut snapshot) = (Vec::new(), 0, None);
    for life in 0..60 {
        if life % 4 == 1 {
            let mut driven = log.followed(&hand, snapshot.as_ref());
            driven.until_quiet();
            snapshot = Some(driven.snapshot().unwrap());
            seen.extend(driven.values().into_iter().cloned());
            log.rotate();
            writers.push(log.writer());
        }
        let mut driven = log.followed(&hand, snapshot.as_ref());
        for round in 0..life % 5 {
            // Recently replaced files are written to as well, and lines arrive in halves.
            for writer in writers.iter_mut().rev().take(3) {
                put(writer, &format!("{written}\n{}", written + 1));
                let _ = driven.step().unwrap();
                put(writer, "\n");
                written += 2;
            }
            if round % 2 == 0 {
                let _ = driven.step().unwrap();
            }
        }
        snapshot = Some(driven.snapshot().unwrap());
        seen.extend(driven.values().into_iter().cloned());
        // Records after the snapshot do not count: the process is killed.
        let _ = driven.step().unwrap();
    }
    let mut last = log.followed(&hand, snapshot.as_ref());
    last.run_until_records(written - seen.len());
    last.until_quiet();
    seen.extend(last.values().into_iter().cloned());
    let mut numbers: Vec<usize> = seen.iter().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..written));
}

#[test]
fn lines_that_were_written_to_an_old_file_while_the_job_was_away_come() {
    let (mut log, hand) = (Log::new(), ManualClock::new());
    let mut old = log.writer();
    put(&mut old, "1\n");
    let mut before = log.followed(&hand, None);
    before.run_until_records(1);
    let old_path = log.rotate();
    put(&mut log.writer(), "new\n");
    before.run_until_records(2);
    put(&mut old, "ha");
    before.until_quiet();
    let snapshot = before.snapshot().unwrap();
    put(&mut old, "lf\n");
    put(&mut log.writer(), "newer\n");
    let mut after = log.followed(&hand, Some(&snapshot));
    after.run_until_records(2);
    after.until_quiet();
    let mut values = after.values();
    values.sort();
    assert_eq!(values, ["half", "newer"]);
    fs::remove_file(old_path).unwrap();
    let mut after = log.followed(&hand, Some(&snapshot));
    after.run_until_records(1);
    after.until_quiet();
    assert_eq!(after.values(), ["newer"]);
    let letters = after.letters();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert!(letters[0].1.contains("not read"), "{letters:?}");
}

#[test]
fn draining_delivers_half_lines_of_all_files() {
    let mut log = Log::new();
    let mut driven = Driven::start(lines(log.path()).follow());
    for name in ["a", "b", "c"] {
        put(&mut log.writer(), &format!("{name}\nhalf {name}"));
        driven.until_quiet();
        if name != "c" {
            log.rotate();
            driven.until_quiet();
        }
    }
    assert_eq!(driven.values(), ["a", "b", "c"]);
    signals(&driven.context).drain();
    driven.run().unwrap();
    let mut values = driven.values();
    values.sort();
    assert_eq!(values, ["a", "b", "c", "half a", "half b", "half c"]);
}

#[test]
fn many_rotations_hold_a_bounded_number_of_files() {
    let (mut log, hand) = (Log::new(), ManualClock::new());
    let mut driven = log.followed(&hand, None);
    for number in 0..3 * MAX_OPEN_REPLACED {
        put(&mut log.writer(), &format!("{number}\nhalf {number}"));
        driven
            .run_until(|driven| driven.records.len() > number)
            .unwrap();
        driven.until_quiet();
        log.rotate();
        driven.until_quiet();
        // One more than the replaced files: the file at the path.
        assert!(descriptors(log.dir.path()) <= MAX_OPEN_REPLACED + 1);
    }
    assert_eq!(descriptors(log.dir.path()), MAX_OPEN_REPLACED + 1);
    let halves = |driven: &Driven<String>| {
        let values = driven.values().into_iter();
        values.filter(|value| value.starts_with("half")).count()
    };
    assert_eq!(halves(&driven), 2 * MAX_OPEN_REPLACED);
    hand.advance(Duration::from_secs(5));
    driven
        .run_until(|driven| halves(driven) == 3 * MAX_OPEN_REPLACED)
        .unwrap();
    driven.until_quiet();
    assert_eq!(descriptors(log.dir.path()), 1);
}

#[test]
fn a_file_that_has_its_name_back_is_read_on() {
    let (mut log, hand) = (Log::new(), ManualClock::new());
    let mut old = log.writer();
    put(&mut old, "1\n");
    let mut driven = log.followed(&hand, None);
    driven.run_until_records(1);
    let old_path = log.rotate();
    driven.until_quiet();
    fs::rename(old_path, log.path()).unwrap();
    driven.until_quiet();
    put(&mut old, "2\n");
    driven.run_until_records(2);
    driven.until_quiet();
    assert_eq!(driven.values(), ["1", "2"]);
}

#[test]
fn late_lines_come_also_while_no_file_has_the_path() {
    for steps in 0..12 {
        let (mut log, hand) = (Log::new(), ManualClock::new());
        let mut old = log.writer();
        put(&mut old, "1\n");
        let mut driven = log.followed(&hand, None);
        driven.run_until_records(1);
        log.rotate();
        for _ in 0..steps {
            let _ = driven.step().unwrap();
        }
        fs::remove_file(log.path()).unwrap();
        driven.until_quiet();
        put(&mut old, "2\n");
        driven.run_until_records(2);
        File::create(log.path()).unwrap();
        put(&mut log.writer(), "new\n");
        driven.run_until_records(3);
        driven.until_quiet();
        assert_eq!(driven.values(), ["1", "2", "new"]);
    }
}

#[test]
fn late_rows_are_read_under_the_header_of_their_own_file() {
    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Row {
        a: u32,
        b: u32,
    }
    let mut log = Log::new();
    let mut old = log.writer();
    put(&mut old, "a,b\n1,2\n");
    let mut driven: Driven<Row> = Driven::start(crate::files::csv(log.path()).follow());
    driven.run_until_records(1);
    log.rotate();
    let mut new = log.writer();
    put(&mut new, "b,a\n2,1\n");
    for count in [2, 4, 6] {
        driven.run_until_records(count);
        driven.until_quiet();
        put(&mut old, "1,2\n");
        driven.run_until_records(count + 1);
        put(&mut new, "2,1\n");
    }
    driven.run_until_records(8);
    assert!(
        driven
            .values()
            .into_iter()
            .all(|row| *row == Row { a: 1, b: 2 })
    );
    assert!(driven.letters().is_empty());
}
