//! Named pipes instead of files: data read from one is processed, and failed writes to one are
//! errors.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Child;

use rustix::process::Signal;

use crate::ardea::{Finished, ardea, events, eventually, finish, signal};

/// Creates a pipe, and opens both its ends, so that the program never waits for the other end.
fn open_pipe(folder: &Path) -> (String, File) {
    let name = closed_pipe(folder);
    let both = OpenOptions::new().read(true).write(true).open(&name);
    (name, both.unwrap())
}

fn closed_pipe(folder: &Path) -> String {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let path = folder.join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path.display().to_string()
}

/// Starts a command with `--progress`, and waits until its job runs.
fn running(args: &[&str]) -> Child {
    let mut child = ardea(&[args, &["--progress"]].concat()).spawn().unwrap();
    let said = child.stderr.as_mut().unwrap();
    let mut first = [0];
    said.read_exact(&mut first).unwrap();
    child
}

/// Runs the word count over a pipe that stays open, and drains it once it has read `text`.
fn drained_count(text: &[u8]) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    let (name, mut pipe) = open_pipe(folder.path());
    let child = running(&["run", "wordcount", &name]);
    pipe.write_all(text).unwrap();
    eventually("it has read the text", || {
        rustix::io::ioctl_fionread(&pipe).unwrap() == 0
    });
    signal(&child, Signal::INT);
    finish(child)
}

#[test]
fn half_a_line_that_was_read_comes_out_of_a_job_that_drains() {
    let finished = drained_count(b"aa bb\ncc dd");
    assert_eq!(finished.code, Some(4), "{finished:?}");
    for word in ["aa", "bb", "cc", "dd"] {
        assert!(finished.out.contains(word), "{word}: {finished:?}");
    }
}

#[test]
fn a_drained_job_is_4_also_if_all_that_it_read_was_bad() {
    let finished = drained_count(b"\xff\n");
    assert_eq!(finished.code, Some(4), "{finished:?}");
    assert!(finished.err.contains("not UTF-8"), "{finished:?}");
}

#[test]
fn a_reader_that_goes_away_from_a_pipe_is_3() {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 50_000);
    let name = closed_pipe(folder.path());
    for command in [
        &["nexmark", "generate", "--events", "50_000"][..],
        &["nexmark", "run", "--query", "q0", "-i", &input],
    ] {
        let both = OpenOptions::new().read(true).write(true).open(&name);
        let reader = both.unwrap();
        let child = ardea(&[command, &["-o", &name]].concat()).spawn().unwrap();
        eventually("it writes", || {
            rustix::io::ioctl_fionread(&reader).unwrap() > 0
        });
        drop(reader);
        let finished = finish(child);
        assert_eq!(finished.code, Some(3), "{command:?}: {finished:?}");
        assert!(finished.err.contains("went away"), "{finished:?}");
    }
}

#[test]
fn standard_output_by_another_name_is_standard_output() {
    let args = [
        "nexmark",
        "generate",
        "--events",
        "50_000",
        "-o",
        "/dev/stdout",
    ];
    let mut child = ardea(&args).spawn().unwrap();
    let mut reader = BufReader::with_capacity(256, child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let finished = finish(child);
    assert_eq!((finished.code, finished.err.as_str()), (Some(0), ""));
}

#[test]
fn a_job_that_drains_without_a_reader_for_its_results_is_3() {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 1_000);
    let name = closed_pipe(folder.path());
    let child = running(&["nexmark", "run", "--query", "q0", "-i", &input, "-o", &name]);
    signal(&child, Signal::INT);
    let finished = finish(child);
    assert_eq!(finished.code, Some(3), "{finished:?}");
    assert!(finished.err.contains("has no reader"), "{finished:?}");
}
