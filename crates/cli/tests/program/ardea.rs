//! Starts the binary and waits for it with a time limit.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::settings::without_settings;
use crate::stripped::stripped;

/// The time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the program without debug information: it is packed when submitted, and loaded in every
/// test.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| stripped(Path::new(env!("CARGO_BIN_EXE_ardea")), "ardea"))
}

/// Returns a command of the program with these arguments, in an environment without settings.
pub fn ardea(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    without_settings(&mut command);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The result of a run.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs the program to its end.
pub fn run(args: &[&str]) -> Finished {
    finish(ardea(args).spawn().unwrap())
}

/// Like [`run`], and fails the test unless the program succeeds.
pub fn succeed(args: &[&str]) -> String {
    let finished = run(args);
    assert_eq!(finished.code, Some(0), "{args:?}: {finished:?}");
    finished.out
}

/// Waits for the end, reading all output meanwhile.
pub fn finish(mut child: Child) -> Finished {
    let out = child
        .stdout
        .take()
        .map(|out| thread::spawn(|| text_of(out)));
    let err = child
        .stderr
        .take()
        .map(|err| thread::spawn(|| text_of(err)));
    let code = exit_code(&mut child);
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader.map_or(String::new(), |reader| reader.join().unwrap())
    };
    Finished {
        code,
        out: text(out),
        err: text(err),
    }
}

/// Waits for the end without reading any output.
pub fn exit_code(child: &mut Child) -> Option<i32> {
    let mut code = None;
    let deadline = Instant::now() + PATIENCE;
    while code.is_none() && Instant::now() < deadline {
        code = child.try_wait().unwrap();
        thread::park_timeout(Duration::from_millis(2));
    }
    if code.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("the program did not end");
    }
    code.and_then(|status| status.code())
}

/// Sends a signal to the child alone.
pub fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).unwrap();
}

/// Polls `condition` until it holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// Creates a file of NEXMark events.
pub fn events(folder: &Path, count: u64) -> String {
    let path = folder.join("events.jsonl").display().to_string();
    succeed(&[
        "nexmark",
        "generate",
        "--events",
        &count.to_string(),
        "-o",
        &path,
    ]);
    path
}

fn text_of(mut stream: impl Read) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Reads one line and closes the pipe, as `head -1` does.
pub fn head_1(args: &[&str]) {
    let mut child = ardea(args).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.ends_with('\n'));
    let finished = finish(child);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(finished.err, "", "nothing went wrong");
}
