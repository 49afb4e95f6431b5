//! Unambiguous identities of processes: the pid, the start time, and the boot id of the machine.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};
use serde::{Deserialize, Serialize};

use crate::Ending;

/// The identity of a process. The pid alone is not sufficient, because the kernel reuses pids.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessMark {
    pid: i32,
    /// The start time, in ticks since boot.
    started_ticks: u64,
    /// The boot id of the machine.
    boot: String,
}

impl ProcessMark {
    /// Returns the identity of the process that has this pid now.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        let stat = Stat::of(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(ProcessMark {
            pid,
            started_ticks: stat.started_ticks,
            boot: boot()?,
        })
    }

    /// Returns the pid.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns a handle to the process while it exists; a zombie counts as existing.
    pub(crate) fn open(&self) -> io::Result<Option<ProcessHandle>> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(None);
        };
        if boot()? != self.boot {
            return Ok(None);
        }
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The start time is checked after the handle was opened. It differs if the pid was reused.
        let same = Stat::of(self.pid)?.is_some_and(|stat| stat.started_ticks == self.started_ticks);
        Ok(same.then_some(ProcessHandle { pid, fd }))
    }
}

/// A handle to one process, which stays valid when the pid is reused.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    pid: Pid,
    fd: OwnedFd,
}

impl ProcessHandle {
    /// Returns true if the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut fds, Some(&now)), Ok(ready) if ready > 0)
    }

    /// Returns a descriptor that is readable when the process has ended.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Sends SIGTERM to the process. No effect if the process has ended.
    pub(crate) fn terminate(&self) {
        let _ = pidfd_send_signal(&self.fd, Signal::TERM);
    }

    /// Kills the process and its group.
    pub(crate) fn kill_group(&self) {
        // The pid of an ended process may be reused; it is not reused while a process or group has
        // it.
        if !self.has_ended() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Kills the process alone.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.fd, Signal::KILL);
    }

    /// Returns the exit status of a child of this process, without reaping it.
    pub(crate) fn exit_status_of_child(&self) -> Option<Ending> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.fd.as_fd()), options).ok()??;
        let signal = status.terminating_signal().map(Ending::Signal);
        signal.or(status.exit_status().map(Ending::Code))
    }

    /// Reaps the process, if it has ended and is a child of this process.
    pub(crate) fn reap(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(self.fd.as_fd()), options);
    }

    /// Returns true if the process is a zombie and its parent, other than init, has not reaped it
    /// yet.
    pub(crate) fn is_awaited_by_parent(&self) -> bool {
        let stat = Stat::of(self.pid.as_raw_nonzero().get());
        matches!(stat, Ok(Some(stat)) if stat.state == 'Z' && stat.parent > 1)
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The kernel's status of a process, from `/proc/PID/stat`.
struct Stat {
    state: char,
    parent: i32,
    started_ticks: u64,
}

impl Stat {
    fn of(pid: i32) -> io::Result<Option<Stat>> {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(text) => Ok(Stat::read(&text)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Parses the status. The program's name is in parentheses, and may itself contain parentheses
    /// and blanks.
    fn read(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let started_ticks = fields.nth(17)?.parse().ok()?;
        Some(Stat {
            state,
            parent,
            started_ticks,
        })
    }
}

/// Returns true if `error` means that the process does not exist.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

fn boot() -> io::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_hide_the_start_time() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 2 1 0 0 20 0 1 0 4711 0 0";
        let stat = Stat::read(text).expect("it is one");
        assert_eq!(
            (stat.state, stat.parent, stat.started_ticks),
            ('S', 1, 4711)
        );
        assert!(Stat::read("7 (a").is_none());
    }

    #[test]
    fn a_process_is_found_by_its_mark_and_another_of_its_number_is_not() {
        let mine = ProcessMark::of(std::process::id()).expect("this process");
        let handle = mine.open().expect("looked").expect("it runs");
        assert!(!handle.has_ended());
        assert_eq!(handle.exit_status_of_child(), None);
        let another = ProcessMark {
            started_ticks: mine.started_ticks + 1,
            ..mine.clone()
        };
        assert!(another.open().expect("looked").is_none());
        let before = ProcessMark {
            boot: "another run of the machine".to_string(),
            ..mine
        };
        assert!(before.open().expect("looked").is_none());
    }

    #[test]
    fn a_child_tells_how_it_ended_until_it_is_reaped() {
        let mut command = Command::new("sh");
        let child = command
            .args(["-c", "read -r line; exit 3"])
            .stdin(Stdio::piped());
        let mut child = child.spawn().expect("a shell");
        let mark = ProcessMark::of(child.id()).expect("it runs");
        let handle = mark.open().expect("looked").expect("it runs");
        drop(child.stdin.take());
        while !handle.has_ended() {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        assert_eq!(handle.exit_status_of_child(), Some(Ending::Code(3)));
        assert_eq!(handle.exit_status_of_child(), Some(Ending::Code(3)));
        handle.reap();
        assert_eq!(handle.exit_status_of_child(), None);
        assert!(child.wait().is_err(), "there is nothing left to wait for");
        assert!(mark.open().expect("looked").is_none());
    }
}
