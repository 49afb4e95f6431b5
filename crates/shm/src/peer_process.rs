//! The process at the other end of a ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use ardea_core::{Error, ErrorCode, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};

/// A handle of a process, which stays with that process when its number is used again.
#[derive(Debug)]
pub(crate) struct PeerProcess(OwnedFd);

impl PeerProcess {
    /// Opens the process at the other end of a socket: the one that connected it, or that created
    /// the listener.
    ///
    /// The other end must be known to live after this call, for example by a message that follows.
    /// Otherwise its number may belong to another process by now.
    ///
    /// # Errors
    /// [`ErrorCode::PeerLost`] if the process has ended.
    pub(crate) fn of(stream: &UnixStream) -> Result<Self> {
        socket_peercred(stream)
            .and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()))
            .map(PeerProcess)
            .map_err(|error| {
                let what = "cannot open the process at the other end of a socket";
                Error::new(ErrorCode::PeerLost, what).because(error)
            })
    }

    /// Returns true if all threads of the process have ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut handles = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut handles, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for PeerProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
