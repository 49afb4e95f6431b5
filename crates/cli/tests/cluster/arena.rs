//! A cluster in a temporary folder. The folder and all processes are removed when the test ends, in
//! any way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::processes::{self, Process, Role};
use crate::settings::without_settings;
use crate::stripped::stripped;

/// The time limit of a condition.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An endless word count in two containers, with acks.
pub const WORD_COUNT: &str = "
name: word-count
config: { reliability: at-least-once }
spouts:
  - { name: words, component: words, parallelism: 2, settings: { rate: 500 } }
bolts:
  - { name: counts, component: count, parallelism: 2, inputs: [{ from: words, grouping: fields, fields: [word] }] }
  - { name: out, component: print, inputs: [{ from: counts, grouping: global }] }
";

/// A cluster in a temporary folder.
pub struct Arena {
    folder: TempDir,
    /// Additional environment variables of its processes.
    variables: Vec<(&'static str, String)>,
}

impl Arena {
    /// Creates a cluster without processes.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ardea-cluster-")
            .tempdir()
            .unwrap();
        let arena = Arena {
            folder,
            variables: Vec::new(),
        };
        arena.write("ardea.toml", "[cluster]\nport = 0\n");
        arena.write("word-count.yaml", WORD_COUNT);
        arena
    }

    /// Adds an environment variable for its processes.
    pub fn with_variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_string()));
        self
    }

    /// Creates a cluster with `hosts` general hosts.
    pub fn with_hosts(hosts: usize) -> Self {
        let arena = Arena::new();
        arena.succeed(&format!("cluster start --workers {hosts}"));
        arena
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the folder of the cluster.
    pub fn cluster(&self) -> PathBuf {
        self.path().join("state/ardea/clusters/local")
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    /// Returns a command of a program in this folder, with these arguments.
    fn command(&self, program: &Path, line: &str) -> Command {
        let mut command = Command::new(program);
        without_settings(&mut command);
        command
            .args(line.split_whitespace())
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("TMPDIR", self.path())
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env_remove("XDG_CONFIG_HOME")
            .envs(self.variables.clone())
            .stdin(Stdio::null());
        command
    }

    /// Starts a command of `ardea` without waiting for it.
    pub fn begin(&self, line: &str) -> Child {
        let mut command = self.command(ardea(), line);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Like [`begin`](Self::begin), with readable output.
    pub fn begin_with_output(&self, line: &str) -> Child {
        let mut command = self.command(ardea(), line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    pub fn run(&self, line: &str) -> Output {
        self.command(ardea(), line).output().unwrap()
    }

    /// Runs a command that has to succeed; returns its output.
    pub fn succeed(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(
            output.status.success(),
            "{line}: {output:?}\n{}",
            self.told()
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.succeed(&format!("{line} --json"))).unwrap()
    }

    /// Runs a command that has to fail; returns its error output.
    pub fn fail(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(!output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Submits the job `numbers`.
    pub fn submit_numbers(&self, options: &str, arguments: &str) {
        let output = self.try_numbers(options, arguments);
        assert!(
            output.status.success(),
            "{arguments}: {output:?}\n{}",
            self.told()
        );
    }

    /// Like [`submit_numbers`](Self::submit_numbers), without checking the result.
    pub fn try_numbers(&self, options: &str, arguments: &str) -> Output {
        let line = format!("submit {options} -- {arguments}");
        self.command(own(), &line).output().unwrap()
    }

    /// Upgrades the job `tally` to this program, without checking the result.
    pub fn try_upgrade(&self, options: &str, arguments: &str) -> Output {
        let line = format!("upgrade --name tally {options} -- {arguments}");
        self.command(own(), &line).output().unwrap()
    }

    /// Returns the path of this program, which is also the program of the test jobs.
    pub fn program(&self) -> String {
        own().display().to_string()
    }

    /// Returns the description of a job; `None` if there is no job, or no host answers at the
    /// moment.
    pub fn look(&self, job: &str) -> Option<Value> {
        let output = self.run(&format!("describe {job} --json"));
        let is_told = output.status.success();
        is_told.then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub fn phase(&self, job: &str) -> Option<String> {
        Some(self.look(job)?["phase"].as_str()?.to_string())
    }

    /// Returns the latest value of a metric, summed over all instances of a vertex.
    pub fn metric(&self, job: &str, vertex: &str, name: &str) -> f64 {
        let line = format!("metrics {job} --vertex {vertex} --name {name} --json");
        let output = self.run(&line);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let samples = told.as_array().cloned().unwrap_or_default();
        samples.iter().filter_map(|it| it["value"].as_f64()).sum()
    }

    /// Returns the latest values of a metric of a job, each with its labels.
    pub fn samples(&self, job: &str, name: &str) -> Vec<(Value, f64)> {
        let told = self.json(&format!("metrics {job} --name {name}"));
        let samples = told.as_array().unwrap().iter();
        samples
            .filter_map(|it| Some((it["labels"].clone(), it["value"].as_f64()?)))
            .collect()
    }

    pub fn processes(&self) -> Vec<Process> {
        processes::all_of(&self.path().display().to_string())
    }

    /// Returns the workers of a job: container and process.
    pub fn workers(&self, job: &str) -> Vec<(u64, i32)> {
        let all = self.processes().into_iter();
        let of_job = all.filter_map(|process| match process.role {
            Role::Worker(of, container) if of == job => Some((container, process.pid)),
            _ => None,
        });
        let mut workers: Vec<(u64, i32)> = of_job.collect();
        workers.sort_unstable();
        workers
    }

    /// Returns the hosts: name and process.
    pub fn hosts(&self) -> Vec<(String, i32)> {
        let all = self.processes().into_iter();
        let hosts = all.filter_map(|process| match process.role {
            Role::Host(name) => Some((name, process.pid)),
            _ => None,
        });
        hosts.collect()
    }

    /// Returns the process of a host.
    pub fn host(&self, name: &str) -> i32 {
        let hosts = self.hosts();
        let found = hosts.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("no {name} in {hosts:?}")).1
    }

    /// Waits until a condition holds.
    pub fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        self.until_none(|| (!is_so()).then(|| format!("not {what}")));
    }

    /// Waits until `complaint` returns `None`.
    pub fn until_none(&self, mut complaint: impl FnMut() -> Option<String>) {
        let deadline = Instant::now() + TIMEOUT;
        while let Some(complaint) = complaint() {
            assert!(Instant::now() < deadline, "{complaint}\n{}", self.told());
            thread::park_timeout(POLL_INTERVAL);
        }
    }

    pub fn until_phase(&self, job: &str, phase: &str) {
        self.until(&format!("{phase}: {job}"), || {
            self.phase(job).as_deref() == Some(phase)
        });
    }

    /// Returns details for a failure message.
    fn told(&self) -> String {
        let mut told = format!("{:?}\n", self.processes());
        for job in ["word-count", "numbers", "tally"] {
            let described = self.run(&format!("describe {job} -v"));
            told += &String::from_utf8_lossy(&described.stdout);
            let top = self.run(&format!("top {job} --once"));
            told += &String::from_utf8_lossy(&top.stdout);
        }
        let folders = ["logs", "local", "slurm/jobs"];
        let mut folders = folders.map(|name| self.cluster().join(name)).to_vec();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let name = entry.file_name().to_string_lossy().into_owned();
                if path.is_dir() && name != "work" {
                    folders.push(path);
                } else if name.ends_with(".log") && name != "stdout.log" {
                    let text = fs::read(&path).unwrap_or_default();
                    let tail = &text[text.len().saturating_sub(3000)..];
                    let tail = String::from_utf8_lossy(tail);
                    told += &format!("--- {}\n{tail}\n", path.display());
                }
            }
        }
        told
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Hosts first, since they restart killed workers.
        for round in 0..100 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            let is_host = |it: &&Process| matches!(it.role, Role::Host(_) | Role::Command);
            let hosts: Vec<&Process> = left.iter().filter(is_host).collect();
            let victims = match hosts.is_empty() || round > 10 {
                true => left.iter().collect(),
                false => hosts,
            };
            victims.iter().for_each(|it| processes::kill(it.pid));
            thread::park_timeout(POLL_INTERVAL);
        }
    }
}

/// Returns the program `ardea` without debug information, since it is packed and unpacked many
/// times.
fn ardea() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| stripped(Path::new(env!("CARGO_BIN_EXE_ardea")), "ardea"))
}

/// Returns this program without debug information.
fn own() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| stripped(&std::env::current_exe().unwrap(), "numbers"))
}
