//! The loop of a thread: run what is ready, rest when nothing is.
//!
//! **Who writes what.** Anybody adds to `ready` and `arrivals`; the thread alone takes from them. `sleeping` is written by the
//! thread: true before it looks at `ready` a last time and parks, false when it wakes.
//!
//! **Why no wake-up is lost.** A waker adds to `ready` and then reads `sleeping`; the thread writes `sleeping` and then reads
//! `ready`; all four are sequentially consistent. So either the waker sees `sleeping` and unparks the thread, or the thread
//! sees the addition and doesn't park. An unpark before the park makes the park return at once.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result};

use crate::cores::{pin_to, wake_on_time};
use crate::ready::{MAX_TASKLETS, ReadySet};
use crate::tasklet::{SliceEnd, Tasklet};
use crate::timers::Timers;

/// What others see of a thread.
pub(crate) struct WorkerShared {
    ready: ReadySet,
    sleeping: AtomicBool,
    thread: OnceLock<Thread>,
    arrivals: Mutex<Vec<(u32, Box<Tasklet>)>>,
    has_arrivals: AtomicBool,
    slots: Mutex<Slots>,
    /// A shared thread stops when told; a dedicated one when its tasklet has finished.
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
            ready: ReadySet::new(tasklets),
            sleeping: AtomicBool::new(false),
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

    fn wake(&self, number: u32) {
        self.ready.add(number);
        if self.sleeping.load(Ordering::SeqCst) {
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
    #[cfg(test)]
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
    thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            if let Some(core) = settings.core {
                // A container may forbid it; the thread then runs wherever the kernel puts it.
                let _ = pin_to(core);
            }
            wake_on_time();
            let _ = shared.thread.set(thread::current());
            Worker {
                shared,
                settings,
                tasklets: Vec::new(),
                live: 0,
                timers: Timers::default(),
                taken: Vec::new(),
            }
            .run();
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
    timers: Timers,
    taken: Vec<u32>,
}

impl Worker {
    fn run(mut self) {
        loop {
            self.take_arrivals();
            let now = self.fire_timers();
            if self.run_ready() {
                continue;
            }
            let ending = self.settings.dedicated || self.shared.stop.load(Ordering::SeqCst);
            if ending && self.live == 0 && !self.shared.has_arrivals.load(Ordering::SeqCst) {
                return;
            }
            self.rest(now);
        }
    }

    fn take_arrivals(&mut self) {
        if !self.shared.has_arrivals.swap(false, Ordering::SeqCst) {
            return;
        }
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
        }
    }

    fn fire_timers(&mut self) -> Duration {
        let now = self.settings.clock.now();
        while let Some(number) = self.timers.expired(now) {
            self.shared.ready.add(number);
        }
        now
    }

    /// Gives every ready tasklet a slice; says whether there was one.
    fn run_ready(&mut self) -> bool {
        let mut taken = std::mem::take(&mut self.taken);
        self.shared.ready.take(&mut taken);
        let any = !taken.is_empty();
        for number in taken.drain(..) {
            self.run_one(number);
        }
        self.taken = taken;
        any
    }

    fn run_one(&mut self, number: u32) {
        // A number without a tasklet: a wake-up for one that has finished, or that arrives in a moment and starts then.
        let Some(slot @ Some(_)) = self.tasklets.get_mut(number as usize) else {
            if self.shared.has_arrivals.load(Ordering::SeqCst) {
                self.shared.ready.add(number);
            }
            return;
        };
        let Some(tasklet) = slot.as_mut() else { return };
        match tasklet.run_slice() {
            SliceEnd::Again => self.shared.ready.add(number),
            SliceEnd::Rest {
                wake_at: Some(deadline),
            } => self.timers.arm(number, deadline),
            SliceEnd::Rest { wake_at: None } => {}
            SliceEnd::Finished => {
                *slot = None;
                self.live -= 1;
                self.timers.disarm(number);
                self.shared.release(number);
            }
        }
    }

    /// Rests until there is something to do: first looks for it, which wakes fastest, then sleeps.
    fn rest(&mut self, since: Duration) {
        let deadline = self.timers.next();
        let spin_until = since + self.settings.spin;
        loop {
            let now = self.settings.clock.now();
            if !self.shared.ready.is_empty() || deadline.is_some_and(|deadline| deadline <= now) {
                return;
            }
            if now >= spin_until {
                break;
            }
            std::hint::spin_loop();
        }
        self.shared.sleeping.store(true, Ordering::SeqCst);
        let must_wake = !self.shared.ready.is_empty()
            || self.shared.stop.load(Ordering::SeqCst) && self.live == 0;
        if !must_wake {
            match deadline {
                Some(deadline) => {
                    thread::park_timeout(deadline.saturating_sub(self.settings.clock.now()))
                }
                None => thread::park(),
            }
        }
        self.shared.sleeping.store(false, Ordering::SeqCst);
    }
}
