//! The cluster under test: its hosts as processes, its metadata store, the job on it, and requests
//! to it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result, Token};
use ardea_metastore::conformance::{Server, Skipped};
use ardea_rest::{Client, JobDescription, MetricsQuery};
use rustix::process::{Pid, Signal, getpgid, kill_process};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::job::JOB;
use crate::network::HostNetwork;
use crate::poll::until;
use crate::services::CREDENTIALS;
use crate::settings::without_settings;

/// The secret of the cluster.
const TOKEN: &str = "5e0e3a1f0c2b4d6f8a9b7c6d5e4f3a2b";

/// The time limit of a host's response, on a busy machine.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// The delay before a host that has ended by itself is restarted.
const STARTS_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The settings of the job and of its guarantee.
const SETTINGS: [&str; 7] = [
    "cluster.patience=3m",
    "cluster.scheduler=hosts",
    "cluster.packing=round-robin",
    "job.containers=3",
    "guarantee=exactly-once",
    "checkpoints.every=500ms",
    // Faults occur more often than in any real cluster.
    "recovery.attempts=50",
];

/// The parameters of the job's program.
pub struct Program {
    pub arguments: Vec<String>,
    /// Its execution mode.
    pub mode: &'static str,
    /// The location of its checkpoints: a folder, or a part of a bucket.
    pub kept: String,
}

/// The cluster. Its processes end when this value is dropped.
pub struct Cluster {
    /// The processes of hosts, and their start times.
    hosts: BTreeMap<usize, (Child, Instant)>,
    state: String,
    /// The server of the metadata store, if that has one.
    state_server: Option<Server>,
    runtime: Runtime,
    /// The host that answered last.
    answers: Cell<usize>,
    pub land: HostNetwork,
    folder: PathBuf,
}

impl Cluster {
    /// Starts the cluster, and waits until all hosts are registered.
    pub fn start(land: HostNetwork, folder: &Path) -> std::result::Result<Self, Skipped> {
        let (state, state_server) = match &land {
            HostNetwork::Here(_) => (format!("file:{}", folder.join("state").display()), None),
            HostNetwork::Spaces(_) => {
                let own = land.own_address().parse().expect("an address");
                let server = Server::start_at("zookeeper.sh", own)?;
                let state = format!("zookeeper://{}/ardea", server.address());
                (state, Some(server))
            }
        };
        let token = folder.join("token");
        fs::write(&token, TOKEN).expect("a file");
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let mut cluster = Cluster {
            hosts: BTreeMap::new(),
            state,
            state_server,
            runtime: runtime.expect("threads"),
            answers: Cell::new(1),
            land,
            folder: folder.to_path_buf(),
        };
        cluster.make_programs();
        cluster.start_missing();
        cluster.all_are_registered();
        Ok(cluster)
    }

    /// Copies the programs without debug information, since each host unpacks them.
    fn make_programs(&self) {
        let own = std::env::current_exe().expect("this program");
        let ardea = PathBuf::from(env!("CARGO_BIN_EXE_ardea"));
        for (from, name) in [(own, "torture-job"), (ardea, "ardea")] {
            let to = self.folder.join(name);
            let strip = Command::new("strip").arg("-o").arg(&to).arg(&from).status();
            if !strip.is_ok_and(|status| status.success()) {
                fs::copy(&from, &to).expect("there is room");
            }
        }
    }

    /// Returns the settings of a process of the cluster.
    fn settings(&self, directory: &str, (address, port): (String, u16)) -> Vec<String> {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let settings = [
            "cluster.name=torture".to_string(),
            format!("cluster.state={}", self.state),
            format!("cluster.host={address}"),
            format!("cluster.port={port}"),
            format!("cluster.packages=file://{}", at("packages")),
            format!("cluster.token_file={}", at("token")),
            format!("cluster.directory={}", at(directory)),
        ];
        settings
            .into_iter()
            .flat_map(|setting| ["--set".to_string(), setting])
            .collect()
    }

    fn start_host(&mut self, host: usize) {
        let name = format!("h{host}");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{name}.log")))
            .expect("a log");
        let mut command = self.land.on(host, &self.folder.join("ardea"));
        without_settings(&mut command);
        let child = command
            .args(["cluster", "start", "--foreground", "--name", &name])
            .args(self.settings(&name, self.land.address(host)))
            .env("HOME", &self.folder)
            .envs(CREDENTIALS)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("the program is there");
        self.hosts.insert(host, (child, Instant::now()));
    }

    /// Kills the process of a host, if it runs; its containers keep running.
    pub fn kill_host(&mut self, host: usize) {
        if let Some((mut child, _)) = self.hosts.remove(&host) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills all processes on a host.
    pub fn kill_machine(&mut self, host: usize) {
        self.kill_host(host);
        let directory = self.folder.join(format!("h{host}"));
        for pid in self.land.processes(host, &directory) {
            send(pid, Signal::KILL);
        }
    }

    /// Starts the hosts whose processes are gone, as a process supervisor would, with a delay
    /// between restarts.
    pub fn start_missing(&mut self) {
        for host in 1..=self.land.hosts() {
            let is_due = |(child, since): &mut (Child, Instant)| {
                let has_ended = child.try_wait().expect("it is ours").is_some();
                has_ended && since.elapsed() > STARTS_AGAIN_AFTER
            };
            if self.hosts.get_mut(&host).is_none_or(is_due) {
                self.start_host(host);
            }
        }
    }

    pub fn all_are_registered(&mut self) {
        until("all hosts are registered", 90, || {
            self.start_missing();
            let hosts = self.ask(|client| async move { client.hosts().await })?;
            (hosts.len() == self.land.hosts()).then_some(())
        });
    }

    /// Returns the process of a host.
    pub fn host_process(&self, host: usize) -> Option<i32> {
        let (child, _) = self.hosts.get(&host)?;
        i32::try_from(child.id()).ok()
    }

    /// Kills the server of the metadata store, if that has one.
    pub fn kill_state(&self) {
        if let Some(server) = &self.state_server {
            server.kill();
        }
    }

    pub fn restart_state(&self) {
        if let Some(server) = &self.state_server {
            server.restart();
        }
    }

    /// Submits the job, and waits until it runs.
    pub fn submit(&self, program: &Program) {
        let output = self.of_program("submit", program).output();
        let output = output.expect("the program is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "submit: {said}");
    }

    /// Upgrades the job to the same program; returns true if a host has accepted the upgrade, which
    /// then goes on by itself.
    pub fn upgrade(&self, program: &Program) -> bool {
        let mut command = self.of_program("upgrade", program);
        let status = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("the program is there");
        status.success()
    }

    /// Returns a command of the job's own program.
    fn of_program(&self, verb: &str, program: &Program) -> Command {
        let own = (self.land.own_address(), 0);
        let mut command = Command::new(self.folder.join("torture-job"));
        without_settings(&mut command);
        command.args([verb, "--name", JOB]);
        if verb == "upgrade" {
            command.arg("--detach");
        }
        command
            .arg("--set")
            .arg(format!("checkpoints.folder={}", program.kept))
            .arg("--set")
            .arg(format!("mode={}", program.mode))
            .args(SETTINGS.iter().flat_map(|setting| ["--set", setting]))
            .args(self.settings("submitter", own))
            .arg("--")
            .args(&program.arguments)
            .env("HOME", &self.folder)
            .envs(CREDENTIALS)
            .stdin(Stdio::null());
        command
    }

    /// Returns the response of the host that answered last, or else of the first that does.
    pub fn ask<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn(Client) -> F) -> Option<T> {
        let (last, hosts) = (self.answers.get(), self.land.hosts());
        (0..hosts).find_map(|step| {
            let host = (last + step - 1) % hosts + 1;
            let answer = self.ask_host(host, &ask).ok()?;
            self.answers.set(host);
            Some(answer)
        })
    }

    fn ask_host<T, F: Future<Output = Result<T>>>(
        &self,
        host: usize,
        ask: impl Fn(Client) -> F,
    ) -> Result<T> {
        let (address, port) = self.land.address(host);
        let base = format!("http://{address}:{port}");
        let client = Client::new(&base, Some(Token::new(TOKEN)))?;
        let client = client.timeout(ANSWERS_WITHIN).retry_timeout(ANSWERS_WITHIN);
        self.runtime.block_on(ask(client))
    }

    /// Returns the description of the job by its leader.
    pub fn describe(&self) -> Option<JobDescription> {
        self.ask(|client| async move {
            let described = client.describe(JOB).await?;
            match described.master {
                Some(_) => Ok(described),
                None => Err(Error::new(ErrorCode::Superseded, "unled")),
            }
        })
    }

    /// Returns the host that leads the job, if any host answers.
    pub fn leader(&self) -> Option<usize> {
        let master = self.describe()?.master?;
        let digits = master.host.rsplit(['h', '.']).next()?;
        digits.parse().ok()
    }

    /// Returns the workers of the job's containers: container and process.
    pub fn workers(&self) -> Vec<(u64, i32)> {
        let mut workers: Vec<(u64, i32)> = self
            .processes()
            .into_iter()
            .filter_map(|pid| Some((container_of(pid)?, pid)))
            .collect();
        workers.sort_unstable();
        workers
    }

    /// Returns all processes of the cluster.
    pub fn processes(&self) -> Vec<i32> {
        let folder = self.folder.display().to_string().into_bytes();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut parts = environment.windows(folder.len());
            *pid != std::process::id() as i32 && parts.any(|part| part == folder)
        };
        pids.filter(is_ours).collect()
    }

    /// Prints details after a failure.
    pub fn tell_all(&self) {
        if let Some(described) = self.describe() {
            eprintln!("{:?}, led by {:?}", described.summary, described.master);
            eprintln!("{:?}", described.epochs);
            let containers = described.containers.iter();
            containers.for_each(|container| eprintln!("{container:?}"));
            let problems = described.problems.iter();
            problems.for_each(|problem| eprintln!("{problem:?}"));
            let notes = described.notes.iter().rev().take(60).rev();
            notes.for_each(|note| eprintln!("{} {}", note.at_ms, note.text));
        }
        eprintln!("{:?}", self.workers());
        let top = self.ask(|client| async move { client.top(JOB).await });
        for vertex in top.iter().flat_map(|top| &top.vertices) {
            eprintln!("{vertex:?}");
        }
        let query = MetricsQuery::default();
        let samples = self.ask(|client| {
            let query = query.clone();
            async move { client.metrics(JOB, &query).await }
        });
        samples
            .iter()
            .flatten()
            .for_each(|sample| eprintln!("{sample:?}"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let hosts: Vec<usize> = self.hosts.keys().copied().collect();
        hosts.into_iter().for_each(|host| self.kill_host(host));
        for _ in 0..200 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            left.into_iter().for_each(|pid| send(pid, Signal::KILL));
            thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// Returns the container of which a process is the worker, if it is one.
fn container_of(pid: i32) -> Option<u64> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let start = variables.find_map(|variable| variable.strip_prefix(b"ARDEA_WORKER="))?;
    let start: Value = serde_json::from_slice(start).ok()?;
    // Child processes of a worker have the same environment, but no process group of their own.
    let own = Pid::from_raw(pid)?;
    let is_worker = getpgid(Some(own)).is_ok_and(|group| group == own);
    let container = start["worker"]["container"].as_u64()?;
    is_worker.then_some(container)
}

/// Sends a signal to a process, if it still exists.
pub fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}
