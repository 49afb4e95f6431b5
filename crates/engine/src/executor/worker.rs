//! The loop of a worker thread: runs ready tasklets, rests when there are none.
//!
//! Any thread may wake a tasklet or add a new one; only the owning thread runs them. See `parker`
//! for why no wake-up is lost. No arrival is lost either: it is added before the thread is
//! notified, and the thread checks for arrivals after each notification.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ardea_core::{AdaptiveSpin, Clock, Error, ErrorCode, Result};

use crate::executor::cores::{pin_to, wake_on_time};
use crate::executor::timers::Timers;
use crate::executor::worker_shared::WorkerShared;
use crate::tasklet::{Round, SliceEnd, Tasklet};

/// The settings of a worker thread.
#[derive(Clone, Debug)]
pub(crate) struct WorkerSettings {
    pub(crate) name: String,
    pub(crate) core: Option<usize>,
    pub(crate) clock: Clock,
    pub(crate) spin: Duration,
    /// True if the thread ends when its tasklet has finished.
    pub(crate) dedicated: bool,
}

/// Starts the thread.
pub(crate) fn start(shared: Arc<WorkerShared>, settings: WorkerSettings) -> Result<JoinHandle<()>> {
    let name = settings.name.clone();
    let handle = Arc::clone(&shared);
    thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            if let Some(core) = settings.core {
                // A container may forbid it; the thread then runs on any core.
                let _ = pin_to(core);
            }
            wake_on_time();
            Worker {
                shared,
                adaptive_spin: AdaptiveSpin::up_to(settings.spin),
                settings,
                tasklets: Vec::new(),
                live: 0,
                has_served: false,
                timers: Timers::default(),
                taken: Vec::new(),
                is_busy: false,
                wrote_at: Duration::ZERO,
                paused_until: Duration::ZERO,
            }
            .run();
        })
        .inspect(|thread| {
            // Set here and not on the thread, so that it can be unparked as soon as it is started.
            let _ = handle.thread.set(thread.thread().clone());
        })
        .map_err(|error| {
            Error::new(
                ErrorCode::LimitReached,
                format!("cannot start the thread {name:?}"),
            )
            .because(error)
            .hint("raise the limit of threads for this process")
        })
}

/// The state of a worker thread that only it sees.
struct Worker {
    shared: Arc<WorkerShared>,
    settings: WorkerSettings,
    tasklets: Vec<Option<Box<Tasklet>>>,
    live: usize,
    /// True if a tasklet has arrived.
    has_served: bool,
    timers: Timers,
    adaptive_spin: AdaptiveSpin,
    taken: Vec<u32>,
    /// True if a tasklet in the last round did work that could not wait.
    is_busy: bool,
    /// The time when a tasklet last wrote snapshots.
    wrote_at: Duration,
    /// The end of the pause of tasklets that have only deferrable work; the core is left to other
    /// threads meanwhile.
    paused_until: Duration,
}

impl Worker {
    fn run(mut self) {
        loop {
            self.take_arrivals();
            let now = self.fire_timers();
            if self.run_ready() {
                continue;
            }
            if self.is_over() {
                return;
            }
            self.rest(now);
        }
    }

    fn is_over(&self) -> bool {
        let ending =
            self.settings.dedicated && self.has_served || self.shared.stop.load(Ordering::SeqCst);
        ending && self.live == 0 && !self.shared.has_arrivals.load(Ordering::SeqCst)
    }

    fn take_arrivals(&mut self) {
        if !self.shared.has_arrivals.load(Ordering::SeqCst) {
            return;
        }
        self.shared.has_arrivals.store(false, Ordering::SeqCst);
        let mut arrivals = self
            .shared
            .arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (number, tasklet) in arrivals.drain(..) {
            let index = number as usize;
            if self.tasklets.len() <= index {
                self.tasklets.resize_with(index + 1, || None);
            }
            self.tasklets[index] = Some(tasklet);
            self.live += 1;
            self.has_served = true;
            // Its own wake-up may have been taken just before it was added here.
            self.shared.notifier.add(number);
        }
    }

    fn fire_timers(&mut self) -> Duration {
        let now = self.settings.clock.now();
        while let Some(number) = self.timers.expired(now) {
            self.shared.notifier.end_deferral(number);
            self.shared.notifier.add(number);
        }
        now
    }

    /// Runs a slice of every ready tasklet; returns true if there was one.
    fn run_ready(&mut self) -> bool {
        let mut taken = std::mem::take(&mut self.taken);
        self.shared.notifier.take(&mut taken);
        let any = !taken.is_empty();
        let has_leisure = !std::mem::take(&mut self.is_busy);
        for number in taken.drain(..) {
            let round = Round {
                has_leisure,
                wrote_at: self.wrote_at,
            };
            self.run_one(number, round);
        }
        self.taken = taken;
        any
    }

    fn run_one(&mut self, number: u32, round: Round) {
        // A number without a tasklet: a wake-up for one that has finished, or that is about to
        // arrive and is started then.
        let Some(slot) = self.tasklets.get_mut(number as usize) else {
            return;
        };
        let Some(tasklet) = slot else { return };
        let end = tasklet.run_slice(round);
        self.wrote_at = self.wrote_at.max(tasklet.wrote_at());
        match end {
            SliceEnd::Again => {
                self.is_busy = true;
                self.shared.notifier.add(number);
            }
            SliceEnd::Leisure { from } => {
                self.paused_until = self.paused_until.max(from);
                self.timers.arm(number, from);
            }
            SliceEnd::Rest {
                wake_at: Some(deadline),
            } => self.timers.arm(number, deadline),
            SliceEnd::Rest { wake_at: None } => {}
            SliceEnd::Gather { until } => {
                self.timers.arm(number, until);
                self.shared.notifier.defer(number);
            }
            SliceEnd::Finished => {
                let ended = slot.take();
                self.live -= 1;
                self.timers.disarm(number);
                self.shared.notifier.end_deferral(number);
                // The place is released before the job is over, so that a caller that waited for
                // the end can start another job.
                self.shared.release(number);
                if let Some(tasklet) = ended {
                    tasklet.report();
                }
            }
        }
    }

    /// Rests until there is work: first spins, which wakes fastest, then sleeps.
    fn rest(&mut self, since: Duration) {
        let deadline = self.timers.next();
        let is_pause = since < self.paused_until;
        let look_until = match is_pause {
            true => since,
            false => since.saturating_add(self.adaptive_spin.next_spin()),
        };
        loop {
            if !self.shared.notifier.is_empty() {
                self.adaptive_spin.learn(true);
                return;
            }
            let now = self.settings.clock.now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return;
            }
            if now >= look_until {
                break;
            }
            std::hint::spin_loop();
        }
        if !is_pause {
            self.adaptive_spin.learn(false);
        }
        if self.shared.notifier.may_sleep() && !self.is_over() {
            match deadline {
                Some(deadline) => {
                    thread::park_timeout(deadline.saturating_sub(self.settings.clock.now()))
                }
                None => thread::park(),
            }
        }
        self.shared.notifier.awake();
    }
}
