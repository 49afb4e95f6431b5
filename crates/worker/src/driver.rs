//! The control side of a worker: passes events to the agent (the worker's state machine) and
//! executes the agent's actions.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    AgentAction, AgentEvent, AttemptEnd, FromWorker, Generation, LeaveReason, Lookup, Order,
    ParticipantEvent, RecoveryScope, Run, WorkerAgent,
};
use ardea_coordination::packing::InstanceId;
use ardea_core::{Clock, Error, ErrorCode, Result};
use ardea_engine::Site;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::deployer::{Command, Commands};
use crate::host_peers::HostPeers;
use crate::log_events::LogWriter;
use crate::master_link::{LinkEvent, MasterLink};
use crate::network::NetworkEvent;
use crate::peer_addresses::ResolverRequest;

/// Maximum interval between two ticks of the agent, the worker's state machine.
const TICK: Duration = Duration::from_millis(25);

/// Timeout for sending the last messages to the leader.
const FINISH_TIMEOUT: Duration = Duration::from_millis(500);

/// Leader lookup of a job.
pub trait MasterFinder: Send + Sync {
    /// Returns the current leader. A call may take arbitrarily long; the worker makes one call at a
    /// time.
    fn look_up(&self) -> Pin<Box<dyn Future<Output = Lookup> + Send + '_>>;
}

/// An event of a worker other than those of its connection to the leader.
#[derive(Debug)]
pub(crate) enum Event {
    Lookup(Lookup),
    Network(NetworkEvent),
    /// The part of the job that is restored if this worker is lost, in this attempt.
    Scope(Generation, RecoveryScope),
    /// The change of this order has taken effect.
    Applied(Order),
    /// All instances of this order have ended normally.
    Ended(Order),
    /// An instance has failed and has been restarted.
    Failed(InstanceId, String),
    /// An event concerning the epochs of this attempt.
    Epochs(Generation, ParticipantEvent),
    /// This attempt cannot continue in this container.
    AttemptOver(Generation, AttemptEnd),
    /// The number of instances of a new attempt that reuse the in-memory state of the previous
    /// attempt.
    StateReused(usize),
    /// The job cannot continue in this process. The event contains the instance that caused the
    /// error, if known.
    Broken(Option<InstanceId>, Error),
    /// A metrics batch for the leader.
    Metrics(Vec<u8>),
    /// Metrics cannot be sent to the leader; reported once.
    MetricsRejected(Error),
    /// A metrics sink has dropped batches; reported once for each sink.
    SinkFailed(Error),
    /// The records in flight have passed through, or the time for draining is over.
    Drained,
}

/// The reason for the normal end of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The job has ended.
    JobOver,
    /// A signal (SIGTERM or SIGINT) has requested the end.
    Asked,
}

/// The state of the control side.
pub(crate) struct Driver {
    pub(crate) agent: WorkerAgent,
    pub(crate) link: MasterLink,
    pub(crate) finder: Arc<dyn MasterFinder>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) peers: mpsc::UnboundedSender<ResolverRequest>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) clock: Clock,
    pub(crate) notes: LogWriter,
    pub(crate) is_looking: bool,
    /// True if any leader has ever replied. A worker with a leader before continues even if a later
    /// leader has another version, so that data keeps flowing.
    pub(crate) had_leader: bool,
    /// The unreachable peers for which a line has been logged.
    pub(crate) unreachable: BTreeSet<Site>,
    /// The peers that share the name of this worker's host.
    pub(crate) host_peers: HostPeers,
}

/// The signals that the worker handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Error::new(ErrorCode::LimitReached, "cannot listen for signals").because(error)
            })
        };
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM or SIGINT. SIGHUP is ignored, because a worker continues after the end of
    /// its parent process.
    async fn asked(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => {}
            }
        }
    }
}

/// Returns true if a retry after this rejection is useless. The worker then ends, because users see
/// an exit better than a log line.
fn is_final(refusal: &Error) -> bool {
    matches!(
        refusal.code(),
        ErrorCode::VersionMismatch | ErrorCode::WrongCluster
    )
}

impl Driver {
    /// Runs until the leader, a signal or an error ends the worker.
    pub(crate) async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<Event>,
        mut from_master: mpsc::UnboundedReceiver<LinkEvent>,
    ) -> Result<Ending> {
        let mut signals = Signals::listen()?;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_leaving = false;
        let ending = loop {
            let ending = tokio::select! {
                _ = tick.tick() => self.handle_agent_event(AgentEvent::Tick),
                Some(event) = from_master.recv() => self.on_link(event),
                Some(event) = events.recv() => self.on_event(event),
                () = signals.asked() => {
                    if std::mem::replace(&mut is_leaving, true) {
                        break Ok(Ending::Asked);
                    }
                    self.notes.write("requested to end: sources stop, and records in flight are processed");
                    self.commands.send(Command::Leave);
                    None
                }
            };
            if let Some(ending) = ending {
                break ending;
            }
        };
        self.link.finish(FINISH_TIMEOUT).await;
        ending
    }

    fn on_link(&mut self, event: LinkEvent) -> Option<Result<Ending>> {
        match event {
            LinkEvent::Received(number, message) if self.link.is_current(number) => {
                self.had_leader = true;
                self.handle_agent_event(AgentEvent::From(message))
            }
            LinkEvent::Closed(number, why) if self.link.is_current(number) => {
                self.link.close();
                if let Some(why) = why {
                    self.notes
                        .write(format_args!("no connection to the leader: {why}"));
                    if !self.had_leader && is_final(&why) {
                        return Some(Err(why));
                    }
                }
                self.handle_agent_event(AgentEvent::Closed)
            }
            _ => None,
        }
    }

    fn on_event(&mut self, event: Event) -> Option<Result<Ending>> {
        match event {
            Event::Lookup(found) => {
                self.is_looking = false;
                self.handle_agent_event(AgentEvent::Lookup(found))
            }
            Event::Network(event) => self.on_network(event),
            Event::Scope(generation, scope) => {
                self.handle_agent_event(AgentEvent::Scope(generation, scope))
            }
            Event::Applied(order) => self.handle_agent_event(AgentEvent::Applied(order)),
            Event::Ended(order) => self.handle_agent_event(AgentEvent::Ended(order)),
            Event::Failed(instance, why) => {
                let started = "failed and is started again";
                self.notes
                    .write(format_args!("{instance} {started}: {why}"));
                self.handle_agent_event(AgentEvent::Failed(instance, why))
            }
            Event::Epochs(generation, event) => {
                self.handle_agent_event(AgentEvent::Epochs(generation, event))
            }
            Event::AttemptOver(generation, why) => {
                self.notes.write(format_args!(
                    "attempt {generation} can't continue here: {why:?}"
                ));
                self.handle_agent_event(AgentEvent::AttemptOver(generation, why))
            }
            Event::StateReused(count) => {
                self.notes.write(format_args!(
                    "{count} instances reuse their state in memory"
                ));
                None
            }
            Event::Broken(instance, error) => {
                self.notes
                    .write(format_args!("the job can't continue here: {error}"));
                if let Some(instance) = instance {
                    // The leader displays the error; other actions of the agent no longer matter.
                    let _ =
                        self.handle_agent_event(AgentEvent::Failed(instance, error.to_string()));
                }
                Some(Err(error))
            }
            Event::Metrics(batch) => {
                let sent = self.link.send_to_current(&FromWorker::Metrics(batch));
                sent.err().map(Err)
            }
            Event::MetricsRejected(error) => {
                let what = "metrics of this worker can't be sent to the leader";
                self.notes.write(format!("{what}: {error}"));
                None
            }
            Event::SinkFailed(error) => {
                self.notes.write(error);
                None
            }
            Event::Drained => Some(Ok(Ending::Asked)),
        }
    }

    fn on_network(&mut self, event: NetworkEvent) -> Option<Result<Ending>> {
        match event {
            NetworkEvent::Up(Site(container), start, kind) => {
                let which = format_args!("container {container}, start {start}");
                self.unreachable.remove(&Site(container));
                self.notes
                    .write(format_args!("connected to {which} ({kind})"));
            }
            NetworkEvent::Lost(Site(container), start, why) => {
                self.commands.send(Command::PeerLost);
                let which = format_args!("container {container}, start {start}");
                self.notes.write(format_args!("lost {which}: {why}"));
            }
            NetworkEvent::Unreachable(site, why) => {
                let _ = self.peers.send(ResolverRequest::Retry(site));
                if self.unreachable.insert(site) {
                    self.notes
                        .write(format_args!("container {}: {why}", site.0));
                }
            }
            NetworkEvent::NotOnHost(site, why) => {
                if self.host_peers.report_once(site) {
                    let what = "is on this host and reached over the network";
                    let container = site.0;
                    self.notes
                        .write(format_args!("container {container} {what}: {why}"));
                }
            }
            NetworkEvent::NotListening(why) => {
                let what = "workers of this host reach this one over the network";
                self.notes.write(format_args!("{what}: {why}"));
            }
            NetworkEvent::Failed(why) => {
                return Some(Err(Error::new(ErrorCode::Network, why)));
            }
        }
        None
    }

    /// Passes an event to the agent and executes the agent's actions. Returns the outcome if the
    /// worker ends.
    fn handle_agent_event(&mut self, event: AgentEvent) -> Option<Result<Ending>> {
        for action in self.agent.on(self.clock.now(), event) {
            match action {
                AgentAction::LookUp => self.look_up(),
                AgentAction::Send(address, message) => {
                    let message = FromWorker::Control(message);
                    if let Err(error) = self.link.send(&address, &message) {
                        return Some(Err(error));
                    }
                }
                AgentAction::Peers(peers) => {
                    self.host_peers.set_peers(&peers);
                    let _ = self.peers.send(ResolverRequest::Reported(peers));
                }
                AgentAction::Apply(change) => {
                    let (order, run) = (change.order, change.run);
                    self.notes.write(format_args!(
                        "order {}.{}: {} to start, {} to stop, {}",
                        order.epoch.0,
                        order.number,
                        change.start.len(),
                        change.stop.len(),
                        doing(run)
                    ));
                    if let Some(life) = change.attempt.filter(|_| change.begins) {
                        let (life, from) = (life.generation, life.from.unwrap_or_default());
                        self.notes
                            .write(format_args!("attempt {life} begins, from epoch {}", from.0));
                    }
                    let instances = self.agent.instances().to_vec();
                    self.commands.send(Command::Apply { change, instances });
                }
                AgentAction::Epochs(generation, action) => {
                    self.commands.send(Command::Epochs(generation, action));
                }
                AgentAction::Exit(LeaveReason::JobOver) => {
                    self.notes.write("the job is over");
                    return Some(Ok(Ending::JobOver));
                }
                AgentAction::Exit(LeaveReason::Refused(why)) => {
                    return Some(Err(why.into()));
                }
            }
        }
        None
    }

    fn look_up(&mut self) {
        if std::mem::replace(&mut self.is_looking, true) {
            return;
        }
        let (finder, events) = (Arc::clone(&self.finder), self.events.clone());
        tokio::spawn(async move {
            let found = finder.look_up().await;
            let _ = events.send(Event::Lookup(found));
        });
    }
}

fn doing(run: Run) -> &'static str {
    match run {
        Run::Prepared => "sources wait",
        Run::Early => "sources read when they can",
        Run::Running => "sources read",
        Run::Paused => "sources pause",
    }
}
