//! Who wakes the watchers of other processes: the kernel, when a file is closed.
//!
//! Every change opens the root's lock file for writing and closes it when it is done; every session holds its file open
//! for writing as long as it lives. `inotify` tells of both, whether a process closed the file or died with it. So a
//! change wakes everybody only after it was made, and a process that is killed in the middle wakes them as well.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;

/// After this long somebody looks even if nothing rang: against what no event tells, such as another host that writes
/// to a shared directory.
const SLOW: Duration = Duration::from_secs(1);

/// Where there is no `inotify` (its watches are used up), somebody looks this often instead.
const FALLBACK: Duration = Duration::from_millis(100);

/// The kernel tells that a file is closed a moment before it gives up the lock: after an event somebody looks again.
const AFTER: [Duration; 2] = [Duration::from_millis(3), Duration::from_millis(50)];

/// Rings when something may have changed.
#[derive(Debug)]
pub(super) struct Bell {
    /// The runtime reads events as it reads a pipe: both are descriptors that become readable.
    events: Option<Receiver>,
    /// How many looks after the last event have been taken.
    looks: usize,
}

impl Bell {
    /// Rings when the lock file is closed, or something happens in the folder of sessions.
    pub(super) fn hang(lock: &Path, sessions: &Path) -> Self {
        Bell {
            events: listen(lock, sessions).ok(),
            looks: AFTER.len(),
        }
    }

    /// Waits until somebody should look: at once after an event, once or twice shortly after it, else slowly.
    pub(super) async fn ring(&mut self) {
        let (wait, next) = match AFTER.get(self.looks) {
            Some(wait) => (*wait, self.looks + 1),
            None if self.events.is_some() => (SLOW, self.looks),
            None => (FALLBACK, self.looks),
        };
        let Some(events) = &self.events else {
            tokio::time::sleep(wait).await;
            return;
        };
        tokio::select! {
            is_alive = drained(events) => {
                self.looks = 0;
                if !is_alive {
                    self.events = None;
                }
            }
            () = tokio::time::sleep(wait) => self.looks = next,
        }
    }
}

fn listen(lock: &Path, sessions: &Path) -> io::Result<Receiver> {
    let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    inotify::add_watch(&descriptor, lock, WatchFlags::CLOSE_WRITE)?;
    let ends = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE;
    inotify::add_watch(&descriptor, sessions, ends)?;
    Receiver::from_owned_fd_unchecked(descriptor)
}

/// Waits for events and takes them all; what they are does not matter. `false` if there will be no more.
async fn drained(events: &Receiver) -> bool {
    let mut buffer = [0; 4096];
    if events.readable().await.is_err() {
        return false;
    }
    loop {
        match events.try_read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}
