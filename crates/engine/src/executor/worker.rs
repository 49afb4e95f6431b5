//! The loop of a worker thread: runs ready tasklets, rests when there are none.
//!
//! Any thread may wake a tasklet or add a new one; only the owning thread runs them. See `parker`
//! for why no wake-up is lost. No arrival is lost either: it is added before the thread is
//! notified, and the thread checks for arrivals after each notification.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result};

use crate::executor::adaptive_spin::AdaptiveSpin;
use crate::executor::cores::{pin_to, wake_on_time};
use crate::executor::parker::ThreadNotifier;
use crate::executor::ready::MAX_TASKLETS;
use crate::executor::timers::Timers;
use crate::tasklet::{Round, SliceEnd, Tasklet};

/// The state of a worker thread that other threads see.
pub(crate) struct WorkerShared {
    notifier: ThreadNotifier,
    thread: OnceLock<Thread>,
    arrivals: Mutex<Vec<(u32, Box<Tasklet>)>>,
    has_arrivals: AtomicBool,
    slots: Mutex<Slots>,
    /// Requests the end of the thread when its tasklets have finished; a dedicated thread also ends
    /// with its only tasklet.
    stop: AtomicBool,
}

/// The allocation of tasklet numbers.
#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    next: u32,
    limit: u32,
}

impl WorkerShared {
    /// Creates a worker for up to `tasklets` tasklets.
    pub(crate) fn new(tasklets: usize) -> Arc<Self> {
        let tasklets = tasklets.min(MAX_TASKLETS);
        Arc::new(WorkerShared {
            notifier: ThreadNotifier::new(tasklets),
            thread: OnceLock::new(),
            arrivals: Mutex::default(),
            has_arrivals: AtomicBool::new(false),
            slots: Mutex::new(Slots {
                limit: tasklets as u32,
                ..Slots::default()
            }),
            stop: AtomicBool::new(false),
        })
    }

    /// Reserves a number for a new tasklet.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<TaskletWaker> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match slots.free.pop() {
            Some(number) => number,
            None if slots.next < slots.limit => {
                slots.next += 1;
                slots.next - 1
            }
            None => {
                return Err(Error::new(
                    ErrorCode::LimitReached,
                    format!("a thread holds {} tasklets already", slots.limit),
                )
                .hint("run fewer jobs on this node, or lower their parallelism"));
            }
        };
        Ok(TaskletWaker(Some((Arc::clone(self), number))))
    }

    /// Releases a number.
    pub(crate) fn release(&self, number: u32) {
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(number);
    }

    /// Passes a tasklet to the thread, which starts it at once.
    pub(crate) fn admit(&self, number: u32, tasklet: Box<Tasklet>) {
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((number, tasklet));
        self.has_arrivals.store(true, Ordering::SeqCst);
        self.wake(number);
    }

    /// Requests that the thread ends when its tasklets have finished.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.unpark();
    }

    /// Returns the number of tasklets on the thread.
    pub(crate) fn load(&self) -> usize {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.next as usize - slots.free.len()
    }

    /// Takes the ready tasklets; for tests without a worker thread.
    #[cfg(all(test, loom))]
    pub(crate) fn take_ready(&self, taken: &mut Vec<u32>) {
        self.notifier.take(taken);
    }

    fn wake(&self, number: u32) {
        if self.notifier.notify(number) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A handle that wakes one tasklet, from any thread.
#[derive(Clone)]
pub(crate) struct TaskletWaker(Option<(Arc<WorkerShared>, u32)>);

impl TaskletWaker {
    /// Creates a waker without effect, for tests.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn none() -> Self {
        TaskletWaker(None)
    }

    #[inline]
    pub(crate) fn wake(&self) {
        if let Some((worker, number)) = &self.0 {
            worker.wake(*number);
        }
    }

    pub(crate) fn admit(&self, tasklet: Box<Tasklet>) {
        if let Some((worker, number)) = &self.0 {
            worker.admit(*number, tasklet);
        }
    }

    pub(crate) fn release(&self) {
        if let Some((worker, number)) = &self.0 {
            worker.release(*number);
        }
    }
}

impl fmt::Debug for TaskletWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TaskletWaker({:?})",
            self.0.as_ref().map(|(_, number)| number)
        )
    }
}

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
            SliceEnd::Finished => {
                let ended = slot.take();
                self.live -= 1;
                self.timers.disarm(number);
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
            false => since.saturating_add(self.adaptive_spin.next()),
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
