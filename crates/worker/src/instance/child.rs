//! A child process whose exit can be polled together with a socket.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A child process; dropping it kills the process if it still runs.
pub(super) struct ChildProcess {
    child: Child,
    /// A descriptor that becomes readable when the process ends.
    end: OwnedFd,
}

impl ChildProcess {
    /// Wraps a child process.
    ///
    /// # Errors
    /// If the system has no more file descriptors. The child is killed then.
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

    /// Returns the process id.
    pub(super) fn number(&self) -> u32 {
        self.child.id()
    }

    /// Blocks until the process has ended or `socket` is readable or closed. Returns true in the
    /// latter case.
    pub(super) fn wait_readable(&self, socket: &UnixStream) -> io::Result<bool> {
        let readable = PollFlags::IN;
        let mut fds = [
            PollFd::new(socket, readable),
            PollFd::new(&self.end, readable),
        ];
        wait(&mut fds, None)?;
        // Messages written before the exit are read first.
        Ok(!fds[0].revents().is_empty())
    }

    /// Waits for the exit status; `None` after the timeout `most`.
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

/// Blocks until one descriptor is ready, or until the timeout.
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
