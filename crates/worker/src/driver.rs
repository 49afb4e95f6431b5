//! The worker's control side: drives the agent, and does what it wants done.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    AgentAction, AgentEvent, Departure, EpochsAgentEvent, FromWorker, Generation, LifeEnd, Lookup,
    Order, Run, WorkerAgent,
};
use ardea_coordination::packing::InstanceId;
use ardea_core::{Clock, Error, ErrorCode, Result};
use ardea_engine::Site;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::deployer::{Command, Commands};
use crate::instance::is_instance;
use crate::master_link::{LinkEvent, MasterLink};
use crate::network::NetworkEvent;
use crate::notes::Notes;
use crate::peer_names::Ask;

/// How often the agent is told that time has passed, at least.
const TICK: Duration = Duration::from_millis(25);

/// How long the last words to the master may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Finds a job's master, in whatever the cluster keeps it.
pub trait MasterFinder: Send + Sync {
    /// What is known at the moment. May take as long as it takes; it is asked once at a time.
    fn look_up(&self) -> Pin<Box<dyn Future<Output = Lookup> + Send + '_>>;
}

/// What happens to a worker beside its connection to the master.
#[derive(Debug)]
pub(crate) enum Event {
    Lookup(Lookup),
    Network(NetworkEvent),
    /// The change of this order is carried out.
    Applied(Order),
    /// All instances of this order have ended well.
    Ended(Order),
    /// An instance has failed, and runs again.
    Failed(InstanceId, String),
    /// Something has come of the epochs of that life.
    Epochs(Generation, EpochsAgentEvent),
    /// That life can't go on here.
    LifeOver(Generation, LifeEnd),
    /// So many instances go on with what they have in memory, in a life that begins.
    Reminded(usize),
    /// The job can't go on in this process; who is to blame, if that is known.
    Broken(Option<InstanceId>, Error),
    /// A batch for the master.
    Metrics(Vec<u8>),
    /// The master can't be told what is measured, for this reason; said once.
    Unmeasured(Error),
    /// A metrics sink misses batches, for this reason; said once of each.
    SinkTrouble(Error),
    /// What was read has flowed on, or time is up.
    Quiet,
}

/// Why a worker ended, if nothing went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The job is over.
    JobOver,
    /// It was asked to, by a signal.
    Asked,
}

/// All that the control side has to do with.
pub(crate) struct Driver {
    pub(crate) agent: WorkerAgent,
    pub(crate) link: MasterLink,
    pub(crate) finder: Arc<dyn MasterFinder>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) peers: mpsc::UnboundedSender<Ask>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) clock: Clock,
    pub(crate) notes: Notes,
    pub(crate) is_looking: bool,
    /// Whether a master has ever answered. Whoever runs goes on when hosts of another version lead its job: data doesn't stop for that.
    pub(crate) was_heard: bool,
    /// Those whom attempts to reach have failed: said once.
    pub(crate) unreachable: BTreeSet<Site>,
}

/// What asks a process to end, or is let pass.
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

    /// Waits until the process is asked to end. That whoever started it is gone is no reason to.
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

/// Whether asking again changes nothing. It is told by ending, since who looks at the job sees that, and not what a worker writes.
fn is_final(refusal: &Error) -> bool {
    matches!(
        refusal.code(),
        ErrorCode::VersionMismatch | ErrorCode::WrongCluster
    )
}

impl Driver {
    /// Runs until the master, a signal or an error ends it.
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
                _ = tick.tick() => self.tell(AgentEvent::Tick),
                Some(event) = from_master.recv() => self.on_link(event),
                Some(event) = events.recv() => self.on_event(event),
                () = signals.asked() => {
                    if std::mem::replace(&mut is_leaving, true) {
                        break Ok(Ending::Asked);
                    }
                    self.notes.say("asked to end: what was read flows on");
                    self.commands.send(Command::Leave);
                    None
                }
            };
            if let Some(ending) = ending {
                break ending;
            }
        };
        self.link.finish(LAST_WORDS).await;
        ending
    }

    fn on_link(&mut self, event: LinkEvent) -> Option<Result<Ending>> {
        match event {
            LinkEvent::Told(number, message) if self.link.is_current(number) => {
                self.was_heard = true;
                self.tell(AgentEvent::From(message))
            }
            LinkEvent::Closed(number, why) if self.link.is_current(number) => {
                self.link.close();
                if let Some(why) = why {
                    self.notes.say(format_args!("no way to the master: {why}"));
                    if !self.was_heard && is_final(&why) {
                        return Some(Err(why));
                    }
                }
                self.tell(AgentEvent::Closed)
            }
            _ => None,
        }
    }

    fn on_event(&mut self, event: Event) -> Option<Result<Ending>> {
        match event {
            Event::Lookup(found) => {
                self.is_looking = false;
                self.tell(AgentEvent::Lookup(found))
            }
            Event::Network(event) => self.on_network(event),
            Event::Applied(order) => self.tell(AgentEvent::Applied(order)),
            Event::Ended(order) => self.tell(AgentEvent::Ended(order)),
            Event::Failed(instance, why) => {
                let started = "failed and is started again";
                self.notes.say(format_args!("{instance} {started}: {why}"));
                self.tell(AgentEvent::Failed(instance, why))
            }
            Event::Epochs(generation, event) => self.tell(AgentEvent::Epochs(generation, event)),
            Event::LifeOver(generation, why) => {
                self.notes
                    .say(format_args!("life {generation} can't go on here: {why:?}"));
                self.tell(AgentEvent::LifeOver(generation, why))
            }
            Event::Reminded(count) => {
                self.notes.say(format_args!(
                    "{count} instances go on with what they have in memory"
                ));
                None
            }
            Event::Broken(instance, error) => {
                self.notes
                    .say(format_args!("the job can't go on here: {error}"));
                if let Some(instance) = instance {
                    // The master shows it; what the agent wants done otherwise does not matter any more.
                    let _ = self.tell(AgentEvent::Failed(instance, error.to_string()));
                }
                Some(Err(error))
            }
            Event::Metrics(batch) => {
                let sent = self.link.send_to_current(&FromWorker::Metrics(batch));
                sent.err().map(Err)
            }
            Event::Unmeasured(error) => {
                let what = "what is measured here is not told to the master";
                self.notes.say(format!("{what}: {error}"));
                None
            }
            Event::SinkTrouble(error) => {
                self.notes.say(error);
                None
            }
            Event::Quiet => Some(Ok(Ending::Asked)),
        }
    }

    fn on_network(&mut self, event: NetworkEvent) -> Option<Result<Ending>> {
        match event {
            NetworkEvent::Up(site, _) if is_instance(site) => {}
            NetworkEvent::Lost(site, ..) if is_instance(site) => {
                // Whoever keeps the process has more to say of it.
                self.commands.send(Command::InstanceLost(site));
            }
            NetworkEvent::Up(Site(container), start) => {
                let which = format_args!("container {container}, start {start}");
                self.unreachable.remove(&Site(container));
                self.notes.say(format_args!("connected to {which}"));
            }
            NetworkEvent::Lost(Site(container), start, why) => {
                self.commands.send(Command::PeerLost);
                let which = format_args!("container {container}, start {start}");
                self.notes.say(format_args!("lost {which}: {why}"));
            }
            NetworkEvent::Unreachable(site, why) => {
                let _ = self.peers.send(Ask::Again(site));
                if self.unreachable.insert(site) {
                    self.notes.say(format_args!("container {}: {why}", site.0));
                }
            }
            NetworkEvent::Failed(why) => {
                return Some(Err(Error::new(ErrorCode::Network, why)));
            }
        }
        None
    }

    /// Tells the agent, and does what it wants done; what the worker ends with, if it does.
    fn tell(&mut self, event: AgentEvent) -> Option<Result<Ending>> {
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
                    let _ = self.peers.send(Ask::Told(peers));
                }
                AgentAction::Apply(change) => {
                    let (order, run) = (change.order, change.run);
                    self.notes.say(format_args!(
                        "order {}.{}: {} to start, {} to stop, {}",
                        order.epoch.0,
                        order.number,
                        change.start.len(),
                        change.stop.len(),
                        doing(run)
                    ));
                    if let Some(life) = change.life.filter(|_| change.begins) {
                        let (life, from) = (life.generation, life.from.unwrap_or_default());
                        self.notes
                            .say(format_args!("life {life} begins, from epoch {}", from.0));
                    }
                    let instances = self.agent.instances().to_vec();
                    self.commands.send(Command::Apply { change, instances });
                }
                AgentAction::Epochs(generation, action) => {
                    self.commands.send(Command::Epochs(generation, action));
                }
                AgentAction::Exit(Departure::JobOver) => {
                    self.notes.say("the job is over");
                    return Some(Ok(Ending::JobOver));
                }
                AgentAction::Exit(Departure::Refused(why)) => {
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
