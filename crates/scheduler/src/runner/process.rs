//! Processes that can't be mistaken for others: by number, kernel start time, and boot of the machine.

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

/// Which process: its number alone is given to another one some time after it has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessMark {
    pid: i32,
    /// When it was started, in ticks since the machine was.
    started_ticks: u64,
    /// Which run of the machine.
    boot: String,
}

impl ProcessMark {
    /// The process that has this number now.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        let stat = Stat::of(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(ProcessMark {
            pid,
            started_ticks: stat.started_ticks,
            boot: boot()?,
        })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// A handle on the process, as long as something is left of it; a dead one that nobody has waited for counts as left.
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
        // Looked at behind the handle: if the number was another's then, it can't be this one's now.
        let same = Stat::of(self.pid)?.is_some_and(|stat| stat.started_ticks == self.started_ticks);
        Ok(same.then_some(ProcessHandle { pid, fd }))
    }
}

/// A handle on one process, which stays on that process whatever happens to its number.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    pid: Pid,
    fd: OwnedFd,
}

impl ProcessHandle {
    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut fds, Some(&now)), Ok(ready) if ready > 0)
    }

    /// Ready to read when the process has ended.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Asks it to end. That it has ended before is fine.
    pub(crate) fn ask_to_end(&self) {
        let _ = pidfd_send_signal(&self.fd, Signal::TERM);
    }

    /// Ends it and all of its group.
    pub(crate) fn kill_group(&self) {
        // A number is not given away while a process or a group has it; one that has ended may have lost it.
        if !self.has_ended() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Ends it alone.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.fd, Signal::KILL);
    }

    /// How it has ended, if it is a child of this process; it is not forgotten by that.
    pub(crate) fn ending_of_child(&self) -> Option<Ending> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.fd.as_fd()), options).ok()??;
        let signal = status.terminating_signal().map(Ending::Signal);
        signal.or(status.exit_status().map(Ending::Code))
    }

    /// Has the kernel forget it, if it has ended and is a child of this process.
    pub(crate) fn reap(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(self.fd.as_fd()), options);
    }

    /// Whether it has ended and its parent, a process other than the first of all, has yet to ask how.
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

/// What the kernel says of a process.
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

    /// The program's name stands in parentheses, and may have parentheses and blanks in it.
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

/// Whether this says that there is no such process any more.
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
        assert_eq!(handle.ending_of_child(), None);
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
        assert_eq!(handle.ending_of_child(), Some(Ending::Code(3)));
        assert_eq!(handle.ending_of_child(), Some(Ending::Code(3)));
        handle.reap();
        assert_eq!(handle.ending_of_child(), None);
        assert!(child.wait().is_err(), "there is nothing left to wait for");
        assert!(mark.open().expect("looked").is_none());
    }
}
