//! Ctrl-C and SIGTERM: the first lets the job end in an orderly way, the second stops it at once.
//!
//! One thread waits for the signals and acts on the job itself, so that a first Ctrl-C drains the
//! job at once, even if the main thread is blocked. The main thread reads the count for its
//! messages. A third signal ends the process immediately, for jobs that can't be stopped. Programs
//! without a console use `JobHandle::drain_on_ctrl_c`.

use std::fmt;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_checkpoint::local::FaultTolerantJobHandle;
use ardea_engine::{JobHandle, on_interrupt};

use super::failure::Failure;
use super::keyboard;

const EXIT_INTERRUPTED: i32 = 130;
/// The interrupt from which on the process ends at once.
const FORCED_EXIT_COUNT: u32 = 3;

/// A counter of interrupts that passes them on to the running job.
#[derive(Clone)]
pub struct Interrupts(Arc<Shared>);

struct Shared {
    count: AtomicU32,
    at_work: Mutex<InterruptReceiver>,
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interrupts({})", self.count())
    }
}

/// The receiver of interrupts.
enum InterruptReceiver {
    /// No receiver: the process ends at the first interrupt, since nothing needs cleanup.
    Unclaimed,
    /// Code that reads the count and cleans up by itself.
    Polling,
    /// A job.
    Job(JobHandle),
    /// A job with a guarantee.
    FaultTolerant(FaultTolerantJobHandle),
    /// No receiver any more: the outcome is fixed, and a late interrupt does not change it.
    Done,
}

/// A guard: interrupts are passed on while it lives; later interrupts don't change the outcome.
pub struct InterruptGuard<'a>(&'a Interrupts);

impl Interrupts {
    /// Starts to listen for Ctrl-C and SIGTERM.
    pub fn listen() -> Result<Self, Failure> {
        let interrupts = Interrupts::with(InterruptReceiver::Unclaimed);
        let listener = interrupts.clone();
        on_interrupt(move |_| listener.interrupt())?;
        Ok(interrupts)
    }

    /// Creates a counter of interrupts that another part of the program reports by
    /// [`interrupt`](Self::interrupt), such as the interpreter of another language.
    ///
    /// An interrupt before the job has started is only counted.
    pub fn manual() -> Self {
        Interrupts::with(InterruptReceiver::Polling)
    }

    fn with(receiver: InterruptReceiver) -> Self {
        Interrupts(Arc::new(Shared {
            count: AtomicU32::new(0),
            at_work: Mutex::new(receiver),
        }))
    }

    /// Counts an interrupt, and passes it on to the running job.
    pub fn interrupt(&self) {
        let count = self.0.count.fetch_add(1, Ordering::SeqCst) + 1;
        match &*self.at_work() {
            InterruptReceiver::Job(job) if count == 1 => job.drain(),
            InterruptReceiver::Job(job) if count < FORCED_EXIT_COUNT => job.cancel(),
            InterruptReceiver::FaultTolerant(job) if count == 1 => job.stop(),
            InterruptReceiver::FaultTolerant(job) if count < FORCED_EXIT_COUNT => job.cancel(),
            InterruptReceiver::Polling | InterruptReceiver::Done if count < FORCED_EXIT_COUNT => {}
            _ => {
                keyboard::restore_terminal();
                process::exit(EXIT_INTERRUPTED)
            }
        }
    }

    /// Removes the receiver: from then on a first signal ends the process again.
    pub fn release(&self) {
        *self.at_work() = InterruptReceiver::Unclaimed;
    }

    /// Acts like a first Ctrl-C, unless there was an interrupt already.
    pub fn quit(&self) {
        if self.count() == 0 {
            self.interrupt();
        }
    }

    /// Returns the number of interrupts.
    pub fn count(&self) -> u32 {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Passes interrupts on to a job: the first drains it, the second cancels it.
    pub fn drain(&self, job: &JobHandle) -> InterruptGuard<'_> {
        *self.at_work() = InterruptReceiver::Job(job.clone());
        InterruptGuard(self)
    }

    /// Passes interrupts on to a job with a guarantee: the first stops it with a last checkpoint,
    /// the second cancels it.
    pub fn stop(&self, job: &FaultTolerantJobHandle) -> InterruptGuard<'_> {
        *self.at_work() = InterruptReceiver::FaultTolerant(job.clone());
        InterruptGuard(self)
    }

    /// Only counts interrupts, for code that polls [`count`](Self::count).
    pub fn watch(&self) -> InterruptGuard<'_> {
        *self.at_work() = InterruptReceiver::Polling;
        InterruptGuard(self)
    }

    fn at_work(&self) -> MutexGuard<'_, InterruptReceiver> {
        self.0
            .at_work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InterruptGuard<'_> {
    fn drop(&mut self) {
        *self.0.at_work() = InterruptReceiver::Done;
    }
}
