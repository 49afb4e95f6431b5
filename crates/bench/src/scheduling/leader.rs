//! The leader: a thread that schedules, one that serialises, and one that launches.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ardea_coordination::control::{Generation, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, MicroBatch, Result};
use ardea_groups::{
    FromGroupWorker, GroupScheduler, GroupSummary, SchedulerAction, SchedulerEvent, ToGroupWorker,
};
use ardea_network::rpc::Encoded;
use hdrhistogram::Histogram;

use super::params::SchedulingParams;
use crate::nanoseconds;
use crate::usage::thread_cpu_time;

/// The longest time between two events of the scheduler.
const TICK: Duration = Duration::from_millis(50);
/// The number of groups before the measurement.
const WARMUP_GROUPS: u64 = 5;
/// The time after which a run without progress ends.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// The receivers of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recipients {
    All,
    One(ContainerId),
}

/// The connections to workers, on the thread that launches.
pub(super) trait Outlet: Send + 'static {
    /// Sends a message, given both as itself and encoded.
    fn send(&mut self, to: Recipients, message: &Arc<ToGroupWorker>, frame: &Encoded);
}

/// An event for the leader.
pub(super) enum LeaderEvent {
    /// An encoded report of a worker.
    Report(Vec<u8>),
    /// A decoded report of a worker.
    Decoded(FromGroupWorker),
    /// A worker is gone.
    Gone(ContainerId),
}

/// The measurements of a leader.
pub(super) struct LeaderFigures {
    pub(super) batches: u64,
    pub(super) wall: Duration,
    pub(super) batch_nanos: Histogram<u64>,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// The average size of an encoded message, in bytes.
    pub(super) bytes_per_message: f64,
    pub(super) scheduling: Duration,
    pub(super) serialising: Duration,
    pub(super) launching: Duration,
}

impl LeaderFigures {
    /// Returns the CPU time of the leader's threads.
    pub(super) fn cpu(&self) -> Duration {
        self.scheduling + self.serialising + self.launching
    }
}

type Letter = (Recipients, Arc<ToGroupWorker>);

/// The threads that serialise and launch; each returns its CPU time.
struct Launcher {
    letters: Sender<Letter>,
    serialising: JoinHandle<Result<(Duration, f64)>>,
    launching: JoinHandle<Duration>,
}

impl Launcher {
    fn start(mut outlet: impl Outlet) -> Result<Self> {
        let (letters, received) = channel::<Letter>();
        let (frames, encoded) = channel::<(Letter, Encoded)>();
        let serialise = move || {
            let (mut bytes, mut messages) = (0, 0_u64);
            for letter in received {
                let frame = Encoded::new(&*letter.1)?;
                bytes += frame.body_bytes() as u64;
                messages += 1;
                // The launching thread ends after this one.
                let _ = frames.send((letter, frame));
            }
            Ok((thread_cpu_time(), bytes as f64 / messages.max(1) as f64))
        };
        let launch = move || {
            for ((to, message), frame) in encoded {
                outlet.send(to, &message, &frame);
            }
            thread_cpu_time()
        };
        Ok(Launcher {
            letters,
            serialising: spawn("serialising", serialise)?,
            launching: spawn("launching", launch)?,
        })
    }
}

fn spawn<R: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> R + Send + 'static,
) -> Result<JoinHandle<R>> {
    let started = thread::Builder::new().name(name.to_string()).spawn(body);
    started.map_err(|error| {
        Error::new(
            ErrorCode::LimitReached,
            format!("cannot start the {name} thread"),
        )
        .because(error)
        .hint("raise the limit of threads (ulimit -u)")
    })
}

/// Schedules on this thread until all batches have ended.
pub(super) fn lead(
    params: &SchedulingParams,
    inbox: &Receiver<LeaderEvent>,
    outlet: impl Outlet,
) -> Result<LeaderFigures> {
    let launcher = Launcher::start(outlet)?;
    let cpu_before = thread_cpu_time();
    let mut leader = Leader {
        scheduler: GroupScheduler::new(MasterEpoch(1), params.graph()?, params.config())?,
        letters: launcher.letters.clone(),
        workers: params.workers().into(),
        start: Instant::now(),
        progress: Instant::now(),
        measured_since: None,
        measured_until: Instant::now(),
        wanted: params.batches,
        figures: LeaderFigures {
            batches: 0,
            wall: Duration::ZERO,
            batch_nanos: nanoseconds()?,
            sent: 0,
            received: 0,
            bytes_per_message: 0.0,
            scheduling: Duration::ZERO,
            serialising: Duration::ZERO,
            launching: Duration::ZERO,
        },
        all_batches: 0,
        is_stopped: false,
    };
    leader.run(inbox)?;
    let mut figures = leader.figures;
    let since = leader.measured_since.unwrap_or(leader.start);
    figures.wall = leader.measured_until - since;
    // Closes the channels, so that the threads end one after the other.
    drop((leader.letters, launcher.letters));
    let panicked = |_| Error::new(ErrorCode::Internal, "a thread of the benchmark panicked");
    let (serialising, bytes_per_message) = launcher.serialising.join().map_err(panicked)??;
    let launching = launcher.launching.join().map_err(panicked)?;
    // The threads' time covers the warm-up as well; each batch costs the same.
    let measured = figures.batches as f64 / leader.all_batches.max(1) as f64;
    figures.scheduling = (thread_cpu_time() - cpu_before).mul_f64(measured);
    figures.serialising = serialising.mul_f64(measured);
    figures.launching = launching.mul_f64(measured);
    figures.sent = (figures.sent as f64 * measured).round() as u64;
    figures.received = (figures.received as f64 * measured).round() as u64;
    figures.bytes_per_message = bytes_per_message;
    Ok(figures)
}

struct Leader {
    scheduler: GroupScheduler,
    letters: Sender<Letter>,
    workers: u64,
    start: Instant,
    progress: Instant,
    measured_since: Option<Instant>,
    measured_until: Instant,
    wanted: u64,
    figures: LeaderFigures,
    all_batches: u64,
    is_stopped: bool,
}

impl Leader {
    fn run(&mut self, inbox: &Receiver<LeaderEvent>) -> Result<()> {
        let workers = 1..=u32::try_from(self.workers).unwrap_or(u32::MAX);
        self.happens(SchedulerEvent::Begun {
            generation: Generation(1),
            after: MicroBatch(0),
            workers: workers.map(ContainerId).collect(),
        })?;
        while !self.is_stopped {
            let now = self.start.elapsed();
            let deadline = self.scheduler.deadline();
            let wait = deadline.map_or(TICK, |deadline| deadline.saturating_sub(now).min(TICK));
            match inbox.recv_timeout(wait) {
                Ok(LeaderEvent::Report(bytes)) => {
                    let decoded = postcard::from_bytes(&bytes).map_err(|error| {
                        let what = "a worker of the benchmark sent an unreadable message";
                        Error::new(ErrorCode::BadMessage, what).because(error)
                    })?;
                    self.figures.received += 1;
                    self.happens(SchedulerEvent::From(decoded))?;
                }
                Ok(LeaderEvent::Decoded(report)) => {
                    self.figures.received += 1;
                    self.happens(SchedulerEvent::From(report))?;
                }
                Ok(LeaderEvent::Gone(worker)) => return Err(gone(worker)),
                Err(RecvTimeoutError::Timeout) => self.happens(SchedulerEvent::Tick)?,
                Err(RecvTimeoutError::Disconnected) => return Err(gone(ContainerId(0))),
            }
            if self.progress.elapsed() > PROGRESS_TIMEOUT {
                return Err(Error::new(
                    ErrorCode::Internal,
                    "the scheduled batches do not end",
                ));
            }
        }
        Ok(())
    }

    fn happens(&mut self, event: SchedulerEvent) -> Result<()> {
        let actions = self.scheduler.on(self.start.elapsed(), event);
        for action in actions {
            match action {
                SchedulerAction::ToAll(message) => {
                    self.figures.sent += self.workers;
                    let _ = self.letters.send((Recipients::All, message));
                }
                SchedulerAction::To(worker, message) => {
                    self.figures.sent += 1;
                    let _ = self.letters.send((Recipients::One(worker), message));
                }
                SchedulerAction::Ended(summary) => self.ended(&summary)?,
                SchedulerAction::Stopped(_) => self.is_stopped = true,
                SchedulerAction::RollBack(why) => {
                    return Err(Error::new(ErrorCode::Internal, "the attempt was ended")
                        .because(why.to_string()));
                }
                SchedulerAction::Drained(_) | SchedulerAction::Decided(_) => {}
            }
        }
        Ok(())
    }

    fn ended(&mut self, summary: &GroupSummary) -> Result<()> {
        self.progress = Instant::now();
        let new = summary.first.0 + u64::from(summary.batches) - 1 - self.all_batches;
        self.all_batches += new;
        if summary.group.0 < WARMUP_GROUPS {
            return Ok(());
        }
        let Some(_) = self.measured_since else {
            self.measured_since = Some(self.progress);
            return Ok(());
        };
        if self.figures.batches >= self.wanted {
            return Ok(());
        }
        self.figures.batches += new;
        self.measured_until = self.progress;
        let nanos = summary.duration.as_nanos() as u64 / u64::from(summary.batches);
        self.figures
            .batch_nanos
            .saturating_record_n(nanos.max(1), u64::from(summary.batches));
        match self.figures.batches >= self.wanted {
            true => self.happens(SchedulerEvent::Stop),
            false => Ok(()),
        }
    }
}

fn gone(worker: ContainerId) -> Error {
    let what = format!("worker {} of the benchmark is gone", worker.0);
    Error::new(ErrorCode::PeerLost, what).hint("its output is above, on standard error")
}
