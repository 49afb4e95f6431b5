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
    Begin, Crossings, Deployment, Job, JobConfig, JobStatus, Node, Parallelisms, Placement, Site,
};
use ardea_network::exchange::{Identity, LinkConfig, Transport, WorkerNumber};

use super::cut_out::CutOut;
use super::{FromInstance, InstanceStart, ToInstance, site_of};
use crate::crossings::{StreamConfig, WorkerCrossings};
use crate::mail::PostOffice;
use crate::network::{NetworkEvent, NetworkThread, PeerAddress, Tell};
use crate::plan::Names;
use crate::settings::WorkerConfig;
use crate::start::{exchange_cluster, read_token};
use crate::transports::TransportSetup;
use crate::worker::Surroundings;

/// How often it tells what it has counted, at least.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// What happens to an instance's process.
enum News {
    Told(ToInstance),
    /// Its container is gone, or needs it no longer.
    Over,
    Network(NetworkEvent),
    Look,
}

/// Runs an instance until its container needs it no longer, or is gone.
///
/// # Errors
/// What keeps it from starting; the first error of the instance.
pub(crate) fn run_instance(
    start: &InstanceStart,
    job: &dyn Job,
    surroundings: Surroundings,
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
        tell(&container, &FromInstance::Failed { code, why });
    }
    outcome
}

/// It ends when its container does, and not before: a signal to the whole group is the container's affair.
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
        "the process of an instance can't hear its container",
    )
    .because(error)
}

fn listen(container: UnixStream, news: &Sender<News>) {
    for line in BufReader::new(container).lines() {
        let Ok(line) = line else { break };
        if let Ok(message) = serde_json::from_str(&line)
            && news.send(News::Told(message)).is_err()
        {
            return;
        }
    }
    let _ = news.send(News::Over);
}

fn tell(mut container: &UnixStream, message: &FromInstance) {
    if let Ok(mut line) = serde_json::to_vec(message) {
        line.push(b'\n');
        // A container that is gone will not miss it.
        let _ = container.write_all(&line);
    }
}

/// What runs.
struct Running {
    // In the order in which they end.
    mail: PostOffice,
    deployment: Deployment,
    node: Node,
    _network: NetworkThread,
    names: Names,
    own: (VertexId, u32),
    site: Site,
    container: Site,
    counted: [u64; 3],
    /// What was told of messages last.
    messages: MessageCounts,
}

impl Running {
    fn start(
        start: &InstanceStart,
        job: &dyn Job,
        surroundings: Surroundings,
        news: &Sender<News>,
    ) -> Result<Self> {
        let program = job.program(&start.parallelisms)?;
        let names = Names::of(&program.dag)?;
        let vertex = names.vertex(&start.vertex)?;
        let (site, container) = (
            site_of(vertex, start.instance)?,
            Site(start.worker.worker.container.0),
        );
        let mut config = WorkerConfig::of(&start.worker.settings, &start.worker.resources)?;
        // One for what comes and goes; the instance has a thread of its own.
        config.node.threads = std::num::NonZeroU32::MIN;
        config.node.pin = false;
        let token = read_token(start.worker.token_file.as_deref())?;
        let node = Node::start(config.node.clone())?;
        let setup = TransportSetup {
            is_protected: token.is_some(),
            tls: surroundings.tls,
        };
        // The container listens by the same one.
        let transport = surroundings.transports.make(&config.transport, &setup)?;
        let sites = (site, container);
        let network = connect(start, &config, sites, (token, transport), &node, news)?;
        let cut = CutOut::of(&program.dag, vertex)?;
        let streams = StreamConfig::default();
        let crossings = Arc::new(WorkerCrossings::new(&cut.dag, network.network(), streams));
        let parallelism = start.parallelisms.get(&start.vertex).copied().unwrap_or(1);
        let layout = cut.placement(start.instance, parallelism, site, container);
        let begin = match start.is_paused {
            true => Begin::Paused,
            false => Begin::Running,
        };
        let name = start.worker.job.to_string();
        let ends: Arc<dyn Crossings> = Arc::<WorkerCrossings>::clone(&crossings);
        let mut mail = PostOffice::new(&name, program.side_channels, crossings);
        let own = (vertex, start.instance);
        let places = names.around(own, (site, container), &start.parallelisms);
        // Before the instance runs: what it posts has to find its way.
        mail.place(&places, &BTreeSet::from([container]), &node)?;
        let config = JobConfig {
            dead_letters: surroundings.dead_letters,
            ..JobConfig::named(&name)
        };
        let deployment = node.deploy(&cut.dag, config, layout, ends, begin)?;
        let look = news.clone();
        deployment.when_changed(Waker::new(move || drop(look.send(News::Look))));
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

    fn run(mut self, container: &UnixStream, happens: &Receiver<News>) -> Result<()> {
        loop {
            match happens.recv_timeout(TELL_EVERY) {
                Ok(News::Told(message)) => self.obey(message)?,
                Ok(News::Over) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(News::Network(NetworkEvent::Lost(..))) => self.mail.process_lost(),
                Ok(News::Network(NetworkEvent::Failed(why))) => {
                    return Err(Error::new(ErrorCode::Network, why));
                }
                Ok(News::Network(_) | News::Look) | Err(RecvTimeoutError::Timeout) => {}
            }
            self.tell_counted(container);
            if let JobStatus::Failed(error) = self.deployment.status() {
                return Err(error);
            }
        }
    }

    fn obey(&mut self, message: ToInstance) -> Result<()> {
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
            tell(container, &counted);
        }
        let mut reports = self.mail.messages().into_iter();
        if let Some(report) = reports.find(|report| report.instance == self.own.1)
            && report.counts != self.messages
        {
            self.messages = report.counts.clone();
            tell(container, &FromInstance::Messages(Box::new(report.counts)));
        }
    }
}

/// Starts the network of an instance's process, which has one connection: to its container.
fn connect(
    start: &InstanceStart,
    config: &WorkerConfig,
    (site, container): (Site, Site),
    (token, transport): (Option<Token>, Box<dyn Transport>),
    node: &Node,
    news: &Sender<News>,
) -> Result<NetworkThread> {
    let identity = Identity {
        cluster: exchange_cluster(&start.worker.job),
        worker: WorkerNumber(u64::from(site.0)),
        incarnation: start.incarnation,
        token,
    };
    let link = LinkConfig {
        silence_limit: config.peer_silence,
        heartbeat_every: config.peer_silence / 8,
        ..LinkConfig::default()
    };
    let news = news.clone();
    let told: Arc<Tell> = Arc::new(move |event| drop(news.send(News::Network(event))));
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
