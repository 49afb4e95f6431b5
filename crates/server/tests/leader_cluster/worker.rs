//! A worker without instances: its agent is real, its connections are, and what it is told to run it notes down.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_coordination::control::{
    AgentAction, AgentConfig, AgentEvent, Credentials, EpochsAgentAction, EpochsAgentEvent,
    FromWorker, Generation, JobRef, Order, Receipt, Run, ToWorker, WorkerAgent, WorkerId,
};
use ardea_coordination::packing::InstanceId;
use ardea_metastore::StateManager;
use ardea_network::rpc::{Encoded, Greeting, Security, connect};
use ardea_server::leader::LeaseFinder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(2);

/// What a worker has been told, for tests to look at.
#[derive(Debug, Default)]
pub struct Notes {
    pub running: BTreeSet<InstanceId>,
    pub run: Option<Run>,
    /// Instances that were started, again and again if they were.
    pub starts: usize,
    /// The lives of the job that were begun here.
    pub lives: Vec<Generation>,
    /// All of its instances are to come to their end.
    pub ends: AtomicBool,
}

pub type SharedNotes = Arc<Mutex<Notes>>;

struct Connection {
    address: String,
    out: mpsc::UnboundedSender<Encoded>,
}

/// Works until it is told to leave.
pub async fn work(
    state: Arc<dyn StateManager>,
    job: JobRef,
    id: WorkerId,
    security: Security,
    notes: SharedNotes,
) {
    let finder = Arc::new(LeaseFinder::new(state, job.clone()).expect("a job"));
    let endpoint = format!("127.0.0.1:{}", 10_000 + id.container.0);
    let mut agent = WorkerAgent::new(id, Credentials::of(&job), endpoint, AgentConfig::default());
    let begin = Instant::now();
    let (events, mut happened) = mpsc::unbounded_channel();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let mut connection: Option<Connection> = None;
    let mut tasks = JoinSet::new();
    let mut applied: Option<Order> = None;
    loop {
        let event = tokio::select! {
            Some(event) = happened.recv() => event,
            _ = ticks.tick() => AgentEvent::Tick,
        };
        if matches!(event, AgentEvent::Closed) {
            connection = None;
        }
        let ended = notes.lock().unwrap().ends.load(Ordering::Relaxed);
        let mut queue = vec![event];
        queue.extend(applied.filter(|_| ended).map(AgentEvent::Ended));
        for event in queue {
            for action in agent.on(begin.elapsed(), event) {
                match action {
                    AgentAction::LookUp => {
                        let (finder, events) = (Arc::clone(&finder), events.clone());
                        tasks.spawn(async move {
                            let _ = events.send(AgentEvent::Lookup(finder.look_up().await));
                        });
                    }
                    AgentAction::Send(address, message) => {
                        let open = connection
                            .as_ref()
                            .is_some_and(|c| c.address == address && !c.out.is_closed());
                        if !open {
                            let (out, queued) = mpsc::unbounded_channel();
                            let greeting = Greeting::new("to work").of_job(job.key());
                            let (security, events) = (security.clone(), events.clone());
                            let to = address.clone();
                            tasks.spawn(async move {
                                talk(to, greeting, security, queued, events).await;
                            });
                            connection = Some(Connection { address, out });
                        }
                        let message = Encoded::new(&FromWorker::Control(message)).unwrap();
                        if let Some(connection) = &connection {
                            let _ = connection.out.send(message);
                        }
                    }
                    AgentAction::Peers(_) => {}
                    AgentAction::Apply(change) => {
                        let mut notes = notes.lock().unwrap();
                        for stopped in &change.stop {
                            notes.running.remove(stopped);
                        }
                        notes.starts += change.start.len();
                        let begun = change.life.filter(|_| change.begins);
                        notes.lives.extend(begun.map(|life| life.generation));
                        notes.running.extend(change.start);
                        notes.run = Some(change.run);
                        applied = Some(change.order);
                        let _ = events.send(AgentEvent::Applied(change.order));
                    }
                    AgentAction::Epochs(life, action) => {
                        let done = carried_out(action).map(|done| AgentEvent::Epochs(life, done));
                        if let Some(event) = done {
                            let _ = events.send(event);
                        }
                    }
                    AgentAction::Exit(_) => return,
                }
            }
        }
    }
}

/// It remembers nothing, so a cut is saved at once.
fn carried_out(action: EpochsAgentAction) -> Option<EpochsAgentEvent> {
    match action {
        EpochsAgentAction::End(epoch, _) => {
            let receipt = Receipt {
                since: None,
                place: Vec::new(),
                bytes: 0,
            };
            Some(EpochsAgentEvent::Saved(epoch, receipt))
        }
        EpochsAgentAction::Commit(epoch) => Some(EpochsAgentEvent::Visible(epoch)),
        EpochsAgentAction::GivenUp(_) | EpochsAgentAction::Tell(_) => None,
    }
}

/// One connection to a master.
async fn talk(
    address: String,
    greeting: Greeting,
    security: Security,
    mut queued: mpsc::UnboundedReceiver<Encoded>,
    events: mpsc::UnboundedSender<AgentEvent>,
) {
    if let Ok(courier) = connect(&address, &greeting, &security, PATIENCE).await {
        let (mut sender, mut receiver) = courier.split();
        loop {
            tokio::select! {
                message = queued.recv() => {
                    let Some(message) = message else { break };
                    if sender.send_encoded(message).await.is_err() {
                        break;
                    }
                }
                told = receiver.receive::<ToWorker>() => match told {
                    Ok(Some(told)) => {
                        let _ = events.send(AgentEvent::From(told));
                    }
                    _ => break,
                },
            }
        }
    }
    let _ = events.send(AgentEvent::Closed);
}
