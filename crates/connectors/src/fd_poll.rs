//! Polling of file descriptors with a short timeout, so that blocking processors notice a
//! cancellation soon.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The maximum time that a blocking processor waits between two checks of its signals.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// Waits until one of `fds` is ready, at most `timeout`; returns the number of ready descriptors. A
/// signal may end the wait early.
pub(crate) fn wait_any(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<usize> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(fds, Some(&timeout)) {
        Ok(ready) => Ok(ready),
        Err(Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Waits at most `timeout`; returns true if `fd` is readable, has ended or has failed.
pub(crate) fn readable(fd: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    Ok(wait_any(&mut [PollFd::new(fd, PollFlags::IN)], timeout)? > 0)
}

/// Waits at most `timeout`; returns true if `fd` is writable or has failed.
pub(crate) fn writable(fd: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    Ok(wait_any(&mut [PollFd::new(fd, PollFlags::OUT)], timeout)? > 0)
}

/// A reader that waits one [`TURN`] for bytes and then returns [`ErrorKind::WouldBlock`].
pub(crate) struct CancellablePoll<R>(pub R);

impl<R: Read + AsFd> Read for CancellablePoll<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if readable(&self.0, TURN)? {
            self.0.read(buffer)
        } else {
            Err(ErrorKind::WouldBlock.into())
        }
    }
}

/// Returns true if the error of a read or write only means that it must be retried.
pub(crate) fn not_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
