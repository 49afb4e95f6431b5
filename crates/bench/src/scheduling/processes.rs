//! Workers as processes: they run empty tasks, and are connected by the control protocol.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_groups::{
    FromGroupWorker, LocalAction, LocalEvent, LocalScheduler, TaskFigures, ToGroupWorker,
};
use ardea_network::rpc::{self, Encoded, HandshakeRequest, Listener, RpcConnection, Security};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Handle, Runtime};

use super::leader::{LeaderEvent, LeaderFigures, Outlet, Recipients, lead};
use super::params::SchedulingParams;
use super::{Outcome, figures};
use crate::copies::Copies;
use crate::usage::{Spent, Stopwatch};

/// The longest time until a worker connects.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(50);

/// The parameters of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WorkerParams {
    address: String,
    worker: u32,
}

impl WorkerParams {
    /// Returns the argument of a worker's command.
    fn argument(address: &str, worker: u32) -> Result<String> {
        let address = address.to_string();
        serde_json::to_string(&WorkerParams { address, worker }).map_err(|error| {
            let what = "cannot encode a worker's parameters as JSON";
            Error::new(ErrorCode::Internal, what).because(error)
        })
    }
}

fn security() -> Security {
    Security::new("bench")
}

pub(super) fn run(params: &SchedulingParams) -> Result<Outcome> {
    let (led, spent) = lead_processes(params)?;
    Ok(Outcome {
        figures: figures(&led, true),
        spent,
    })
}

/// Schedules for processes; returns the leader's measurements, and the resources of all processes.
pub(super) fn lead_processes(params: &SchedulingParams) -> Result<(LeaderFigures, Spent)> {
    let runtime = runtime(Builder::new_multi_thread().worker_threads(1))?;
    let listener = runtime.block_on(Listener::bind("127.0.0.1:0", security()))?;
    let address = listener.address().to_string();
    let count = params.workers();
    let arguments = (1..=count).map(|worker| WorkerParams::argument(&address, worker));
    let workers = Copies::start("scheduling", "a worker", arguments)?;
    let (events, inbox) = channel();
    let senders = runtime.block_on(accept_all(listener, count, &events))?;
    let watch = Stopwatch::begin();
    let cpu_before = workers.cpu_time();
    let network = ProcessNetwork {
        handle: runtime.handle().clone(),
        senders,
        events,
    };
    let led = lead(params, &inbox, network)?;
    let mut spent = watch.spent();
    spent.cpu += workers.cpu_time().saturating_sub(cpu_before);
    Ok((led, spent))
}

fn runtime(builder: &mut Builder) -> Result<Runtime> {
    builder.enable_all().build().map_err(|error| {
        Error::new(ErrorCode::LimitReached, "cannot start the network threads").because(error)
    })
}

/// Accepts the connections of all workers, and starts to receive their reports.
async fn accept_all(
    mut listener: Listener,
    count: u32,
    events: &Sender<LeaderEvent>,
) -> Result<Vec<(ContainerId, rpc::Sender)>> {
    let mut senders = Vec::new();
    while senders.len() < count as usize {
        let accepted = tokio::time::timeout(CONNECT_TIMEOUT, listener.accept()).await;
        let connection = accepted.map_err(|_| {
            Error::new(
                ErrorCode::StartFailed,
                "a worker of the benchmark does not connect",
            )
            .hint("its output is above, on standard error")
        })??;
        senders.push(serve(connection, events.clone())?);
    }
    senders.sort_by_key(|(worker, _)| *worker);
    Ok(senders)
}

/// Receives the reports of a worker in a task of its own.
fn serve(
    connection: RpcConnection,
    events: Sender<LeaderEvent>,
) -> Result<(ContainerId, rpc::Sender)> {
    let number = connection.greeting().purpose.parse().map_err(|_| {
        Error::new(
            ErrorCode::BadMessage,
            "a worker of the benchmark has no number",
        )
    })?;
    let worker = ContainerId(number);
    let (sender, mut receiver) = connection.split();
    tokio::spawn(async move {
        while let Ok(Some(report)) = receiver.receive::<FromGroupWorker>().await {
            if events.send(LeaderEvent::Decoded(report)).is_err() {
                return;
            }
        }
        let _ = events.send(LeaderEvent::Gone(worker));
    });
    Ok((worker, sender))
}

struct ProcessNetwork {
    handle: Handle,
    senders: Vec<(ContainerId, rpc::Sender)>,
    events: Sender<LeaderEvent>,
}

impl Outlet for ProcessNetwork {
    fn send(&mut self, to: Recipients, _: &Arc<ToGroupWorker>, frame: &Encoded) {
        for (worker, sender) in &mut self.senders {
            let is_recipient = match to {
                Recipients::All => true,
                Recipients::One(one) => one == *worker,
            };
            if is_recipient
                && self
                    .handle
                    .block_on(sender.send_encoded(frame.clone()))
                    .is_err()
            {
                let _ = self.events.send(LeaderEvent::Gone(*worker));
            }
        }
    }
}

/// Runs a worker: the command that [`run`](super::run) starts with `--copy`.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the argument is invalid; the failure of the connection.
pub fn run_worker(argument: &str) -> Result<()> {
    let params: WorkerParams = serde_json::from_str(argument).map_err(|error| {
        Error::new(ErrorCode::InvalidConfig, "cannot read --copy").because(error)
    })?;
    // Ends with the leader even if that is killed. A failure only means that it lives longer.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    runtime(&mut Builder::new_current_thread())?.block_on(work(&params))
}

async fn work(params: &WorkerParams) -> Result<()> {
    let greeting = HandshakeRequest::new(params.worker.to_string());
    let connection = rpc::connect(&params.address, &greeting, &security(), CONNECT_TIMEOUT).await?;
    let (mut sender, mut receiver) = connection.split();
    let mut scheduler = LocalScheduler::new(ContainerId(params.worker), Duration::from_secs(1));
    let start = Instant::now();
    let mut tick = tokio::time::interval(TICK);
    let (mut actions, mut reports) = (Vec::new(), Vec::new());
    loop {
        let event = tokio::select! {
            message = receiver.receive::<ToGroupWorker>() => match message? {
                Some(message) => LocalEvent::FromLeader(message),
                None => return Ok(()),
            },
            _ = tick.tick() => LocalEvent::Tick,
        };
        scheduler.on(start.elapsed(), event, &mut actions);
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                match action {
                    LocalAction::Run(task) => {
                        let ended = LocalEvent::Ended(task, TaskFigures::default());
                        scheduler.on(start.elapsed(), ended, &mut actions);
                    }
                    LocalAction::ToLeader(report) => reports.push(report),
                    _ => {}
                }
            }
        }
        for report in reports.drain(..) {
            sender.send(&report).await?;
        }
    }
}
