//! A process that was started here, and the wait for its end: by a descriptor of it, so that it costs nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process that is killed, at the latest, when this is dropped.
pub(super) struct ChildProcess {
    child: Child,
    /// Becomes readable when the process ends.
    end: OwnedFd,
}

impl ChildProcess {
    /// # Errors
    /// If the system has no more room for open files; the child is killed then.
    pub(super) fn of(mut child: Child) -> io::Result<Self> {
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(end) => Ok(ChildProcess { child, end }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process has ended or `socket` has something to read, its end too; whether the latter. Costs nothing meanwhile.
    pub(super) fn is_heard(&self, socket: &UnixStream) -> io::Result<bool> {
        let readable = PollFlags::IN;
        let mut fds = [
            PollFd::new(socket, readable),
            PollFd::new(&self.end, readable),
        ];
        wait(&mut fds, None)?;
        // What it has said before it ended is heard first.
        Ok(!fds[0].revents().is_empty())
    }

    /// How it ended; none if that takes longer than `most`.
    pub(super) fn ends_within(&mut self, most: Duration) -> Option<ExitStatus> {
        let mut fds = [PollFd::new(&self.end, PollFlags::IN)];
        let _ = wait(&mut fds, Some(most));
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until one of them is ready, at most so long.
fn wait(fds: &mut [PollFd<'_>], most: Option<Duration>) -> io::Result<()> {
    let until = most.map(|most| Instant::now() + most);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return Ok(polled.map(drop)?),
        }
    }
}
