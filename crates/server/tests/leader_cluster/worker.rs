//! A worker without instances: it has a real agent and real connections, and records the requested
//! actions.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_coordination::control::{
    AgentAction, AgentConfig, AgentEvent, Credentials, FromWorker, Generation, JobRef, Order,
    ParticipantAction, ParticipantEvent, Run, SnapshotAck, ToWorker, WorkerAgent, WorkerId,
};
use ardea_coordination::packing::InstanceId;
use ardea_metastore::MetadataStore;
use ardea_network::rpc::{Encoded, HandshakeRequest, Security, connect};
use ardea_server::leader::LeaseFinder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(2);

/// The requests received by a worker.
#[derive(Debug, Default)]
pub struct Notes {
    pub running: BTreeSet<InstanceId>,
    pub run: Option<Run>,
    /// The number of starts of instances, including repeated ones.
    pub starts: usize,
    /// The attempts of the job begun on this worker.
    pub lives: Vec<Generation>,
    /// True if all of its instances should end.
    pub ends: AtomicBool,
}

pub type SharedNotes = Arc<Mutex<Notes>>;

struct Connection {
    address: String,
    out: mpsc::UnboundedSender<Encoded>,
}

/// Runs the worker until it is requested to exit.
pub async fn work(
    state: Arc<dyn MetadataStore>,
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
                            let greeting = HandshakeRequest::new("to work").of_job(job.key());
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
                        let begun = change.attempt.filter(|_| change.begins);
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

/// Returns the result of an action. The worker has no state, so snapshots are written at once.
fn carried_out(action: ParticipantAction) -> Option<ParticipantEvent> {
    match action {
        ParticipantAction::End(epoch, _) => {
            let receipt = SnapshotAck {
                since: None,
                place: Vec::new(),
                bytes: 0,
            };
            Some(ParticipantEvent::Saved(epoch, receipt))
        }
        ParticipantAction::Commit(epoch) => Some(ParticipantEvent::Visible(epoch)),
        ParticipantAction::Abort(_) | ParticipantAction::Send(_) => None,
    }
}

/// Serves one connection to a leader.
async fn talk(
    address: String,
    greeting: HandshakeRequest,
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
