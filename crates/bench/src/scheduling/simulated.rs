//! Simulated workers: one thread runs the local schedulers of all of them, with empty tasks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_groups::{LocalAction, LocalEvent, LocalScheduler, TaskFigures, ToGroupWorker};
use ardea_network::rpc::Encoded;

use super::leader::{LeaderEvent, Outlet, Recipients, lead};
use super::params::SchedulingParams;
use super::{Outcome, figures};
use crate::usage::Stopwatch;

pub(super) fn run(params: &SchedulingParams) -> Result<Outcome> {
    let watch = Stopwatch::begin();
    let (letters, received) = channel();
    let (reports, inbox) = channel();
    let workers = params.workers();
    let simulated = thread::Builder::new()
        .name("simulated workers".to_string())
        .spawn(move || LocalWorkers::new(workers, reports).run(&received))
        .map_err(|error| {
            Error::new(ErrorCode::LimitReached, "cannot start a thread").because(error)
        })?;
    let led = lead(params, &inbox, QueueNetwork { letters, workers })?;
    simulated
        .join()
        .map_err(|_| Error::new(ErrorCode::Internal, "a thread of the benchmark panicked"))?;
    Ok(Outcome {
        figures: figures(&led, false),
        spent: watch.spent(),
    })
}

type Letter = (ContainerId, Arc<ToGroupWorker>, Encoded);

/// One queue entry for each worker and message, in place of a write to its socket.
struct QueueNetwork {
    letters: Sender<Letter>,
    workers: u32,
}

impl Outlet for QueueNetwork {
    fn send(&mut self, to: Recipients, message: &Arc<ToGroupWorker>, frame: &Encoded) {
        let workers = match to {
            Recipients::All => 1..=self.workers,
            Recipients::One(worker) => worker.0..=worker.0,
        };
        for worker in workers.map(ContainerId) {
            // The workers end after the leader.
            let _ = self
                .letters
                .send((worker, Arc::clone(message), frame.clone()));
        }
    }
}

struct LocalWorkers {
    workers: Vec<LocalScheduler>,
    reports: Sender<LeaderEvent>,
    events: VecDeque<(usize, LocalEvent)>,
    actions: Vec<LocalAction>,
    start: Instant,
}

impl LocalWorkers {
    fn new(workers: u32, reports: Sender<LeaderEvent>) -> Self {
        let repeat_after = Duration::from_secs(60);
        let worker = |worker| LocalScheduler::new(ContainerId(worker), repeat_after);
        LocalWorkers {
            workers: (1..=workers).map(worker).collect(),
            reports,
            events: VecDeque::new(),
            actions: Vec::new(),
            start: Instant::now(),
        }
    }

    fn run(mut self, received: &Receiver<Letter>) {
        for (worker, message, _) in received {
            let event = LocalEvent::FromLeader((*message).clone());
            self.events.push_back((position(worker), event));
            while let Some((worker, event)) = self.events.pop_front() {
                self.happens(worker, event);
            }
        }
    }

    fn happens(&mut self, worker: usize, event: LocalEvent) {
        let now = self.start.elapsed();
        if let Some(scheduler) = self.workers.get_mut(worker) {
            scheduler.on(now, event, &mut self.actions);
        }
        for action in self.actions.drain(..) {
            match action {
                LocalAction::Run(task) => {
                    self.events
                        .push_back((worker, LocalEvent::Ended(task, TaskFigures::default())));
                }
                LocalAction::Notify(to, notice) => {
                    self.events
                        .push_back((position(to), LocalEvent::Notice(notice)));
                }
                LocalAction::ToLeader(report) => {
                    if let Ok(bytes) = postcard::to_stdvec(&report) {
                        let _ = self.reports.send(LeaderEvent::Report(bytes));
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the position of a worker; workers are numbered from one.
fn position(worker: ContainerId) -> usize {
    worker.0.saturating_sub(1) as usize
}
