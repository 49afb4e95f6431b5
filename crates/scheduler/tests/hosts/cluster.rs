//! A cluster of hosts in one process: each has a runner, a loopback address, and a folder.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    ContainerRequest, JobDefinition, JobRef, ProgramRef, SchedulerCall,
};
use ardea_coordination::packing::{ContainerId, MilliCores, Resources};
use ardea_core::{Error, Result, Token};
use ardea_metastore::conformance::{Fault, FaultyStore};
use ardea_metastore::{Expected, FileState, MetadataStore, Node, Session, StateOptions, layout};
use ardea_network::rpc::{HandshakeRequest, Security, connect};
use ardea_scheduler::conformance::TestPackage;
use ardea_scheduler::{
    ContainerEvents, Drains, HostIdentity, HostRecord, Hosts, JobScheduler, LaunchPlan, Pending,
    Programs, Runner, RunnerConfig, RunnerServer, RunningContainer, Schedulers, Unpacked,
};

/// The time that a host may be missing before it is lost.
const LOST_AFTER: Duration = Duration::from_millis(500);

/// Hosts of one process.
pub struct Cluster {
    folder: tempfile::TempDir,
    programs: Arc<dyn Programs>,
    state: Arc<FaultyStore>,
    servers: BTreeMap<String, RunnerServer>,
    /// Sessions of crashed hosts that have not expired yet.
    ghosts: Vec<Box<dyn Session>>,
}

/// The time that a later leader's scheduler waits for hosts.
const GATHER_WITHIN: Duration = Duration::from_millis(1500);

/// A package with a program that sleeps for ten minutes.
#[derive(Debug)]
struct Sleeper(PathBuf);

impl Programs for Sleeper {
    fn unpacked<'a>(&'a self, _: &'a ProgramRef, _: &'a str) -> Pending<'a, Unpacked> {
        Box::pin(async { Ok(Unpacked::new(&self.0)) })
    }
}

impl Cluster {
    /// Creates hosts on which containers run this test's own program.
    pub async fn of_this_test(hosts: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = Arc::new(TestPackage::packed_in(folder.path()));
        Cluster::new(folder, programs, hosts).await
    }

    /// Creates hosts on which containers sleep.
    pub async fn of_sleepers(hosts: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let package = folder.path().join("package");
        std::fs::create_dir(&package).expect("a folder");
        std::os::unix::fs::symlink("/bin/sleep", package.join("program")).expect("a link");
        let programs = Arc::new(Sleeper(package));
        Cluster::new(folder, programs, hosts).await
    }

    async fn new(folder: tempfile::TempDir, programs: Arc<dyn Programs>, hosts: &[&str]) -> Self {
        let path = folder.path().join("state");
        let state = FileState::open(&path, StateOptions::default());
        let mut cluster = Cluster {
            programs,
            state: Arc::new(FaultyStore::over(Arc::new(
                state.await.expect("a metadata store"),
            ))),
            folder,
            servers: BTreeMap::new(),
            ghosts: Vec::new(),
        };
        for host in hosts {
            cluster.serve(host).await;
        }
        cluster
    }

    /// Starts a host's runner.
    pub async fn serve(&mut self, host: &str) {
        let server = self.try_serve_as(host, host).await.expect("it serves");
        self.servers.insert(host.to_string(), server);
    }

    /// Starts a host's runner under this name.
    pub async fn try_serve_as(&self, name: &str, host: &str) -> Result<RunnerServer> {
        let config = RunnerConfig {
            host: host.to_string(),
            capacity: Resources {
                cpu: MilliCores(64_000),
                memory_bytes: 64 << 30,
                disk_bytes: 1 << 40,
            },
            ..RunnerConfig::new(self.folder.path().join(host))
        };
        let runner = Runner::open(config, Arc::clone(&self.programs)).await?;
        let identity = HostIdentity {
            id: name.to_string(),
            listen_at: format!("{host}:0"),
            attributes: BTreeMap::new(),
        };
        RunnerServer::start(identity, runner, self.state(), security()).await
    }

    /// Stops a host's runner; its containers continue.
    pub fn stop_serving(&mut self, host: &str) {
        drop(self.servers.remove(host).expect("it serves"));
    }

    /// Stops a host's runner without removing its node.
    pub async fn crash(&mut self, host: &str) {
        let record = self.servers[host].record().clone();
        self.stop_serving(host);
        let path = layout::worker(host).expect("a path");
        let (ghost, _) = self.state.open_session().await.expect("a session");
        let value = record.written().expect("written");
        // The node is created as soon as the node of the stopped runner is gone.
        let left = eventually(
            "it has left",
            async || ghost.create(&path, &value).await.ok(),
            |_| true,
        );
        left.await;
        self.ghosts.push(ghost);
    }

    /// Removes a host's node.
    pub async fn unregister(&self, host: &str) {
        let path = layout::worker(host).expect("a path");
        self.state
            .delete(&path, Expected::Any)
            .await
            .expect("deleted");
    }

    /// Overwrites a host's node.
    pub async fn overwrite(&self, host: &str) {
        let path = layout::worker(host).expect("a path");
        let set = self.state.set(&path, b"{}", Expected::Any).await;
        set.expect("written");
    }

    /// Writes the record of another host into a host's node.
    pub async fn rename(&self, other: &str, host: &str) {
        let path = layout::worker(host).expect("a path");
        let value = self.servers[other].record().written().expect("written");
        let set = self.state.set(&path, &value, Expected::Any).await;
        set.expect("written");
    }

    /// Returns the reason why a host is not registered, as it reports.
    pub fn trouble(&self, host: &str) -> Option<Error> {
        self.servers[host].trouble()
    }

    /// Loses the response to the next change of a node's value.
    pub fn lose_an_answer(&self) {
        self.state.set_fault(Fault::LoseResponse);
    }

    /// Returns true if the response has been lost.
    pub fn has_lost_it(&self) -> bool {
        self.state.fault() == Fault::None
    }

    /// Returns a host's node and record.
    pub async fn registered(&self, host: &str) -> Option<(Node, HostRecord)> {
        let path = layout::worker(host).expect("a path");
        let node = self.state.get(&path).await.ok().flatten()?;
        let record = HostRecord::read(host, &node.value).ok()?;
        Some((node, record))
    }

    fn state(&self) -> Arc<dyn MetadataStore> {
        Arc::clone(&self.state) as _
    }

    /// Waits until a host is registered by a node of its session.
    pub async fn until_registered(&self, host: &str) {
        let path = layout::worker(host).expect("a path");
        let record = self.servers[host].record();
        let look = async || self.state.get(&path).await.ok().flatten();
        let is_found = |node: &Node| {
            let found = HostRecord::read(host, &node.value);
            found.is_ok_and(|it| it.address == record.address) && node.session.is_some()
        };
        eventually("it is registered", look, is_found).await;
    }

    /// Damages a host's node.
    pub fn damage(&self, host: &str) {
        let path = layout::worker(host).expect("a path");
        let mut file = self.folder.path().join("state/tree");
        file.extend(path.names());
        std::fs::write(file.join(".node"), "").expect("written");
    }

    /// Registers an unreachable host.
    pub async fn register_unreachable(&mut self, host: &str) {
        let record = HostRecord {
            host: host.to_string(),
            // The discard port, at which nothing listens.
            address: format!("{host}:9"),
            total: Resources::UNLIMITED,
            used: Resources::ZERO,
            attributes: BTreeMap::new(),
            holds: Vec::new(),
        };
        let path = layout::worker(host).expect("a path");
        let (ghost, _) = self.state.open_session().await.expect("a session");
        let value = record.written().expect("written");
        ghost.create(&path, &value).await.expect("registered");
        self.ghosts.push(ghost);
    }

    /// Expires the sessions of crashed and unreachable hosts.
    pub fn end_sessions(&mut self) {
        self.ghosts.clear();
    }

    /// Sends invalid requests to a host, which must have no effect.
    pub async fn annoy(&self, host: &str) {
        let record: &HostRecord = self.servers[host].record();
        let mut garbage = std::net::TcpStream::connect(&record.address).expect("it listens");
        let _ = garbage.write_all(&[0xff; 4096]);
        let patience = Duration::from_secs(5);
        let stranger = Security::new("another").token(Some(Token::new("guessed")));
        let greeting = HandshakeRequest::new("scheduler to the runner of a host");
        let refused = connect(&record.address, &greeting, &stranger, patience).await;
        refused.expect_err("it is no member");
        let member = connect(&record.address, &greeting, &security(), patience).await;
        let (mut sender, mut receiver) = member.expect("it is a member").split();
        sender.send("what is this?").await.expect("sent");
        // The host closes the connection.
        let answer = receiver.receive::<u64>().await;
        assert!(matches!(answer, Ok(None) | Err(_)), "{answer:?}");
    }

    /// Creates the scheduler, as another process would.
    pub async fn hosts(&self) -> Hosts {
        Hosts::new(self.state(), security())
            .lost_after(LOST_AFTER)
            .gather_within(GATHER_WITHIN)
    }

    /// Creates the scheduler of the default job of this cluster.
    pub async fn scheduler(&self) -> (JobScheduler, ContainerEvents) {
        self.scheduler_of("job").await
    }

    /// Creates the scheduler of a job of that name.
    pub async fn scheduler_of(&self, job: &str) -> (JobScheduler, ContainerEvents) {
        let schedulers = Schedulers::none().with("hosts", self.hosts().await);
        let mut launch = launch();
        launch.definition.job.name = job.to_string();
        schedulers.start(launch).await.expect("a scheduler")
    }

    /// Returns the drained hosts.
    pub fn drains(&self) -> Drains {
        Drains::new(self.state())
    }

    /// Waits until a host's node is gone.
    pub async fn until_gone(&self, host: &str) {
        let path = layout::worker(host).expect("a path");
        let look = async || self.state.get(&path).await.ok();
        eventually("its node is gone", look, Option::is_none).await;
    }

    /// Kills the process of a container.
    pub fn kill(&self, container: &RunningContainer) {
        let pid = container.process.strip_prefix("pid ").expect("a number");
        let pid = rustix::process::Pid::from_raw(pid.parse().expect("a number"));
        rustix::process::kill_process(pid.expect("not zero"), rustix::process::Signal::KILL)
            .expect("it runs");
    }

    /// Returns true if the process of a container runs.
    pub fn runs(&self, container: &RunningContainer) -> bool {
        let pid = container.process.strip_prefix("pid ").expect("a number");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }
}

fn security() -> Security {
    Security::new("test").token(Some(Token::new("open sesame")))
}

fn launch() -> LaunchPlan {
    LaunchPlan {
        definition: JobDefinition {
            job: JobRef {
                cluster: "test".to_string(),
                name: "job".to_string(),
                submission: 7,
            },
            program: ProgramRef {
                package: "0".repeat(64),
                executable: "program".to_string(),
                arguments: vec!["600".to_string()],
            },
            packing: "round-robin".to_string(),
            scheduler: "hosts".to_string(),
            settings: BTreeMap::new(),
            version: env!("CARGO_PKG_VERSION").to_string(),
        },
        packages: String::new(),
        state_url: String::new(),
        token_file: None,
        certificates: None,
        environment: BTreeMap::new(),
    }
}

/// A request for these containers, with these attributes.
pub fn have(containers: &[u32], attributes: &[(&str, &str)]) -> SchedulerCall {
    let attributes = attributes
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()));
    let attributes: BTreeMap<_, _> = attributes.collect();
    let request = |id: &u32| ContainerRequest {
        id: ContainerId(*id),
        required: Resources {
            cpu: MilliCores(1000),
            ..Resources::ZERO
        },
        attributes: attributes.clone(),
    };
    SchedulerCall::EnsureContainers(containers.iter().map(request).collect())
}

/// A request for one container with this many cores.
pub fn have_large(cores: u64) -> SchedulerCall {
    let SchedulerCall::EnsureContainers(mut requests) = have(&[1], &[]) else {
        unreachable!("it was just made")
    };
    requests[0].required.cpu = MilliCores(cores * 1000);
    SchedulerCall::EnsureContainers(requests)
}

/// Polls until a condition holds.
pub async fn eventually<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Option<T>,
    mut holds: impl FnMut(&T) -> bool,
) -> T {
    let looking = async {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        loop {
            looks.tick().await;
            if let Some(seen) = look().await
                && holds(&seen)
            {
                return seen;
            }
        }
    };
    match tokio::time::timeout(Duration::from_secs(60), looking).await {
        Ok(seen) => seen,
        Err(_) => panic!("not in a minute: {what}"),
    }
}
