//! Ctrl-C and SIGTERM in a program that runs jobs of its own.
//!
//! One thread of the process waits for the signals, from the first job on that asks for it, and passes each on to all such jobs
//! that are not over. When there is none a signal does what it does by default: it ends the process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::job::{JobHandle, JobShared};

/// The jobs that listen.
static LISTENING: Mutex<Listening> = Mutex::new(Listening {
    is_started: false,
    jobs: Vec::new(),
});

struct Listening {
    is_started: bool,
    jobs: Vec<(Weak<dyn Interruptible>, Asked)>,
}

/// What Ctrl-C brings to its end, see [`end_on_interrupt`].
pub trait Interruptible: Send + Sync {
    /// Whether it has ended.
    fn is_over(&self) -> bool;

    /// Brings it to a good end, as far as that takes no more than a moment or two. Does not block.
    fn end(&self);

    /// Stops it at once. Does not block.
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

/// What a job has been asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Nothing,
    ToEnd,
    ToStop,
}

/// Signals that come within this time of one are one with it. `timeout` sends each twice, to its child and to the child's group, and
/// so may a service manager; nobody presses Ctrl-C twice so quickly.
const ONE_INTERRUPT: Duration = Duration::from_millis(100);

/// Calls `handle` with every SIGINT (Ctrl-C) and SIGTERM from now on, for as long as the process lives; they no longer end it.
///
/// For a program that does more at a signal than [`JobHandle::drain_on_ctrl_c`] does, and then instead of that. `handle` runs on a
/// thread of its own, not within the raw signal handler, so it may do what any code may; signals that come while it is busy are
/// passed on behind it, several of one kind perhaps as one. Those that come within 100 ms of one are one with it, and not passed on:
/// `timeout` and others send each twice.
///
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

/// Tells signals from their echoes.
#[derive(Default)]
struct Bursts {
    /// When the latest one that counted came.
    began: Option<Instant>,
}

impl Bursts {
    /// Whether a signal that came `now` counts.
    fn begins_another(&mut self, now: Instant) -> bool {
        let is_echo = self
            .began
            .is_some_and(|began| now.saturating_duration_since(began) < ONE_INTERRUPT);
        if !is_echo {
            self.began = Some(now);
        }
        !is_echo
    }
}

impl JobHandle {
    /// From now on Ctrl-C (SIGINT) or SIGTERM [drains](Self::drain) the job, a second one [cancels](Self::cancel) it, and a third
    /// ends the process. Once the job is over they do again what they do by default. Signals within 100 ms of each other count as one.
    ///
    /// Several jobs may ask for it, and each gets every signal. Costs a thread that sleeps. For a program that handles signals
    /// otherwise: don't call this, but `drain` from an ordinary thread of yours.
    ///
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

/// From now on Ctrl-C (SIGINT) or SIGTERM [ends](Interruptible::end) this, a second one [stops](Interruptible::stop) it, and a third ends the
/// process: what [`JobHandle::drain_on_ctrl_c`] does, for what is more than a job. It is not kept alive by that.
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
    let is_same = |(other, _): &(Weak<dyn Interruptible>, Asked)| {
        std::ptr::addr_eq(other.as_ptr(), what.as_ptr())
    };
    if !listening.jobs.iter().any(is_same) {
        listening.jobs.push((what, Asked::Nothing));
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
            Asked::Nothing => {
                *asked = Asked::ToEnd;
                job.end();
            }
            Asked::ToEnd => {
                *asked = Asked::ToStop;
                job.stop();
            }
            Asked::ToStop => continue,
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
