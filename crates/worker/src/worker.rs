//! The process of a container, from its start to its end.

use std::ffi::OsString;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, mpsc as blocking};

use ardea_coordination::control::{Credentials, JobRef, WorkerAgent, WorkerId, WorkerStart};
use ardea_core::{Clock, DeadLetters, Error, ErrorCode, Result, Token, Waker};
use ardea_engine::{Job, Node};
use ardea_instance::COMPONENT_VARIABLE;
use ardea_metrics::{Labels, MetricsManager, MetricsSinks};
use ardea_network::exchange::{Identity, WorkerNumber};
use ardea_network::rpc::{BLOCKING_THREAD_KEEP_ALIVE, HandshakeRequest, Security};
use ardea_network::tls::Tls;
use tokio::sync::mpsc;

use crate::deployer::{self, Command, Commands, Deployer};
use crate::driver::{Driver, Ending, Event, MasterFinder};
use crate::failures::Failures;
use crate::host_peers::HostPeers;
use crate::isolated_vertices;
use crate::log_events::LogWriter;
use crate::master_link::MasterLink;
use crate::network::{EventCallback, NetworkEvent, NetworkThread};
use crate::peer_addresses::look_up_peers;
use crate::settings::WorkerConfig;
use crate::start::{addresses, endpoint, exchange_cluster, full_name, read_token};
use crate::transports::{TransportSetup, Transports};
use ardea_checkpoint::local::WorkerCheckpointBackend;

/// A factory that creates a [`MasterFinder`] from the metadata store URL in the worker's start
/// parameters.
pub type FinderFactory = dyn Fn(&WorkerStart) -> Pin<Box<dyn Future<Output = Result<Arc<dyn MasterFinder>>> + Send>>
    + Send
    + Sync;

/// The dependencies of a worker.
pub struct WorkerDependencies {
    /// The factory of the leader lookup.
    pub finder: Box<FinderFactory>,
    /// The metrics sinks by name. The job's leader receives the metrics in addition.
    pub sinks: MetricsSinks,
    /// The transports by name.
    pub transports: Transports,
    /// The certificates of the cluster's processes, if connections are encrypted.
    pub tls: Option<Tls>,
    /// The command (path and arguments) that starts the processes of instances. The started program
    /// must call [`run`]. By default the command of this process.
    pub command: Option<Vec<OsString>>,
    /// The checkpoint backend, if the job has a processing guarantee.
    pub snapshots: Option<Arc<dyn WorkerCheckpointBackend>>,
    /// The destination of the dead letters (rejected records) of this process.
    pub dead_letters: Arc<DeadLetters>,
}

/// Runs as the worker of a container until the job's leader, SIGTERM or SIGINT requests the end.
/// The end of the parent process has no effect.
///
/// # Errors
/// Errors at the start: an invalid setting, an address in use, an unreadable token. A rejection by
/// the job's leader. The first error of the job, if the job fails as a whole.
pub fn run(start: &WorkerStart, job: &dyn Job, surroundings: WorkerDependencies) -> Result<()> {
    if let Some(component) = std::env::var_os(COMPONENT_VARIABLE) {
        return isolated_vertices::serve(job, &component.to_string_lossy());
    }
    ardea_output::start_rotation()?;
    let clock = Clock::system();
    let notes = LogWriter::new(
        format!("{} container {}", start.job, start.worker),
        clock.clone(),
    );
    let outcome = Setup::new(start, &notes).and_then(|setup| setup.run(job, surroundings));
    match &outcome {
        Ok(Ending::JobOver | Ending::Asked) => notes.write("ended"),
        Err(error) => notes.write(format_args!("ended: {error}")),
    }
    outcome.map(|_| ())
}

/// Creates the runtime of the control side.
fn control_runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("ardea-control")
        .thread_keep_alive(BLOCKING_THREAD_KEEP_ALIVE)
        .build();
    built.map_err(|error| {
        Error::new(ErrorCode::LimitReached, "cannot start the control side")
            .because(error)
            .hint("raise the limits of open files and threads for this process")
    })
}

/// The parameters known before anything is started.
struct Setup<'a> {
    start: &'a WorkerStart,
    config: WorkerConfig,
    token: Option<Token>,
    notes: &'a LogWriter,
}

impl<'a> Setup<'a> {
    fn new(start: &'a WorkerStart, notes: &'a LogWriter) -> Result<Self> {
        Ok(Setup {
            config: WorkerConfig::of(&start.settings, &start.resources)?,
            token: read_token(start.token_file.as_deref())?,
            start,
            notes,
        })
    }

    fn run(self, job: &dyn Job, surroundings: WorkerDependencies) -> Result<Ending> {
        let runtime = control_runtime()?;
        let node = Node::start(self.config.node.clone())?;
        let (events, happens) = mpsc::unbounded_channel();
        let network = self.listen(node.clock(), events.clone(), &surroundings)?;
        self.notes
            .write(format_args!("listens at {}", network.address()));
        let container = self.start.worker.container.to_string();
        let process = Labels::of([
            ("job", &*self.start.job.name),
            ("container", container.as_str()),
        ]);
        let metrics =
            MetricsManager::start(&self.config.metrics.sinks, &process, &surroundings.sinks)?;
        let (commands, orders) = blocking::channel();
        let commands = Arc::new(Commands(commands));
        let failures = Arc::<Failures>::default();
        let processes =
            isolated_vertices::processes(self.start, &surroundings, self.config.instance_restarts)?;
        let deployer = Deployer {
            job,
            name: self.start.job.to_string(),
            here: self.start.worker.container,
            node: &node,
            network: network.network(),
            events: events.clone(),
            process,
            metrics_every: self.config.metrics.every,
            leave_within: self.config.leave_within,
            look: look_by(&commands),
            instance_restarts: self.config.instance_restarts,
            processes,
            failures,
            snapshots: surroundings.snapshots.clone(),
            dead_letters: Arc::clone(&surroundings.dead_letters),
        };
        let outcome = std::thread::scope(|scope| {
            let deploying = std::thread::Builder::new()
                .name("ardea-deployer".into())
                .spawn_scoped(scope, move || deployer::run(deployer, metrics, &orders));
            deploying.map_err(|error| {
                Error::new(
                    ErrorCode::LimitReached,
                    "cannot start the deployer's thread",
                )
                .because(error)
            })?;
            let control = self.control(
                &network,
                node.clock(),
                surroundings,
                commands,
                events,
                happens,
            );
            // Dropping the commands with the driver ends the deployer, and with it all instances.
            runtime.block_on(control)
        });
        drop(node);
        drop(network);
        // A lookup of a name or a leader may still be in progress and is abandoned.
        runtime.shutdown_background();
        outcome
    }

    /// Starts the network.
    fn listen(
        &self,
        clock: &Clock,
        events: mpsc::UnboundedSender<Event>,
        surroundings: &WorkerDependencies,
    ) -> Result<NetworkThread> {
        let WorkerStart {
            host, job, worker, ..
        } = self.start;
        let identity = identity(job, *worker, self.token.clone());
        let link = self.config.link();
        let tell: Arc<EventCallback> = Arc::new(move |event: NetworkEvent| {
            let _ = events.send(Event::Network(event));
        });
        let at = self.config.bind.as_ref().unwrap_or(host);
        let mut refused = None;
        for port in self.config.ports.clone() {
            for address in addresses(at, port)? {
                let setup = TransportSetup {
                    is_protected: self.token.is_some(),
                    tls: surroundings.tls.clone(),
                    ring_size: self.config.ring_size,
                };
                let transport = surroundings
                    .transports
                    .make(&self.config.transport, &setup)?;
                let (identity, clock, tell) = (identity.clone(), clock.clone(), Arc::clone(&tell));
                match NetworkThread::start(
                    transport,
                    &address.to_string(),
                    identity,
                    link,
                    clock,
                    tell,
                ) {
                    Ok(network) => return Ok(network),
                    Err(error) => refused = Some(error),
                }
            }
        }
        Err(refused.unwrap_or_else(|| {
            Error::new(
                ErrorCode::Network,
                format!("the host {at:?} has no address"),
            )
        }))
    }

    /// Runs the control side until it ends.
    async fn control(
        &self,
        network: &NetworkThread,
        clock: &Clock,
        surroundings: WorkerDependencies,
        commands: Arc<Commands>,
        events: mpsc::UnboundedSender<Event>,
        happens: mpsc::UnboundedReceiver<Event>,
    ) -> Result<Ending> {
        let WorkerStart {
            host, job, worker, ..
        } = self.start;
        let finder = (surroundings.finder)(self.start).await?;
        let (told, from_master) = mpsc::unbounded_channel();
        let greeting = HandshakeRequest::new(format!("worker {worker}")).of_job(full_name(job));
        let security = Security::new(job.cluster.as_str())
            .token(self.token.clone())
            .tls(surroundings.tls.clone());
        let (peers, asks) = mpsc::unbounded_channel();
        let lookups = tokio::spawn(look_up_peers(asks, network.network()));
        let port = network.address().rsplit_once(':');
        let port = port.and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
        let endpoint = endpoint(host, port);
        let driver = Driver {
            agent: WorkerAgent::new(
                *worker,
                Credentials::of(job),
                endpoint.as_str(),
                self.config.agent,
            ),
            link: MasterLink::new(greeting, security, told),
            finder,
            commands,
            peers,
            events,
            clock: clock.clone(),
            notes: self.notes.clone(),
            is_looking: false,
            had_leader: false,
            unreachable: Default::default(),
            host_peers: HostPeers::of(&endpoint),
        };
        let outcome = driver.run(happens, from_master).await;
        lookups.abort();
        outcome
    }
}

/// Returns a waker of the deployer that holds its command channel weakly.
fn look_by(commands: &Arc<Commands>) -> Waker {
    let commands = Arc::downgrade(commands);
    Waker::new(move || {
        if let Some(commands) = commands.upgrade() {
            commands.send(Command::Look);
        }
    })
}

/// Returns the identity for connections between the workers of one submission.
fn identity(job: &JobRef, worker: WorkerId, token: Option<Token>) -> Identity {
    Identity {
        cluster: exchange_cluster(job),
        worker: WorkerNumber(u64::from(worker.container.0)),
        incarnation: worker.incarnation,
        token,
    }
}
