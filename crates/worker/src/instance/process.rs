//! The process of an instance, from its start to its end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, MessageCounts, Result, Token, VertexId, Waker};
use ardea_engine::{
    Deployment, Job, JobConfig, JobStatus, Node, Parallelisms, Placement, RemoteEdges, Site,
    StartMode,
};
use ardea_network::exchange::{Identity, Transport, WorkerNumber};

use super::subgraph::Subgraph;
use super::{FromInstance, InstanceStart, ToInstance, site_of};
use crate::backchannel::BackchannelRouter;
use crate::network::{EventCallback, NetworkEvent, NetworkThread, PeerAddress};
use crate::plan::Names;
use crate::remote_edges::{StreamConfig, WorkerRemoteEdges};
use crate::settings::WorkerConfig;
use crate::start::{exchange_cluster, read_token};
use crate::transports::TransportSetup;
use crate::worker::WorkerDependencies;

/// Maximum interval between two reports of counters.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// An event of an instance's process.
enum ProcessEvent {
    Told(ToInstance),
    /// The container has ended, or no longer needs the process.
    Over,
    Network(NetworkEvent),
    Look,
}

/// Runs an instance in this process until its container has ended or no longer needs the process.
///
/// # Errors
/// Errors at the start, or the first error of the instance.
pub(crate) fn run_instance(
    start: &InstanceStart,
    job: &dyn Job,
    surroundings: WorkerDependencies,
) -> Result<()> {
    ignore_signals()?;
    let container = std::io::stdin().as_fd().try_clone_to_owned();
    let container = UnixStream::from(container.map_err(no_container)?);
    let told = container.try_clone().map_err(no_container)?;
    let (news, happens) = channel();
    let from_container = news.clone();
    std::thread::Builder::new()
        .name("ardea-container".into())
        .spawn(move || listen(told, &from_container))
        .map_err(no_container)?;
    let outcome = Running::start(start, job, surroundings, &news)
        .and_then(|running| running.run(&container, &happens));
    if let Err(error) = &outcome {
        let (code, why) = (error.code().as_str().to_owned(), error.to_string());
        send_message(&container, &FromInstance::Failed { code, why });
    }
    outcome
}

/// Ignores signals, which may go to the whole process group: the process ends only with its
/// container.
fn ignore_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(no_container)?;
    }
    Ok(())
}

fn no_container(error: std::io::Error) -> Error {
    Error::new(
        ErrorCode::Internal,
        "the process of an instance can't communicate with its container",
    )
    .because(error)
}

fn listen(container: UnixStream, news: &Sender<ProcessEvent>) {
    for line in BufReader::new(container).lines() {
        let Ok(line) = line else { break };
        if let Ok(message) = serde_json::from_str(&line)
            && news.send(ProcessEvent::Told(message)).is_err()
        {
            return;
        }
    }
    let _ = news.send(ProcessEvent::Over);
}

fn send_message(mut container: &UnixStream, message: &FromInstance) {
    if let Ok(mut line) = serde_json::to_vec(message) {
        line.push(b'\n');
        // A failure means that the container has ended.
        let _ = container.write_all(&line);
    }
}

/// The running instance.
struct Running {
    // The fields are dropped in this order.
    mail: BackchannelRouter,
    deployment: Deployment,
    node: Node,
    _network: NetworkThread,
    names: Names,
    own: (VertexId, u32),
    site: Site,
    container: Site,
    counted: [u64; 3],
    /// The last reported message statistics.
    messages: MessageCounts,
}

impl Running {
    fn start(
        start: &InstanceStart,
        job: &dyn Job,
        surroundings: WorkerDependencies,
        news: &Sender<ProcessEvent>,
    ) -> Result<Self> {
        let program = job.program(&start.parallelisms)?;
        let names = Names::of(&program.dag)?;
        let vertex = names.vertex(&start.vertex)?;
        let (site, container) = (
            site_of(vertex, start.instance)?,
            Site(start.worker.worker.container.0),
        );
        let mut config = WorkerConfig::of(&start.worker.settings, &start.worker.resources)?;
        // One thread for sending and receiving; the instance has its own thread.
        config.node.threads = std::num::NonZeroU32::MIN;
        config.node.pin = false;
        let token = read_token(start.worker.token_file.as_deref())?;
        let node = Node::start(config.node.clone())?;
        let setup = TransportSetup {
            is_protected: token.is_some(),
            tls: surroundings.tls,
            ring_size: config.ring_size,
        };
        // The container uses the same transport.
        let transport = surroundings.transports.make(&config.transport, &setup)?;
        let sites = (site, container);
        let network = connect(start, &config, sites, (token, transport), &node, news)?;
        let cut = Subgraph::of(&program.dag, vertex)?;
        let streams = StreamConfig::default();
        let crossings = Arc::new(WorkerRemoteEdges::new(&cut.dag, network.network(), streams));
        let parallelism = start.parallelisms.get(&start.vertex).copied().unwrap_or(1);
        let layout = cut.placement(start.instance, parallelism, site, container);
        let begin = match start.is_paused {
            true => StartMode::Paused,
            false => StartMode::Running,
        };
        let name = start.worker.job.to_string();
        let ends: Arc<dyn RemoteEdges> = Arc::<WorkerRemoteEdges>::clone(&crossings);
        let mut mail = BackchannelRouter::new(&name, program.side_channels, crossings);
        let own = (vertex, start.instance);
        let places = names.around(own, (site, container), &start.parallelisms);
        // Before the instance runs, so that its messages can be routed.
        mail.place(&places, &BTreeSet::from([container]), &node)?;
        let config = JobConfig {
            dead_letters: surroundings.dead_letters,
            ..JobConfig::named(&name)
        };
        let deployment = node.deploy(&cut.dag, config, layout, ends, begin)?;
        let look = news.clone();
        deployment.when_changed(Waker::new(move || drop(look.send(ProcessEvent::Look))));
        Ok(Running {
            mail,
            deployment,
            node,
            _network: network,
            names,
            own,
            site,
            container,
            counted: [0; 3],
            messages: MessageCounts::default(),
        })
    }

    fn run(mut self, container: &UnixStream, happens: &Receiver<ProcessEvent>) -> Result<()> {
        loop {
            match happens.recv_timeout(REPORT_INTERVAL) {
                Ok(ProcessEvent::Told(message)) => self.handle_message(message)?,
                Ok(ProcessEvent::Over) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(ProcessEvent::Network(NetworkEvent::Lost(..))) => self.mail.process_lost(),
                Ok(ProcessEvent::Network(NetworkEvent::Failed(why))) => {
                    return Err(Error::new(ErrorCode::Network, why));
                }
                Ok(ProcessEvent::Network(_) | ProcessEvent::Look)
                | Err(RecvTimeoutError::Timeout) => {}
            }
            self.tell_counted(container);
            if let JobStatus::Failed(error) = self.deployment.status() {
                return Err(error);
            }
        }
    }

    fn handle_message(&mut self, message: ToInstance) -> Result<()> {
        match message {
            ToInstance::Pause(true) => self.deployment.pause(),
            ToInstance::Pause(false) => self.deployment.resume(),
            ToInstance::Drain => self.deployment.handle().drain(),
            ToInstance::EndEpoch => self.deployment.handle().end_epoch(),
            ToInstance::Lost => self.mail.process_lost(),
            ToInstance::Rescaled(parallelisms) => {
                let places = self.places(&parallelisms);
                let container = BTreeSet::from([self.container]);
                self.mail.place(&places, &container, &self.node)?;
            }
        }
        Ok(())
    }

    fn places(&self, parallelisms: &Parallelisms) -> Placement {
        self.names
            .around(self.own, (self.site, self.container), parallelisms)
    }

    fn tell_counted(&mut self, container: &UnixStream) {
        let instances = self.deployment.instances().into_iter();
        let counted = instances.fold([0; 3], |sum, it| {
            let own = [it.metrics.late, it.metrics.late_in_part, it.metrics.bad];
            [0, 1, 2].map(|at| sum[at] + own[at])
        });
        if counted != self.counted {
            let [late, late_in_part, bad] = [0, 1, 2].map(|at| counted[at] - self.counted[at]);
            self.counted = counted;
            let counted = FromInstance::Counted {
                late,
                late_in_part,
                bad,
            };
            send_message(container, &counted);
        }
        let mut reports = self.mail.messages().into_iter();
        if let Some(report) = reports.find(|report| report.instance == self.own.1)
            && report.counts != self.messages
        {
            self.messages = report.counts.clone();
            send_message(container, &FromInstance::Messages(Box::new(report.counts)));
        }
    }
}

/// Starts the network of an instance's process, with a single connection to its container.
fn connect(
    start: &InstanceStart,
    config: &WorkerConfig,
    (site, container): (Site, Site),
    (token, transport): (Option<Token>, Box<dyn Transport>),
    node: &Node,
    news: &Sender<ProcessEvent>,
) -> Result<NetworkThread> {
    let identity = Identity {
        cluster: exchange_cluster(&start.worker.job),
        worker: WorkerNumber(u64::from(site.0)),
        incarnation: start.incarnation,
        token,
    };
    let link = config.link();
    let news = news.clone();
    let told: Arc<EventCallback> =
        Arc::new(move |event| drop(news.send(ProcessEvent::Network(event))));
    let network = NetworkThread::connecting(transport, identity, link, node.clock().clone(), told)?;
    let address = start.container_address.parse().map_err(|_| {
        Error::new(
            ErrorCode::InvalidConfig,
            format!("{:?} is no address of a container", start.container_address),
        )
    })?;
    network.network().peers(vec![PeerAddress {
        site: container,
        incarnation: start.worker.worker.incarnation,
        addresses: vec![address],
    }]);
    Ok(network)
}
