//! A folder with the job's input, the job's program, and the processes it started; all are removed
//! at the end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A time limit that is long enough for any machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until a condition holds; fails with the text of `told` otherwise.
pub fn until(what: &str, told: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come: {}", told());
        thread::park_timeout(Duration::from_millis(20));
    }
}

/// A temporary folder.
pub struct Arena(TempDir);

impl Arena {
    /// Creates the folder, with orders and visits in six files each, in the order of their times,
    /// and an invalid line.
    pub fn new() -> Self {
        let arena = Arena(
            tempfile::Builder::new()
                .prefix("ardea-on-")
                .tempdir()
                .unwrap(),
        );
        for (name, step) in [("orders", 37), ("visits", 91)] {
            fs::create_dir(arena.path().join(name)).unwrap();
            for file in 0..6 {
                let lines = (file * 500..(file + 1) * 500).map(|number: i64| {
                    format!("{},{},{}\n", number * step % 23, number * step, number)
                });
                let path = arena.path().join(name).join(format!("{file}.csv"));
                let mut text: String = lines.collect();
                if (name, file) == ("orders", 3) {
                    text += "broken\n";
                }
                fs::write(path, text).unwrap();
            }
        }
        fs::write(arena.path().join("news"), "").unwrap();
        arena
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the folder of the cluster.
    pub fn cluster(&self) -> PathBuf {
        self.path().join("cluster")
    }

    /// Runs this program as the job with these arguments; `{}` stands for the folder.
    pub fn run(&self, line: &str) -> Output {
        let folder = self.path().display().to_string();
        let mut command = Command::new(std::env::current_exe().unwrap());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("ARDEA_") || name.starts_with("XDG_") {
                command.env_remove(name);
            }
        }
        let words = line
            .split_whitespace()
            .map(|word| word.replace("{}", &folder));
        command
            .args(words)
            .current_dir(self.path())
            .env("HOME", self.path());
        command.output().unwrap()
    }

    pub fn succeed(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(
            output.status.success(),
            "{line}: {output:?}\n{}",
            self.told()
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the lines of a result's complete files, sorted; none before all of them are
    /// complete.
    pub fn result(&self, out: &str, name: &str, files: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let whole = (0..files).map(|at| self.path().join(out).join(format!("{name}-{at}.txt")));
        for path in whole {
            let Ok(text) = fs::read_to_string(path) else {
                return Vec::new();
            };
            lines.extend(text.lines().map(String::from));
        }
        lines.sort_unstable();
        lines
    }

    /// Returns the processes that run in this folder, or were started for it.
    pub fn processes(&self) -> BTreeSet<u32> {
        let own = std::process::id();
        let folder = self.path().display().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            // A process that has just ended has no environment.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            *pid != own && String::from_utf8_lossy(&environment).contains(&folder)
        })
        .collect()
    }

    /// Returns the output of hosts and containers.
    pub fn told(&self) -> String {
        let mut told = String::new();
        let mut rest = vec![self.cluster()];
        while let Some(path) = rest.pop() {
            if path.is_dir() {
                let entries = fs::read_dir(path).into_iter().flatten().flatten();
                rest.extend(entries.map(|entry| entry.path()));
            } else if path.extension().is_some_and(|end| end == "log") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                told += &format!("{}:\n{text}\n", path.display());
            }
        }
        told
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for pid in self.processes() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}
