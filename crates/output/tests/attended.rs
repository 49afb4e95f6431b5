//! Tests of a process that keeps its own output files within their bounds. This program is also
//! that process.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ardea_output::{
    OUTPUT_VARIABLE, OutputBounds, OutputFiles, OutputStart, ReadFrom, start_rotation,
};

/// The environment variable that makes this program print.
const PRINTS: &str = "ARDEA_TEST_PRINTS";

/// The timeout of the conditions in the tests.
const TIMEOUT: Duration = Duration::from_secs(60);

const BOUNDS: OutputBounds = OutputBounds {
    file_bytes: 64 << 10,
    files: 4,
};

fn main() {
    if let Ok(what) = std::env::var(PRINTS) {
        return print(&what);
    }
    for (name, test) in [
        (
            "what_a_process_prints_is_bounded_and_nothing_in_between_is_missing",
            a_process_is_bounded as fn(),
        ),
        (
            "standard_output_and_standard_error_may_go_to_one_file",
            one_file_for_both,
        ),
        (
            "a_process_goes_on_when_the_folder_of_its_output_is_gone",
            a_folder_that_is_gone,
        ),
    ] {
        test();
        eprintln!("test {name} ... ok");
    }
}

/// Prints the requested number of numbered lines, then each line of standard input.
fn print(what: &str) {
    let (role, count) = what.split_once(' ').expect("a role and a number");
    let count: u64 = count.parse().expect("a number");
    start_rotation().expect("a thread");
    for number in 0..count {
        println!("line {number:08}");
        if role == "both" {
            eprintln!("error {number:08}");
        }
    }
    for line in std::io::stdin().lock().lines() {
        println!("{}", line.expect("read"));
    }
}

fn open(folder: &Path, name: &str) -> File {
    let output = OutputFiles::new(folder, name);
    output.open(&BOUNDS).expect("opened")
}

fn start(folder: &Path, what: &str, stderr: &str) -> Child {
    let path = |name: &str| -> PathBuf { folder.join(name) };
    let start = OutputStart {
        stdout: path("out"),
        stderr: path(stderr),
        bounds: BOUNDS,
    };
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command
        .env(PRINTS, what)
        .env(OUTPUT_VARIABLE, start.to_variable().expect("text"))
        .stdin(Stdio::piped())
        .stdout(open(folder, "out"))
        .stderr(open(folder, stderr));
    command.spawn().expect("started")
}

/// Returns all stored lines, with the position of the first.
fn kept(folder: &Path) -> (u64, Vec<String>) {
    let output = OutputFiles::new(folder, "out");
    let piece = output.read(ReadFrom::From(0), u64::MAX).expect("read");
    let text = String::from_utf8(piece.bytes).expect("text");
    (piece.at, text.lines().map(String::from).collect())
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries
        .filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()))
        .sum()
}

fn a_process_is_bounded() {
    const LINES: u64 = 1_000_000;
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = start(folder.path(), &format!("alone {LINES}"), "err");
    let error = BufReader::new(File::open(folder.path().join("err")).expect("opened"));
    let last = format!("line {:08}", LINES - 1);
    // Positions are exact once writes in progress at the last rotation have completed.
    wait_until("positions are wrong", || {
        let (at, lines) = kept(folder.path());
        lines.last() == Some(&last) && at + 14 * lines.len() as u64 == 14 * LINES
    });
    drop(child.stdin.take());
    assert!(child.wait().expect("ended").success());
    let (at, lines) = kept(folder.path());
    let first = at / 14;
    assert_eq!(at % 14, 0, "a line is torn");
    for (line, number) in lines.iter().zip(first..) {
        assert_eq!(line, &format!("line {number:08}"));
    }
    assert_eq!(first + lines.len() as u64, LINES);
    assert!(first > 0, "all is kept");
    let said: Vec<String> = error.lines().map_while(Result::ok).collect();
    let told = said.iter().filter(|line| line.contains("cluster.log_size"));
    assert_eq!(told.count(), 1, "{said:?}");
}

fn one_file_for_both() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = start(folder.path(), "both 200000", "out");
    drop(child.stdin.take());
    assert!(child.wait().expect("ended").success());
    let (at, lines) = kept(folder.path());
    assert!(at > 0, "all is kept");
    for word in ["line 00199999", "error 00199999"] {
        assert!(lines.iter().any(|line| line == word), "{word} is missing");
    }
    assert!(!folder.path().join("err").exists());
}

fn a_folder_that_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = start(folder.path(), "alone 100", "err");
    wait_until("it prints", || bytes(folder.path()) > 1000);
    let mut input = child.stdin.take().expect("an input");
    drop(folder);
    let line = "x".repeat(100_000);
    for _ in 0..10 {
        writeln!(input, "{line}").expect("told");
    }
    drop(input);
    assert!(child.wait().expect("ended").success());
}
