//! The process of an instance and the thread that serves it.
//!
//! The thread starts the process, passes frames in both directions, logs the output, and waits for
//! the end. The owner of the [`ChildHandle`] never waits for the process.

mod child;
mod control_group;
mod io_thread;
mod limits;
mod output;
mod usage;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{InstanceContext, Waker};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::command::InstanceCommand;
use crate::protocol::{InstanceFrame, Violation};
pub(crate) use child::{StartedChild, describe};
pub use output::{OutputLine, OutputSink, OutputStream, log_to_stderr};

/// Received bytes above which the thread stops reading until the owner has taken them.
const MAX_RECEIVED_BYTES: usize = 64 << 20;

/// An event of a process.
#[derive(Debug)]
pub enum ChildEvent {
    /// A frame was received.
    Frame(InstanceFrame),
    /// Received bytes are no frame. The process is killed.
    Violation(Violation),
    /// The process has ended. No event follows.
    Ended(ChildEnd),
    /// The process could not be started. No event follows.
    NotStarted(io::Error),
}

/// The end of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildEnd {
    /// The end as the rest of a sentence, such as `exited with status 1`.
    pub how: String,
    /// True if the process exited with status zero.
    pub is_success: bool,
    /// The last lines of standard error.
    pub last_lines: Vec<String>,
}

/// The maximum wait for the next frame of a process.
#[derive(Clone, Copy, Debug)]
struct AnswerDeadline {
    since: Instant,
    timeout: Duration,
}

/// The data shared by the owner and the thread.
#[derive(Debug, Default)]
struct Exchange {
    outgoing: VecDeque<InstanceFrame>,
    incoming: VecDeque<ChildEvent>,
    incoming_bytes: usize,
    /// True if the thread stopped reading until incoming events are taken.
    is_paused: bool,
    deadline: Option<AnswerDeadline>,
    must_end: bool,
    /// The process group; `None` before the start and after the end.
    group: Option<Pid>,
}

#[derive(Debug)]
struct Shared {
    exchange: Mutex<Exchange>,
    /// Signals a change of the exchange to the thread.
    changed: OwnedFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self) {
        // It fails only if the count is at its maximum, which wakes the thread as well.
        let _ = rustix::io::write(&self.changed, &1u64.to_ne_bytes());
    }
}

/// The identity of an instance, its waker, and the destinations of its output and counters.
#[derive(Clone)]
pub struct ChildContext {
    /// The instance, for log lines and counters.
    pub instance: InstanceContext,
    /// Called after each event.
    pub waker: Waker,
    /// The destination of output lines.
    pub output: Arc<OutputSink>,
}

/// A running process and its connection. Dropping it kills the process and its descendants.
#[derive(Debug)]
pub struct ChildHandle {
    shared: Arc<Shared>,
    is_detached: bool,
}

impl ChildHandle {
    /// Starts the process of `command` after `delay`.
    ///
    /// # Errors
    /// If the system has no more threads or file descriptors.
    pub fn start(
        command: Arc<InstanceCommand>,
        context: ChildContext,
        delay: Duration,
    ) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Arc::new(Shared {
            exchange: Mutex::default(),
            changed: eventfd(0, flags)?,
        });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("ardea-instance".into())
            .spawn(move || io_thread::run(&of_thread, &command, &context, delay))?;
        Ok(ChildHandle {
            shared,
            is_detached: false,
        })
    }

    /// Sends frames. They are queued; the caller bounds their number.
    pub fn send(&self, frames: impl IntoIterator<Item = InstanceFrame>) {
        let mut frames = frames.into_iter().peekable();
        if frames.peek().is_some() {
            self.shared.lock().outgoing.extend(frames);
            self.shared.signal();
        }
    }

    /// Sets the maximum wait for the next frame, or removes it. A process that exceeds it is
    /// killed. The wait begins when it is set after it was removed, and with each frame.
    pub fn expect_answer(&self, timeout: Option<Duration>) {
        let mut exchange = self.shared.lock();
        match (timeout, &mut exchange.deadline) {
            (None, deadline) => *deadline = None,
            (Some(timeout), Some(deadline)) if deadline.timeout == timeout => {}
            (Some(timeout), deadline) => {
                *deadline = Some(AnswerDeadline {
                    since: Instant::now(),
                    timeout,
                });
                drop(exchange);
                self.shared.signal();
            }
        }
    }

    /// Moves the events since the last call to the end of `events`.
    pub fn take_events(&self, events: &mut VecDeque<ChildEvent>) {
        let mut exchange = self.shared.lock();
        events.append(&mut exchange.incoming);
        exchange.incoming_bytes = 0;
        if std::mem::take(&mut exchange.is_paused) {
            drop(exchange);
            self.shared.signal();
        }
    }

    /// Leaves the process to its thread, which serves it until its end or its deadline.
    pub fn detach(mut self) {
        self.is_detached = true;
    }

    /// Kills the process and its descendants, without waiting for their end.
    pub fn kill(&self) {
        let mut exchange = self.shared.lock();
        exchange.must_end = true;
        if let Some(group) = exchange.group {
            // It fails if all of them have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        drop(exchange);
        self.shared.signal();
    }
}

impl Drop for ChildHandle {
    fn drop(&mut self) {
        if !self.is_detached {
            self.kill();
        }
    }
}
