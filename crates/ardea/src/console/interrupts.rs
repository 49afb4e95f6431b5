//! Ctrl-C and SIGTERM: the first lets what runs come to its end, the second stops it at once.
//!
//! One thread waits for the signals. It acts on the job itself, so that a first Ctrl-C drains at
//! once whatever the main thread is at; the main thread sees from the count what there is to say. A
//! third one ends the process there and then, for what can't be stopped. (A program without a
//! console has `JobHandle::drain_on_ctrl_c`; this one also has files to tidy up, and things to
//! say.)

use std::fmt;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_checkpoint::local::SurvivingHandle;
use ardea_engine::{JobHandle, on_interrupt};

use super::failure::Failure;
use super::keyboard;

const EXIT_INTERRUPTED: i32 = 130;
/// From this one on the process ends at once.
const UNBEARABLE: u32 = 3;

/// Counts interrupts and passes them on to the job at work.
#[derive(Clone)]
pub struct Interrupts(Arc<Shared>);

struct Shared {
    count: AtomicU32,
    at_work: Mutex<AtWork>,
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interrupts({})", self.count())
    }
}

/// Who has to be told.
enum AtWork {
    /// Nobody: the process ends at the first interrupt, nothing being half done.
    Nobody,
    /// Code that looks at the count and tidies up behind itself.
    Watchful,
    /// A job.
    Job(JobHandle),
    /// A job that survives.
    Surviving(SurvivingHandle),
    /// Nobody any more: what was to be done is done or has failed, and its outcome is not changed by a late interrupt.
    Done,
}

/// While this lives, interrupts are passed on; afterwards they change nothing about the outcome.
pub struct Passing<'a>(&'a Interrupts);

impl Interrupts {
    /// Starts to listen.
    pub fn listen() -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            count: AtomicU32::new(0),
            at_work: Mutex::new(AtWork::Nobody),
        });
        let interrupts = Interrupts(shared);
        let listener = interrupts.clone();
        on_interrupt(move |_| listener.interrupt())?;
        Ok(interrupts)
    }

    fn interrupt(&self) {
        let count = self.0.count.fetch_add(1, Ordering::SeqCst) + 1;
        match &*self.at_work() {
            AtWork::Job(job) if count == 1 => job.drain(),
            AtWork::Job(job) if count < UNBEARABLE => job.cancel(),
            AtWork::Surviving(job) if count == 1 => job.stop(),
            AtWork::Surviving(job) if count < UNBEARABLE => job.cancel(),
            AtWork::Watchful | AtWork::Done if count < UNBEARABLE => {}
            _ => {
                keyboard::give_back();
                process::exit(EXIT_INTERRUPTED)
            }
        }
    }

    /// Nothing is at work any more, and the process has other things to do: a signal ends it again.
    pub fn release(&self) {
        *self.at_work() = AtWork::Nobody;
    }

    /// Does what a first Ctrl-C does, unless there was one.
    pub fn quit(&self) {
        if self.count() == 0 {
            self.interrupt();
        }
    }

    /// How many there have been.
    pub fn count(&self) -> u32 {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Passes interrupts on to a job: the first drains it, the second cancels it.
    pub fn drain(&self, job: &JobHandle) -> Passing<'_> {
        *self.at_work() = AtWork::Job(job.clone());
        Passing(self)
    }

    /// Passes interrupts on to a job that survives: the first stops it with a last snapshot, the second cancels it.
    pub fn stop(&self, job: &SurvivingHandle) -> Passing<'_> {
        *self.at_work() = AtWork::Surviving(job.clone());
        Passing(self)
    }

    /// Only counts interrupts, for code that looks at [`count`](Self::count) often enough.
    pub fn watch(&self) -> Passing<'_> {
        *self.at_work() = AtWork::Watchful;
        Passing(self)
    }

    fn at_work(&self) -> MutexGuard<'_, AtWork> {
        self.0
            .at_work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        *self.0.at_work() = AtWork::Done;
    }
}
