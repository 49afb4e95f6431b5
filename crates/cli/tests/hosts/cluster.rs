//! A cluster of four hosts under test: the server of its metadata store, the hosts' processes, and
//! requests to it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ardea_core::{Result, Token};
use ardea_metastore::conformance::{Server, Skipped};
use ardea_rest::{Client, ContainerState, JobDescription, Phase};
use ardea_scheduler::artifacts::{DirectoryStore, PackageServer, StoreOptions};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::ground::{HOSTS, HostNamespaces};
use crate::numbers::Ledger;
use crate::poll::until;
use crate::settings::without_settings;

/// The job that runs from the beginning.
pub const JOB: &str = "numbers";

/// The secret of the cluster.
const TOKEN: &str = "5e0e3a1f0c2b4d6f8a9b7c6d5e4f3a2b";

/// The arguments of the job: every host has a part of it, and processes of instances.
const SHAPE: [&str; 5] = [
    "rate=500",
    "spouts=2",
    "bolts=4",
    "processes=true",
    "pending=5000",
];

/// The time limit of a host's response, on a busy machine.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// The kind of metadata store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    ZooKeeper,
    Etcd,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::ZooKeeper, Kind::Etcd];

    pub fn name(self) -> &'static str {
        match self {
            Kind::ZooKeeper => "zookeeper",
            Kind::Etcd => "etcd",
        }
    }
}

/// The cluster. Its processes end when this value is dropped.
pub struct Cluster {
    hosts: BTreeMap<usize, Child>,
    pub server: Server,
    /// Dropped before the namespaces in which it runs.
    _packages: Option<PackageServer>,
    runtime: Runtime,
    state: String,
    packages: String,
    /// The host that answered last.
    answers: Cell<usize>,
    /// Dropped last but one: its processes are killed before its folder is removed.
    pub ground: HostNamespaces,
    folder: TempDir,
}

impl Cluster {
    /// Starts the cluster, with the job running on all hosts.
    pub fn start(kind: Kind) -> std::result::Result<Self, Skipped> {
        let ground = HostNamespaces::new()?;
        let here = ground.here().parse().expect("an address");
        let server = Server::start_at(&format!("{}.sh", kind.name()), here)?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let token = folder.path().join("token");
        fs::write(&token, TOKEN).expect("a file");
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("threads");
        let store = folder.path().join("packages");
        // Both kinds of package store are tested, one with each metadata store.
        let served = (kind == Kind::Etcd).then(|| {
            let options = StoreOptions {
                token: Some(Token::new(TOKEN)),
                ..StoreOptions::default()
            };
            let store = DirectoryStore::new(&store, &options);
            let address = format!("{}:0", ground.here());
            let served = runtime.block_on(PackageServer::bind(&address, store, &options));
            served.expect("a free port")
        });
        let mut cluster = Cluster {
            packages: match &served {
                Some(server) => server.url(),
                None => format!("file://{}", store.display()),
            },
            _packages: served,
            hosts: BTreeMap::new(),
            answers: Cell::new(1),
            state: format!("{}://{}/ardea", kind.name(), server.address()),
            server,
            runtime,
            ground,
            folder,
        };
        cluster.make_program();
        cluster.all_hosts_are_there();
        cluster.submit(
            JOB,
            "numbers",
            &["cluster.scheduler=hosts", "cluster.packing=round-robin"],
            4,
        );
        cluster.runs(JOB);
        Ok(cluster)
    }

    /// Copies this program as the job's program, without debug information, since four hosts unpack
    /// it.
    fn make_program(&self) {
        let own = std::env::current_exe().expect("this program");
        let program = self.program();
        fs::copy(&own, &program).expect("there is room");
        // Unpacking takes longer where there is no `strip`.
        let _ = Command::new("strip")
            .arg("-S")
            .arg(&program)
            .stderr(Stdio::null())
            .status();
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("numbers-job")
    }

    /// Returns the settings of all processes of the cluster.
    fn settings(&self, directory: &str, host: &str) -> Vec<String> {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let settings = [
            "cluster.name=four".to_string(),
            format!("cluster.state={}", self.state),
            format!("cluster.host={host}"),
            format!("cluster.packages={}", self.packages),
            format!("cluster.token_file={}", at("token")),
            format!("cluster.directory={}", at(directory)),
        ];
        settings
            .into_iter()
            .flat_map(|setting| ["--set".to_string(), setting])
            .collect()
    }

    /// Starts the process of a host.
    pub fn start_host(&mut self, host: usize) {
        let name = format!("h{host}");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(host))
            .expect("a log");
        let mut command = self.ground.on(host);
        without_settings(&mut command);
        let child = command
            .arg(env!("CARGO_BIN_EXE_ardea"))
            .args(["cluster", "start", "--foreground", "--name", &name])
            .args(self.settings(&name, &self.ground.address(host)))
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("`ip` is there");
        self.hosts.insert(host, child);
    }

    fn log(&self, host: usize) -> PathBuf {
        self.folder.path().join(format!("h{host}.log"))
    }

    /// Kills the process of a host; its containers keep running.
    pub fn kill_host(&mut self, host: usize) {
        let mut child = self.hosts.remove(&host).expect("it was started");
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
    }

    /// Starts the hosts whose processes were killed, and waits until all are registered. Fails if
    /// one has ended by itself.
    pub fn all_hosts_are_there(&mut self) {
        for host in 1..=HOSTS {
            if !self.hosts.contains_key(&host) {
                self.start_host(host);
            }
        }
        until("all hosts are registered", 60, || {
            for (host, child) in &mut self.hosts {
                if let Some(ended) = child.try_wait().expect("it is ours") {
                    let log = self.folder.path().join(format!("h{host}.log"));
                    let log = fs::read_to_string(log).unwrap_or_default();
                    panic!("the process of h{host} has ended ({ended}): {log}");
                }
            }
            let hosts = self.ask(|client| async move { client.hosts().await })?;
            (hosts.len() == HOSTS).then_some(())
        });
    }

    /// Submits the program as the job `job`, with `settings` and `containers` containers; waits
    /// until it runs.
    pub fn submit(&self, job: &str, recorded: &str, settings: &[&str], containers: u32) {
        let ledger = self.folder.path().join(recorded);
        fs::create_dir_all(&ledger).expect("a folder");
        let mut command = Command::new(self.program());
        without_settings(&mut command);
        command
            .args([
                "submit",
                "--name",
                job,
                "--set",
                "cluster.patience=3m",
                "--set",
            ])
            .arg(format!("job.containers={containers}"))
            .args(self.settings("submitter", &self.ground.here()))
            .args(settings.iter().flat_map(|setting| ["--set", setting]))
            .arg("--")
            .arg(&ledger)
            .args(SHAPE)
            .env("HOME", self.folder.path());
        let output = command.output().expect("the program is there");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Returns the records of a job.
    pub fn ledger(&self, recorded: &str) -> Ledger {
        Ledger(self.folder.path().join(recorded))
    }

    /// Returns the response of the host that answered last, or else of the first that does.
    pub fn ask<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn(Client) -> F) -> Option<T> {
        let last = self.answers.get();
        (0..HOSTS).find_map(|step| {
            let host = (last + step - 1) % HOSTS + 1;
            let answer = self.ask_host(host, &ask).ok()?;
            self.answers.set(host);
            Some(answer)
        })
    }

    /// Returns the response of a host.
    fn ask_host<T, F: Future<Output = Result<T>>>(
        &self,
        host: usize,
        ask: impl Fn(Client) -> F,
    ) -> Result<T> {
        let base = format!("http://{}:7400", self.ground.address(host));
        let client = Client::new(&base, Some(Token::new(TOKEN)))?;
        let client = client.timeout(ANSWERS_WITHIN).retry_timeout(ANSWERS_WITHIN);
        self.runtime.block_on(ask(client))
    }

    /// Returns the description of a job.
    pub fn describe(&self, job: &str) -> Option<JobDescription> {
        let job = job.to_string();
        self.ask(|client| {
            let job = job.clone();
            async move {
                let described = client.describe(&job).await?;
                match described.master {
                    Some(_) => Ok(described),
                    None => Err(ardea_core::Error::new(
                        ardea_core::ErrorCode::Superseded,
                        "unled",
                    )),
                }
            }
        })
    }

    /// Waits until a job runs with all of its containers; returns its description.
    pub fn runs(&self, job: &str) -> JobDescription {
        until(&format!("{job} runs"), 90, || {
            let described = self.describe(job)?;
            let up = |state| state == ContainerState::Up;
            let all_up = described
                .containers
                .iter()
                .all(|container| up(container.state));
            (described.summary.phase == Phase::Running && all_up).then_some(described)
        })
    }

    /// Returns the host that leads a job.
    pub fn leader(&self, job: &str) -> usize {
        let described = until("somebody leads", 60, || self.describe(job));
        host_number(&described.master.expect("it was asked for").host)
    }

    /// Returns the workers of a job on all hosts: container to process. Fails if a container has
    /// two.
    pub fn workers(&self, job: &str) -> BTreeMap<u32, Worker> {
        let mut workers = BTreeMap::new();
        for worker in self.processes(job) {
            if let Some(other) = workers.insert(worker.container, worker) {
                panic!("two workers of one container: {worker:?} and {other:?}");
            }
        }
        workers
    }

    /// Returns the workers of a job on all hosts.
    pub fn processes(&self, job: &str) -> Vec<Worker> {
        self.processes_that(job, false)
    }

    /// Returns the processes of a job's instances that have their own.
    pub fn instances(&self, job: &str) -> Vec<Worker> {
        self.processes_that(job, true)
    }

    fn processes_that(&self, job: &str, are_instances: bool) -> Vec<Worker> {
        let mut found = Vec::new();
        for host in 1..=HOSTS {
            let pids = self.ground.processes(host).into_iter();
            let known = pids.filter_map(|pid| Worker::of(pid, host));
            let wanted = known.filter(|(_, of, instance)| of == job && *instance == are_instances);
            found.extend(wanted.map(|(worker, ..)| worker));
        }
        found
    }

    /// Waits until new numbers arrive, and all those emitted before have been acked; fails if any
    /// was lost. Returns the count of these numbers, and the count of repeated ones.
    pub fn goes_on(&self, recorded: &str) -> (u64, u64) {
        let ledger = self.ledger(recorded);
        let before = ledger.positions();
        until("all that was emitted is acked, and more", 90, || {
            let now = ledger.positions();
            let through = before
                .iter()
                .all(|(spout, at)| now[spout].acked_below > at.next);
            through.then_some(())
        });
        ledger.nothing_is_lost()
    }

    /// Prints details after a failure.
    pub fn tell_all(&self) {
        if let Some(described) = self.describe(JOB) {
            eprintln!("{:?}, led by {:?}", described.summary, described.master);
            described
                .containers
                .iter()
                .for_each(|container| eprintln!("{container:?}"));
            described
                .problems
                .iter()
                .for_each(|problem| eprintln!("{problem:?}"));
            let notes = described.notes.iter().rev().take(40).rev();
            notes.for_each(|note| eprintln!("{} {}", note.at_ms, note.text));
        }
        eprintln!("{:?}", self.processes(JOB));
        eprintln!("{:?}", self.ledger(JOB).positions());
        for host in 1..=HOSTS {
            eprintln!("h{host}: {}", tail(&self.log(host)));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.hosts.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The worker of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worker {
    pub container: u32,
    pub host: usize,
    pub pid: i32,
}

impl Worker {
    /// Returns a container's process, its job, and true if it is the process of an instance; `None`
    /// for any other process.
    fn of(pid: i32, host: usize) -> Option<(Self, String, bool)> {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let is_instance = variables.any(|variable| variable.starts_with(b"ARDEA_INSTANCE="));
        let mut variables = environment.split(|byte| *byte == 0);
        let start = variables.find_map(|variable| variable.strip_prefix(b"ARDEA_WORKER="))?;
        let start: Value = serde_json::from_slice(start).ok()?;
        let worker = Worker {
            container: u32::try_from(start["worker"]["container"].as_u64()?).ok()?,
            host,
            pid,
        };
        let job = start["job"]["name"].as_str()?.to_string();
        Some((worker, job, is_instance))
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&self) {
        kill_process(self.id(), Signal::KILL).expect("it runs");
    }

    /// Kills the process group with SIGKILL.
    pub fn kill_group(&self) {
        kill_process_group(self.id(), Signal::KILL).expect("it runs");
    }

    fn id(&self) -> Pid {
        Pid::from_raw(self.pid).expect("a process")
    }
}

/// Returns the number of a host: from `h3`, or from an address that ends with it.
pub fn host_number(name: &str) -> usize {
    let digits = name.rsplit(['h', '.']).next().unwrap_or(name);
    digits
        .parse()
        .unwrap_or_else(|_| panic!("{name:?} is none of our hosts"))
}

fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n    ")
}
