//! A cluster of hosts in one process: each with a runner, an address of this machine, and a folder of its own.

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
use ardea_metastore::conformance::{Fault, Faulty};
use ardea_metastore::{Expected, FileState, Node, Session, StateManager, StateOptions, layout};
use ardea_network::rpc::{Greeting, Security, connect};
use ardea_scheduler::conformance::ThisTest;
use ardea_scheduler::{
    ContainerEvents, Drains, HostIdentity, HostRecord, Hosts, JobScheduler, LaunchPlan, Pending,
    Programs, Runner, RunnerConfig, RunnerServer, RunningContainer, Schedulers, Unpacked,
};

/// How long a host may be away before it is lost.
const LOST_AFTER: Duration = Duration::from_millis(500);

/// Hosts of one process.
pub struct Cluster {
    folder: tempfile::TempDir,
    programs: Arc<dyn Programs>,
    state: Arc<Faulty>,
    servers: BTreeMap<String, RunnerServer>,
    /// Sessions of hosts that have crashed, which have yet to run out.
    ghosts: Vec<Box<dyn Session>>,
}

/// How long a later master's scheduler waits for hosts.
const GATHER_WITHIN: Duration = Duration::from_millis(1500);

/// A package with a program that does nothing for ten minutes.
#[derive(Debug)]
struct Sleeper(PathBuf);

impl Programs for Sleeper {
    fn unpacked<'a>(&'a self, _: &'a ProgramRef, _: &'a str) -> Pending<'a, Unpacked> {
        Box::pin(async { Ok(Unpacked::new(&self.0)) })
    }
}

impl Cluster {
    /// Hosts on which containers run this test's own program.
    pub async fn of_this_test(hosts: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = Arc::new(ThisTest::packed_in(folder.path()));
        Cluster::new(folder, programs, hosts).await
    }

    /// Hosts on which containers sleep.
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
            state: Arc::new(Faulty::over(Arc::new(
                state.await.expect("a state manager"),
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

    /// Starts the runner of a host that calls itself so.
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

    /// Stops a host's runner; its containers go on.
    pub fn stop_serving(&mut self, host: &str) {
        drop(self.servers.remove(host).expect("it serves"));
    }

    /// Stops a host's runner; its node is still there.
    pub async fn crash(&mut self, host: &str) {
        let record = self.servers[host].record().clone();
        self.stop_serving(host);
        let path = layout::worker(host).expect("a path");
        let (ghost, _) = self.state.open_session().await.expect("a session");
        let value = record.written().expect("written");
        // As soon as the node of the stopped one is gone.
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

    /// Writes something else into a host's node.
    pub async fn overwrite(&self, host: &str) {
        let path = layout::worker(host).expect("a path");
        let set = self.state.set(&path, b"{}", Expected::Any).await;
        set.expect("written");
    }

    /// Writes into a host's node what another says of itself.
    pub async fn rename(&self, other: &str, host: &str) {
        let path = layout::worker(host).expect("a path");
        let value = self.servers[other].record().written().expect("written");
        let set = self.state.set(&path, &value, Expected::Any).await;
        set.expect("written");
    }

    /// Why a host that serves can't be found, as it says.
    pub fn trouble(&self, host: &str) -> Option<Error> {
        self.servers[host].trouble()
    }

    /// The answer to the next change of a node's value is lost.
    pub fn lose_an_answer(&self) {
        self.state.has(Fault::LosesAnswer);
    }

    /// Whether that has happened.
    pub fn has_lost_it(&self) -> bool {
        self.state.fault() == Fault::None
    }

    /// A host's node, and what it says there.
    pub async fn registered(&self, host: &str) -> Option<(Node, HostRecord)> {
        let path = layout::worker(host).expect("a path");
        let node = self.state.get(&path).await.ok().flatten()?;
        let record = HostRecord::read(host, &node.value).ok()?;
        Some((node, record))
    }

    fn state(&self) -> Arc<dyn StateManager> {
        Arc::clone(&self.state) as _
    }

    /// Waits until a host that serves can be found by its node, which goes with its session.
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

    /// Damages a host's node, or what is left of it.
    pub fn damage(&self, host: &str) {
        let path = layout::worker(host).expect("a path");
        let mut file = self.folder.path().join("state/tree");
        file.extend(path.names());
        std::fs::write(file.join(".node"), "").expect("written");
    }

    /// Registers a host that nobody can reach.
    pub async fn register_unreachable(&mut self, host: &str) {
        let record = HostRecord {
            host: host.to_string(),
            // The port of discard, at which nobody listens.
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

    /// The sessions of hosts that have crashed, or can't be reached, run out.
    pub fn end_sessions(&mut self) {
        self.ghosts.clear();
    }

    /// What hosts are asked by who has no business there: nothing of it may matter.
    pub async fn annoy(&self, host: &str) {
        let record: &HostRecord = self.servers[host].record();
        let mut garbage = std::net::TcpStream::connect(&record.address).expect("it listens");
        let _ = garbage.write_all(&[0xff; 4096]);
        let patience = Duration::from_secs(5);
        let stranger = Security::new("another").token(Some(Token::new("guessed")));
        let greeting = Greeting::new("scheduler to the runner of a host");
        let refused = connect(&record.address, &greeting, &stranger, patience).await;
        refused.expect_err("it is no member");
        let member = connect(&record.address, &greeting, &security(), patience).await;
        let (mut sender, mut receiver) = member.expect("it is a member").split();
        sender.send("what is this?").await.expect("sent");
        // It hangs up.
        let answer = receiver.receive::<u64>().await;
        assert!(matches!(answer, Ok(None) | Err(_)), "{answer:?}");
    }

    /// The scheduler, as another process would make it.
    pub async fn hosts(&self) -> Hosts {
        Hosts::new(self.state(), security())
            .lost_after(LOST_AFTER)
            .gather_within(GATHER_WITHIN)
    }

    /// The scheduler of the one job of this cluster.
    pub async fn scheduler(&self) -> (JobScheduler, ContainerEvents) {
        self.scheduler_of("job").await
    }

    /// The scheduler of a job of that name.
    pub async fn scheduler_of(&self, job: &str) -> (JobScheduler, ContainerEvents) {
        let schedulers = Schedulers::none().with("hosts", self.hosts().await);
        let mut launch = launch();
        launch.definition.job.name = job.to_string();
        schedulers.start(launch).await.expect("a scheduler")
    }

    /// Which hosts are drained.
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

    /// Whether the process of a container runs.
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

/// Asks for these containers, with these attributes.
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
    SchedulerCall::Have(containers.iter().map(request).collect())
}

/// Asks for one container of so many cores.
pub fn have_large(cores: u64) -> SchedulerCall {
    let SchedulerCall::Have(mut requests) = have(&[1], &[]) else {
        unreachable!("it was just made")
    };
    requests[0].required.cpu = MilliCores(cores * 1000);
    SchedulerCall::Have(requests)
}

/// Looks until something is as it should be.
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
