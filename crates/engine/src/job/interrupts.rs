//! Handling of Ctrl-C and SIGTERM for jobs embedded in a program.
//!
//! One thread per process waits for the signals and passes each to all registered jobs that are not
//! over. It is started for the first job. Without registered jobs a signal has its default effect
//! and ends the process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::job::{JobHandle, JobShared};

/// The registered jobs.
static LISTENING: Mutex<Listening> = Mutex::new(Listening {
    is_started: false,
    jobs: Vec::new(),
});

struct Listening {
    is_started: bool,
    jobs: Vec<(Weak<dyn Interruptible>, ShutdownRequest)>,
}

/// A target of Ctrl-C, see [`end_on_interrupt`].
pub trait Interruptible: Send + Sync {
    /// Returns true if the target has ended.
    fn is_over(&self) -> bool;

    /// Ends the target gracefully, within a moment or two. Does not block.
    fn end(&self);

    /// Stops the target at once. Does not block.
    fn stop(&self);
}

impl Interruptible for JobShared {
    fn is_over(&self) -> bool {
        JobShared::is_over(self)
    }

    fn end(&self) {
        self.drain();
    }

    fn stop(&self) {
        self.cancel();
    }
}

/// The latest request to a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShutdownRequest {
    Nothing,
    ToEnd,
    ToStop,
}

/// Signals within this time count as one: `timeout` and some service managers send each signal
/// twice, to the child and to its process group.
const BURST_WINDOW: Duration = Duration::from_millis(100);

/// Calls `handle` with every SIGINT (Ctrl-C) and SIGTERM from now on until the process ends. These
/// signals no longer end the process.
///
/// For programs that need other signal handling than [`JobHandle::drain_on_ctrl_c`]; do not use
/// both. `handle` runs on a dedicated thread, not in the raw signal handler, so it may run any
/// code. Signals that arrive while it is busy are queued; several of one kind may be merged.
/// Signals within 100 ms of each other count as one, since `timeout` and others send each twice.
/// ```no_run
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// static COUNT: AtomicU32 = AtomicU32::new(0);
/// ardea_engine::on_interrupt(|_signal| {
///     COUNT.fetch_add(1, Ordering::SeqCst);
/// })?;
/// # Ok::<(), ardea_core::Error>(())
/// ```
///
/// # Errors
/// [`ErrorCode::LimitReached`] if the system refuses the thread or the handler.
pub fn on_interrupt(handle: impl FnMut(i32) + Send + 'static) -> Result<()> {
    Signals::new([SIGINT, SIGTERM])
        .and_then(|mut signals| {
            thread::Builder::new()
                .name("ardea-signals".into())
                .spawn(move || {
                    let mut bursts = Bursts::default();
                    let counts = |_: &i32| bursts.begins_another(Instant::now());
                    signals.forever().filter(counts).for_each(handle)
                })
        })
        .map(|_| ())
        .map_err(|error| {
            Error::new(ErrorCode::LimitReached, "cannot listen for Ctrl-C")
                .because(error)
                .hint("raise the limits of threads and open files (ulimit -u, ulimit -n)")
        })
}

/// A filter that merges bursts of signals.
#[derive(Default)]
struct Bursts {
    /// The time of the latest signal that counted.
    began: Option<Instant>,
}

impl Bursts {
    /// Returns true if a signal at time `now` counts.
    fn begins_another(&mut self, now: Instant) -> bool {
        let is_echo = self
            .began
            .is_some_and(|began| now.saturating_duration_since(began) < BURST_WINDOW);
        if !is_echo {
            self.began = Some(now);
        }
        !is_echo
    }
}

impl JobHandle {
    /// Makes Ctrl-C (SIGINT) or SIGTERM [drain](Self::drain) the job; a second one
    /// [cancels](Self::cancel) it, and a third ends the process. Once the job is over the signals
    /// have their default effect again. Signals within 100 ms of each other count as one.
    ///
    /// Several jobs may be registered; each gets every signal. Costs a sleeping thread. A program
    /// with its own signal handling should instead call [`drain`](Self::drain) from an ordinary
    /// thread.
    /// ```no_run
    /// # use ardea_core::{Dag, Result};
    /// # use ardea_engine::{JobConfig, JobStatus, Node, NodeConfig};
    /// # fn of(dag: Dag) -> Result<()> {
    /// let node = Node::start(NodeConfig::default())?;
    /// let job = node.submit(&dag, JobConfig::named("errors"))?;
    /// job.drain_on_ctrl_c()?;
    /// job.join()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the system refuses the thread or the handler.
    pub fn drain_on_ctrl_c(&self) -> Result<()> {
        let job: Arc<dyn Interruptible> = self.shared.clone();
        end_on_interrupt(&job)
    }
}

/// Makes Ctrl-C (SIGINT) or SIGTERM [end](Interruptible::end) `what`; a second one
/// [stops](Interruptible::stop) it, and a third ends the process. Like
/// [`JobHandle::drain_on_ctrl_c`], for targets other than a job. Only a weak reference is retained.
///
/// # Errors
/// [`ErrorCode::LimitReached`] if the system refuses the thread or the handler.
pub fn end_on_interrupt(what: &Arc<dyn Interruptible>) -> Result<()> {
    let mut listening = listening();
    if !listening.is_started {
        on_interrupt(interrupt)?;
        listening.is_started = true;
    }
    listening.retain_live();
    let what = Arc::downgrade(what);
    let is_same = |(other, _): &(Weak<dyn Interruptible>, ShutdownRequest)| {
        std::ptr::addr_eq(other.as_ptr(), what.as_ptr())
    };
    if !listening.jobs.iter().any(is_same) {
        listening.jobs.push((what, ShutdownRequest::Nothing));
    }
    Ok(())
}

impl Listening {
    fn retain_live(&mut self) {
        self.jobs
            .retain(|(job, _)| job.upgrade().is_some_and(|job| !job.is_over()));
    }
}

fn listening() -> MutexGuard<'static, Listening> {
    LISTENING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn interrupt(signal: i32) {
    let mut listening = listening();
    listening.retain_live();
    let mut is_unheard = true;
    for (job, asked) in &mut listening.jobs {
        let Some(job) = job.upgrade() else { continue };
        match *asked {
            ShutdownRequest::Nothing => {
                *asked = ShutdownRequest::ToEnd;
                job.end();
            }
            ShutdownRequest::ToEnd => {
                *asked = ShutdownRequest::ToStop;
                job.stop();
            }
            ShutdownRequest::ToStop => continue,
        }
        is_unheard = false;
    }
    if is_unheard {
        // Only fails for signals that don't exist.
        let _ = emulate_default_handler(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_soon_after_a_signal_is_one_with_it_and_its_echoes_start_no_other() {
        let (mut bursts, start) = (Bursts::default(), Instant::now());
        let counts: Vec<u64> = (0..250)
            .filter(|millis| bursts.begins_another(start + Duration::from_millis(*millis)))
            .collect();
        assert_eq!(counts, [0, 100, 200]);
    }
}
