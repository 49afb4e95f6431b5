//! A container's process, from its start to its end.

use std::ffi::OsString;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, mpsc as blocking};

use ardea_coordination::control::{Credentials, JobRef, WorkerAgent, WorkerId, WorkerStart};
use ardea_coordination::packing::InstanceId;
use ardea_core::{Clock, DeadLetters, Error, ErrorCode, Result, Token, Waker};
use ardea_engine::{Job, Node};
use ardea_metrics::{Labels, MetricsManager, MetricsSinks};
use ardea_network::exchange::{Identity, LinkConfig, WorkerNumber};
use ardea_network::rpc::{Greeting, Security, THREADS_STAY};
use ardea_network::tls::Tls;
use ardea_output::Role;
use tokio::sync::mpsc;

use crate::deployer::{self, Command, Commands, Deployer};
use crate::driver::{Driver, Ending, Event, MasterFinder};
use crate::failures::Failures;
use crate::instance::{Death, InstanceProcesses, InstanceStart, Launch, run_instance};
use crate::master_link::MasterLink;
use crate::network::{NetworkEvent, NetworkThread, Tell};
use crate::notes::Notes;
use crate::peer_names::look_up_peers;
use crate::settings::WorkerConfig;
use crate::start::{addresses, endpoint, exchange_cluster, full_name, read_token};
use crate::transports::{TransportSetup, Transports};
use ardea_checkpoint::local::CutKeeper;

/// How to come by a [`MasterFinder`]: by the state manager whose URL is in the worker's start.
pub type FinderFactory = dyn Fn(&WorkerStart) -> Pin<Box<dyn Future<Output = Result<Arc<dyn MasterFinder>>> + Send>>
    + Send
    + Sync;

/// What a worker is given beside its start and its job.
pub struct Surroundings {
    /// How to find the job's master.
    pub finder: Box<FinderFactory>,
    /// Where metrics may go, by name, beside to the job's master.
    pub sinks: MetricsSinks,
    /// How other containers may be reached, by name.
    pub transports: Transports,
    /// The certificates by which the processes of the cluster prove who they are, if its connections are encrypted.
    pub tls: Option<Tls>,
    /// How this program is started: its path, and the arguments with which it comes to [`run`]. By default as this process was. The
    /// processes of instances are started so.
    pub command: Option<Vec<OsString>>,
    /// Where the job's snapshots are kept, if it has a guarantee.
    pub cuts: Option<Arc<dyn CutKeeper>>,
    /// Where dead letters of this process go.
    pub dead_letters: Arc<DeadLetters>,
}

/// Runs as the worker of a container until its master tells it to leave, or it is asked to end by SIGTERM or SIGINT. That the process
/// which started it is gone changes nothing.
///
/// # Errors
/// What keeps it from starting: a wrong setting, an address that is taken, a token that can't be read; a refusal of its master; the first
/// error of the job, if that fails as a whole.
pub fn run(start: &WorkerStart, job: &dyn Job, surroundings: Surroundings) -> Result<()> {
    if let Some(start) = InstanceStart::from_environment()? {
        ardea_output::attend(Role::Follows)?;
        return run_instance(&start, job, surroundings);
    }
    ardea_output::attend(Role::Rotates)?;
    let clock = Clock::system();
    let notes = Notes::new(
        format!("{} container {}", start.job, start.worker),
        clock.clone(),
    );
    let outcome = Setup::new(start, &notes).and_then(|setup| setup.run(job, surroundings));
    match &outcome {
        Ok(Ending::JobOver | Ending::Asked) => notes.say("ended"),
        Err(error) => notes.say(format_args!("ended: {error}")),
    }
    outcome.map(|_| ())
}

/// Where the control side runs.
fn control_runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("ardea-control")
        .thread_keep_alive(THREADS_STAY)
        .build();
    built.map_err(|error| {
        Error::new(ErrorCode::LimitReached, "cannot start the control side")
            .because(error)
            .hint("raise the limits of open files and threads for this process")
    })
}

/// What is known before anything is started.
struct Setup<'a> {
    start: &'a WorkerStart,
    config: WorkerConfig,
    token: Option<Token>,
    notes: &'a Notes,
}

impl<'a> Setup<'a> {
    fn new(start: &'a WorkerStart, notes: &'a Notes) -> Result<Self> {
        Ok(Setup {
            config: WorkerConfig::of(&start.settings, &start.resources)?,
            token: read_token(start.token_file.as_deref())?,
            start,
            notes,
        })
    }

    fn run(self, job: &dyn Job, surroundings: Surroundings) -> Result<Ending> {
        let runtime = control_runtime()?;
        let node = Node::start(self.config.node.clone())?;
        let (events, happens) = mpsc::unbounded_channel();
        let network = self.listen(node.clock(), events.clone(), &surroundings)?;
        self.notes
            .say(format_args!("listens at {}", network.address()));
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
        let processes = self.processes(
            &network,
            surroundings.command.clone(),
            Arc::clone(&failures),
            events.clone(),
        );
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
            cuts: surroundings.cuts.clone(),
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
        // A look-up of a name or a master may still be under way: nobody waits for it.
        runtime.shutdown_background();
        outcome
    }

    /// Starts the network.
    fn listen(
        &self,
        clock: &Clock,
        events: mpsc::UnboundedSender<Event>,
        surroundings: &Surroundings,
    ) -> Result<NetworkThread> {
        let WorkerStart {
            host, job, worker, ..
        } = self.start;
        let identity = identity(job, *worker, self.token.clone());
        let link = LinkConfig {
            silence_limit: self.config.peer_silence,
            heartbeat_every: self.config.peer_silence / 8,
            ..LinkConfig::default()
        };
        let tell: Arc<Tell> = Arc::new(move |event: NetworkEvent| {
            let _ = events.send(Event::Network(event));
        });
        let at = self.config.bind.as_ref().unwrap_or(host);
        let mut refused = None;
        for port in self.config.ports.clone() {
            for address in addresses(at, port)? {
                let setup = TransportSetup {
                    is_protected: self.token.is_some(),
                    tls: surroundings.tls.clone(),
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

    /// The processes of instances, none of which runs yet.
    fn processes(
        &self,
        network: &NetworkThread,
        command: Option<Vec<OsString>>,
        failures: Arc<Failures>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Arc<InstanceProcesses> {
        let address = network.address().parse::<SocketAddr>();
        let address = address.map_or_else(|_| network.address().to_owned(), reachable);
        let own = || {
            let program = std::env::current_exe().map(OsString::from);
            let arguments = std::env::args_os().skip(1);
            program.into_iter().chain(arguments).collect()
        };
        InstanceProcesses::new(Launch {
            command: command.unwrap_or_else(own),
            worker: self.start.clone(),
            container_address: address,
            most_in_a_row: self.config.instance_restarts,
            died: Arc::new(move |instance, death| {
                drop(events.send(after(&failures, instance, death)))
            }),
        })
    }

    /// The control side, until it ends.
    async fn control(
        &self,
        network: &NetworkThread,
        clock: &Clock,
        surroundings: Surroundings,
        commands: Arc<Commands>,
        events: mpsc::UnboundedSender<Event>,
        happens: mpsc::UnboundedReceiver<Event>,
    ) -> Result<Ending> {
        let WorkerStart {
            host, job, worker, ..
        } = self.start;
        let finder = (surroundings.finder)(self.start).await?;
        let (told, from_master) = mpsc::unbounded_channel();
        let greeting = Greeting::new(format!("worker {worker}")).of_job(full_name(job));
        let security = Security::new(job.cluster.as_str())
            .token(self.token.clone())
            .tls(surroundings.tls.clone());
        let (peers, asks) = mpsc::unbounded_channel();
        let lookups = tokio::spawn(look_up_peers(asks, network.network()));
        let port = network.address().rsplit_once(':');
        let port = port.and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
        let driver = Driver {
            agent: WorkerAgent::new(
                *worker,
                Credentials::of(job),
                endpoint(host, port),
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
            was_heard: false,
            unreachable: Default::default(),
        };
        let outcome = driver.run(happens, from_master).await;
        lookups.abort();
        outcome
    }
}

/// What the death of an instance's process is to the control side.
fn after(failures: &Failures, instance: InstanceId, death: Death) -> Event {
    let vertex = instance.vertex.as_str();
    // Whatever ended it without a word, it is gone with what was under way.
    let code = death.code.unwrap_or(ErrorCode::PeerLost);
    failures.fails(vertex, instance.index, code);
    let Some(times) = death.too_often else {
        failures.restarts(vertex, instance.index);
        return Event::Failed(instance, death.why);
    };
    let what = format!("its process failed {times} times in a row, and is not started again");
    let error = Error::new(ErrorCode::FailsAgain, what)
        .in_vertex(vertex, instance.index)
        .because(death.why)
        .hint("mend what makes it fail; what it fails on comes again");
    Event::Broken(Some(instance), error)
}

/// Makes the deployer look around. It doesn't keep the way to it open.
fn look_by(commands: &Arc<Commands>) -> Waker {
    let commands = Arc::downgrade(commands);
    Waker::new(move || {
        if let Some(commands) = commands.upgrade() {
            commands.send(Command::Look);
        }
    })
}

/// An address that listens at all of the host's, as this host reaches it.
fn reachable(mut address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address.to_string()
}

/// By which workers of one submission know each other.
fn identity(job: &JobRef, worker: WorkerId, token: Option<Token>) -> Identity {
    Identity {
        cluster: exchange_cluster(job),
        worker: WorkerNumber(u64::from(worker.container.0)),
        incarnation: worker.incarnation,
        token,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_ends_the_process_of_an_instance_is_counted_once_as_it_is_told() {
        let failures = Failures::default();
        let death = |code| Death {
            why: "its process has ended: signal: 9".into(),
            code,
            too_often: None,
        };
        for code in [None, Some(ErrorCode::UserPanic), None] {
            let told = after(&failures, InstanceId::new("counts", 1), death(code));
            assert!(matches!(told, Event::Failed(..)));
        }
        let counts = failures.of("counts", 1);
        assert_eq!(counts.restarts, 3);
        assert_eq!(counts.exceptions.values().sum::<u64>(), 3);
        assert_eq!(counts.exceptions["ARD-612"], 2);
    }
}
