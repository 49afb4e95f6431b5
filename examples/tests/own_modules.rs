//! A test of two jobs running as processes on one machine: one with custom modules selected by
//! settings, one with the builtin ones.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ardea_coordination::packing::ContainerId;
use ardea_rest::{Client, JobDescription, Phase};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster of this machine in its own folder. Dropping it ends all processes started in it.
struct ProcessCluster {
    folder: TempDir,
    runtime: Runtime,
}

impl ProcessCluster {
    fn new() -> Self {
        ProcessCluster {
            folder: tempfile::tempdir().unwrap(),
            runtime: Runtime::new().unwrap(),
        }
    }

    fn cluster(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn call(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_own-modules"));
        for (name, _) in std::env::vars_os() {
            let is_ours = name.to_string_lossy().starts_with("ARDEA_");
            if is_ours || name == "XDG_CONFIG_HOME" || name == "XDG_STATE_HOME" {
                command.env_remove(name);
            }
        }
        let cluster = format!("cluster.directory={}", self.cluster().display());
        command
            .args(["submit", "--set", &cluster])
            .args(line.split_whitespace())
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn submit(&self, line: &str) {
        let output = self.call(line);
        assert!(output.status.success(), "{line}: {output:?}");
    }

    /// Returns the processes of this cluster: those with its folder in their environment.
    fn processes(&self) -> Vec<u32> {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            *pid != std::process::id() && String::from_utf8_lossy(&environment).contains(&folder)
        })
        .collect()
    }

    /// Creates a client of the hosts of a job.
    fn client(&self, job: &str) -> Client {
        let hosts = fs::read_dir(self.cluster().join("run")).unwrap().flatten();
        let mut hosts = hosts.filter_map(|file| {
            let host: serde_json::Value =
                serde_json::from_slice(&fs::read(file.path()).ok()?).ok()?;
            (host["job"] == job).then(|| host["api"].as_str().map(String::from))?
        });
        Client::new(&hosts.next().expect("a host of the job"), None).unwrap()
    }

    fn describe(&self, job: &str) -> Option<JobDescription> {
        let told = self.runtime.block_on(self.client(job).describe(job));
        told.ok()
    }

    /// Returns the output of each container of the job so far.
    fn written(&self, job: &str) -> Vec<String> {
        let mut found = Vec::new();
        find(&self.cluster(), "stdout.log", &mut found);
        found.retain(|path| path.to_string_lossy().contains(&format!("/{job}-")));
        found.sort();
        let texts = found.iter().map(|path| fs::read_to_string(path).unwrap());
        texts.collect()
    }
}

impl Drop for ProcessCluster {
    fn drop(&mut self) {
        // Twice, because a live host may have started another process meanwhile.
        for _ in 0..2 {
            for pid in self.processes() {
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).output();
            }
        }
    }
}

fn find(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => find(&entry.path(), name, found),
            _ if entry.file_name() == name => found.push(entry.path()),
            _ => {}
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Returns the cores allowed to a process, in the format of the kernel.
fn cores_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_string()
}

fn odd_cores() -> String {
    let count = std::thread::available_parallelism().map_or(1, |count| count.get());
    let odd: Vec<_> = (1..count).step_by(2).map(|core| core.to_string()).collect();
    match odd.is_empty() {
        true => "0".to_string(),
        false => odd.join(","),
    }
}

/// Returns the processes of a job's workers.
fn workers(ground: &ProcessCluster, job: &str) -> Vec<u32> {
    let mut workers = ground.processes();
    workers.retain(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let mut variables = environment.split('\0');
        let start = variables.find_map(|it| it.strip_prefix("ARDEA_WORKER="));
        start.is_some_and(|start| start.contains(&format!("\"{job}\"")))
    });
    workers
}

#[test]
fn a_job_with_modules_of_its_own_runs_beside_one_with_those_that_come_with_ardea() {
    let ground = ProcessCluster::new();
    let statsd = UdpSocket::bind("127.0.0.1:0").unwrap();
    statsd.set_read_timeout(Some(PATIENCE)).unwrap();
    let sink = format!("metrics.sinks=statsd:{}", statsd.local_addr().unwrap());
    let rest = "--set cluster.port=0 -- --every 200ms --rate 500";
    ground.submit(&format!(
        "--name own --set cluster.packing=by-rack --set cluster.scheduler=odd-cores --set worker.transport=unix --set {sink} --set metrics.every=100ms {rest}"
    ));
    ground.submit(&format!("--name plain --set job.containers=2 {rest}"));

    let is_running = |job: &str| {
        let told = ground.describe(job);
        told.is_some_and(|job| job.summary.phase == Phase::Running && job.containers.len() == 2)
    };
    until("both run in two containers", || {
        is_running("own") && is_running("plain")
    });

    // Packing and scheduler, from the metadata store and from the running containers.
    let (own, plain) = (ground.describe("own"), ground.describe("plain"));
    let (own, plain) = (own.unwrap(), plain.unwrap());
    assert_eq!((&*own.packing, &*own.scheduler), ("by-rack", "odd-cores"));
    assert_eq!(
        (&*plain.packing, &*plain.scheduler),
        ("round-robin", "local")
    );
    let plans = ground.runtime.block_on(ground.client("own").plans("own"));
    let plan = plans.unwrap().packing.unwrap();
    let rack = |id| plan.container(ContainerId(id)).unwrap().attributes["rack"].clone();
    assert_eq!([rack(1), rack(2)], ["cellar", "attic"]);
    until("its containers are pinned", || {
        let workers = workers(&ground, "own");
        workers.len() == 2 && workers.iter().all(|pid| cores_of(*pid) == odd_cores())
    });

    // Transport: the counted words came from the other container, over sockets listed by the
    // kernel.
    for job in ["own", "plain"] {
        until("both containers count", || {
            let written = ground.written(job);
            written.len() == 2 && written.iter().all(|text| text.contains("  "))
        });
    }
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    for address in own.containers.iter().flat_map(|it| &it.address) {
        let (_, port) = address.rsplit_once(':').unwrap();
        let name = format!("@ardea-worker-{port}");
        let mut lines = sockets.lines();
        assert!(lines.any(|line| line.ends_with(&name)), "{name}: {sockets}");
    }

    // Metrics sink: both containers have sent metrics to it.
    let mut told = BTreeSet::new();
    let mut datagram = [0; 2_048];
    while told.len() < 2 {
        let size = statsd.recv(&mut datagram).expect("metrics are sent");
        for line in String::from_utf8_lossy(&datagram[..size]).lines() {
            assert!(line.contains("job:own"), "{line}");
            let tags = line.split(['#', ',']);
            told.extend(
                tags.filter(|tag| tag.starts_with("container:"))
                    .map(String::from),
            );
        }
    }
    assert!(workers(&ground, "plain").len() == 2);
}

#[test]
fn a_packing_policy_that_there_is_not_is_refused_with_those_that_there_are() {
    let ground = ProcessCluster::new();
    let output = ground.call("--set cluster.packing=by-rock --set cluster.port=0");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(err.contains("binpack, by-rack,"), "{err}");
    assert!(ground.processes().is_empty());
}
