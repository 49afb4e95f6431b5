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
use crate::protocol::{InstanceFrame, SharedFrame, Violation};
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
    outgoing: VecDeque<SharedFrame>,
    incoming: VecDeque<ChildEvent>,
    incoming_bytes: usize,
    /// True if the thread stopped reading until incoming events are taken.
    is_paused: bool,
    deadline: Option<AnswerDeadline>,
    must_end: bool,
    /// True if events have no owner any more, and are dropped.
    is_detached: bool,
    /// The process group; `None` before the start and after the end.
    group: Option<Pid>,
}

impl Exchange {
    /// Adds an event for the owner.
    fn push(&mut self, event: ChildEvent) {
        if self.is_detached {
            return;
        }
        if let ChildEvent::Frame(frame) = &event {
            self.incoming_bytes += frame.payload.len();
        }
        self.is_paused |= self.incoming_bytes > MAX_RECEIVED_BYTES;
        self.incoming.push_back(event);
    }

    /// Returns the time at which a process that was last heard at `last_heard` has not answered.
    ///
    /// There is none while the owner has not taken all events: the process may wait for it.
    fn answer_due(&self, last_heard: Instant) -> Option<Instant> {
        let deadline = self.deadline?;
        let is_drained = self.incoming.is_empty() && !self.is_paused;
        is_drained.then(|| deadline.since.max(last_heard) + deadline.timeout)
    }
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
    pub fn send(&self, frames: impl IntoIterator<Item = SharedFrame>) {
        let mut frames = frames.into_iter().peekable();
        if frames.peek().is_some() {
            self.shared.lock().outgoing.extend(frames);
            self.shared.signal();
        }
    }

    /// Sets the maximum wait for the next frame, or removes it. A process that exceeds it is
    /// killed. The wait begins when it is set after it was removed, with each frame, and when the
    /// owner has taken all events.
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
        if exchange.incoming.is_empty() {
            return;
        }
        events.append(&mut exchange.incoming);
        exchange.incoming_bytes = 0;
        if let Some(deadline) = &mut exchange.deadline {
            deadline.since = Instant::now();
        }
        if std::mem::take(&mut exchange.is_paused) {
            drop(exchange);
            self.shared.signal();
        }
    }

    /// Leaves the process to its thread, which serves it until its end or its deadline.
    pub fn detach(mut self) {
        self.is_detached = true;
        let mut exchange = self.shared.lock();
        exchange.is_detached = true;
        exchange.incoming.clear();
        exchange.is_paused = false;
        drop(exchange);
        self.shared.signal();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{FrameHead, FrameType};

    fn handle() -> ChildHandle {
        let changed = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        ChildHandle {
            shared: Arc::new(Shared {
                exchange: Mutex::default(),
                changed,
            }),
            is_detached: false,
        }
    }

    fn push(child: &ChildHandle, bytes: usize) {
        let head = FrameHead::new(FrameType::Result, 1);
        let frame = InstanceFrame::new(head, vec![0; bytes]);
        child.shared.lock().push(ChildEvent::Frame(frame));
    }

    #[test]
    fn the_wait_for_an_answer_begins_when_the_owner_has_taken_all_events() {
        let child = handle();
        let start = Instant::now();
        let timeout = Duration::from_secs(60);
        child.expect_answer(Some(timeout));
        push(&child, 1);
        assert_eq!(child.shared.lock().answer_due(start), None);
        // The time that the owner needs does not count.
        let before = Instant::now();
        child.take_events(&mut VecDeque::new());
        let due = child.shared.lock().answer_due(start);
        assert!(due >= Some(before + timeout), "{due:?}");
    }

    #[test]
    fn a_detached_process_has_a_deadline_whatever_it_sends() {
        let child = handle();
        let shared = Arc::clone(&child.shared);
        child.expect_answer(Some(Duration::from_secs(1)));
        push(&child, MAX_RECEIVED_BYTES + 1);
        assert!(shared.lock().is_paused);
        child.detach();
        let sent = ChildHandle {
            shared,
            is_detached: true,
        };
        push(&sent, 1);
        let exchange = sent.shared.lock();
        assert!(exchange.answer_due(Instant::now()).is_some());
        assert!(!exchange.is_paused);
    }
}
