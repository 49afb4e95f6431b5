//! The loop of a thread: run what is ready, rest when nothing is.
//!
//! Anybody rings the bell for a tasklet, or hands in a new one; the thread alone takes. Why no wake-up is lost: see `bell`. Why
//! no arrival is lost: it is handed in before the bell rings for it, and the thread looks for arrivals whenever it has been rung.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result};

use crate::bell::Bell;
use crate::cores::{pin_to, wake_on_time};
use crate::patience::Patience;
use crate::ready::MAX_TASKLETS;
use crate::tasklet::{Round, SliceEnd, Tasklet};
use crate::timers::Timers;

/// What others see of a thread.
pub(crate) struct WorkerShared {
    bell: Bell,
    thread: OnceLock<Thread>,
    arrivals: Mutex<Vec<(u32, Box<Tasklet>)>>,
    has_arrivals: AtomicBool,
    slots: Mutex<Slots>,
    /// Told to end when its tasklets have finished; a dedicated thread also does when its only one has.
    stop: AtomicBool,
}

/// Which tasklet numbers are free.
#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    next: u32,
    limit: u32,
}

impl WorkerShared {
    /// For up to `tasklets` tasklets.
    pub(crate) fn new(tasklets: usize) -> Arc<Self> {
        let tasklets = tasklets.min(MAX_TASKLETS);
        Arc::new(WorkerShared {
            bell: Bell::new(tasklets),
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

    /// A number for a tasklet that will arrive.
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

    /// Gives a number back.
    pub(crate) fn release(&self, number: u32) {
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(number);
    }

    /// Hands a tasklet to the thread, which starts it at once.
    pub(crate) fn admit(&self, number: u32, tasklet: Box<Tasklet>) {
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((number, tasklet));
        self.has_arrivals.store(true, Ordering::SeqCst);
        self.wake(number);
    }

    /// Asks the thread to end when the tasklets that it has are finished.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.unpark();
    }

    /// How many tasklets live on the thread.
    pub(crate) fn load(&self) -> usize {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.next as usize - slots.free.len()
    }

    /// Takes what has been rung for, in place of a thread.
    #[cfg(all(test, loom))]
    pub(crate) fn take_rung(&self, taken: &mut Vec<u32>) {
        self.bell.take(taken);
    }

    fn wake(&self, number: u32) {
        if self.bell.ring(number) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Wakes one tasklet, from any thread.
#[derive(Clone)]
pub(crate) struct TaskletWaker(Option<(Arc<WorkerShared>, u32)>);

impl TaskletWaker {
    /// Wakes nobody; for tests.
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

/// How a thread spends its time.
#[derive(Clone, Debug)]
pub(crate) struct WorkerSettings {
    pub(crate) name: String,
    pub(crate) core: Option<usize>,
    pub(crate) clock: Clock,
    pub(crate) spin: Duration,
    /// Ends when its tasklet has finished.
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
                // A container may forbid it; the thread then runs wherever the kernel puts it.
                let _ = pin_to(core);
            }
            wake_on_time();
            Worker {
                shared,
                patience: Patience::up_to(settings.spin),
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
            // Here and not on the thread: whoever knows that it was started can unpark it.
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

/// The thread's own side.
struct Worker {
    shared: Arc<WorkerShared>,
    settings: WorkerSettings,
    tasklets: Vec<Option<Box<Tasklet>>>,
    live: usize,
    /// Whether a tasklet has arrived.
    has_served: bool,
    timers: Timers,
    patience: Patience,
    taken: Vec<u32>,
    /// Whether a tasklet moved something in the last round that could not wait.
    is_busy: bool,
    /// When a tasklet last wrote at cuts.
    wrote_at: Duration,
    /// Until when those pause that have only what can wait: the core is left to others meanwhile.
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
            // Its own ring may have been taken a moment before it was seen here.
            self.shared.bell.add(number);
        }
    }

    fn fire_timers(&mut self) -> Duration {
        let now = self.settings.clock.now();
        while let Some(number) = self.timers.expired(now) {
            self.shared.bell.add(number);
        }
        now
    }

    /// Gives every ready tasklet a slice; says whether there was one.
    fn run_ready(&mut self) -> bool {
        let mut taken = std::mem::take(&mut self.taken);
        self.shared.bell.take(&mut taken);
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
        // A number without a tasklet: a wake-up for one that has finished, or that arrives in a moment and is started then.
        let Some(slot) = self.tasklets.get_mut(number as usize) else {
            return;
        };
        let Some(tasklet) = slot else { return };
        let end = tasklet.run_slice(round);
        self.wrote_at = self.wrote_at.max(tasklet.wrote_at());
        match end {
            SliceEnd::Again => {
                self.is_busy = true;
                self.shared.bell.add(number);
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
                // The place is free before the job is over: who has seen its end can start another one.
                self.shared.release(number);
                if let Some(tasklet) = ended {
                    tasklet.report();
                }
            }
        }
    }

    /// Rests until there is something to do: first looks for it, which wakes fastest, then sleeps.
    fn rest(&mut self, since: Duration) {
        let deadline = self.timers.next();
        let is_pause = since < self.paused_until;
        let look_until = match is_pause {
            true => since,
            false => since.saturating_add(self.patience.next()),
        };
        loop {
            if !self.shared.bell.is_silent() {
                self.patience.learn(true);
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
            self.patience.learn(false);
        }
        if self.shared.bell.may_sleep() && !self.is_over() {
            match deadline {
                Some(deadline) => {
                    thread::park_timeout(deadline.saturating_sub(self.settings.clock.now()))
                }
                None => thread::park(),
            }
        }
        self.shared.bell.awake();
    }
}
