//! Starts the program as the job, and waits for it with a time limit.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::IS_JOB;

/// The time limit of a condition.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The time limit of a run that ends by itself.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// Starts the program with these arguments, in a folder, in an environment without settings.
pub fn start(folder: &Path, words: &[&str]) -> Child {
    let own = std::env::current_exe().expect("there is /proc");
    let mut command = Command::new(own);
    for (name, _) in std::env::vars_os() {
        let is_ours = name.to_string_lossy().starts_with("ARDEA_");
        if is_ours || name == "XDG_CONFIG_HOME" || name == "XDG_STATE_HOME" {
            command.env_remove(name);
        }
    }
    command
        .args(words)
        .current_dir(folder)
        .env("HOME", folder)
        .env(IS_JOB, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be started")
}

/// Runs the program to its end. The words are separated by spaces.
pub fn run(folder: &Path, line: &str) -> Output {
    let words: Vec<&str> = line.split_whitespace().collect();
    output_of(start(folder, &words), line)
}

/// Returns the output of a child at its end. `what` names the child in a failure.
///
/// # Panics
///
/// With the child's output, if the child does not end within [`RUN_TIMEOUT`].
pub fn output_of(child: Child, what: &str) -> Output {
    let process = Pid::from_child(&child);
    let (ended, output) = mpsc::channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()));
    if let Ok(output) = output.recv_timeout(RUN_TIMEOUT) {
        return output.expect("it is ours");
    }
    let _ = kill_process(process, Signal::KILL);
    panic!("{what:?} does not end: {:?}", output.recv());
}

/// Waits for the end of a child whose output is short.
pub fn finish(mut child: Child) -> Output {
    until("the program ends", || {
        child.try_wait().expect("it is ours").is_some()
    });
    child.wait_with_output().expect("it has ended")
}

pub fn terminate(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).expect("it runs");
}

/// Polls `condition` until it holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses the only object on standard output.
pub fn summary(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
