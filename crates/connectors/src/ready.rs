//! Waiting for a file descriptor for a short turn, so that a blocking processor sees a cancellation soon.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The longest that a blocking processor waits before it looks at its signals again.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// Waits until one of `fds` is ready, at most `timeout`; says how many are. An interrupted wait is an early end.
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

/// Whether `fd` can be read, has ended or has failed, after at most `timeout`.
pub(crate) fn readable(fd: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    Ok(wait_any(&mut [PollFd::new(fd, PollFlags::IN)], timeout)? > 0)
}

/// Whether `fd` can be written or has failed, after at most `timeout`.
pub(crate) fn writable(fd: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    Ok(wait_any(&mut [PollFd::new(fd, PollFlags::OUT)], timeout)? > 0)
}

/// A reader that waits one [`TURN`] for bytes and then says [`ErrorKind::WouldBlock`].
pub(crate) struct InTurns<R>(pub R);

impl<R: Read + AsFd> Read for InTurns<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if readable(&self.0, TURN)? {
            self.0.read(buffer)
        } else {
            Err(ErrorKind::WouldBlock.into())
        }
    }
}

/// Whether an error of a read or write means no more than "not now".
pub(crate) fn not_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
