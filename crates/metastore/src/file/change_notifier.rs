//! Notification of changes made by other processes: the kernel reports when a file is closed.
//!
//! Every change opens the root's lock file for writing and closes it at its end; every session
//! keeps its file open for writing. `inotify` reports both kinds of close, also when a process
//! dies. So watchers are woken only after a change, and also when a process is killed in the middle
//! of one.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;

/// Poll interval in addition to events. It covers changes without events, for example by another
/// host on a shared directory.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Poll interval without `inotify` (its watches are exhausted).
const FALLBACK_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Delays of additional checks after an event, because the kernel reports the close a moment before
/// it releases the lock.
const DELAYS_AFTER_EVENT: [Duration; 2] = [Duration::from_millis(3), Duration::from_millis(50)];

/// Waits for possible changes.
#[derive(Debug)]
pub(super) struct ChangeNotifier {
    /// The inotify descriptor, read as a pipe: both are descriptors that become readable.
    events: Option<Receiver>,
    /// Number of checks made after the last event.
    looks: usize,
}

impl ChangeNotifier {
    /// Starts watching the lock file and the folder of sessions.
    pub(super) fn start(lock: &Path, sessions: &Path) -> Self {
        ChangeNotifier {
            events: listen(lock, sessions).ok(),
            looks: DELAYS_AFTER_EVENT.len(),
        }
    }

    /// Waits until the next check is due: at once after an event, once or twice shortly after it,
    /// otherwise at the poll interval.
    pub(super) async fn wait_for_check(&mut self) {
        let (wait, next) = match DELAYS_AFTER_EVENT.get(self.looks) {
            Some(wait) => (*wait, self.looks + 1),
            None if self.events.is_some() => (POLL_INTERVAL, self.looks),
            None => (FALLBACK_POLL_INTERVAL, self.looks),
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

/// Waits for events and discards them, since their contents do not matter. Returns false if no more
/// events will follow.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    /// Waits until the checks after the last event are over.
    async fn quiet(bell: &mut ChangeNotifier) {
        while bell.looks < DELAYS_AFTER_EVENT.len() {
            bell.wait_for_check().await;
        }
    }

    #[tokio::test]
    async fn a_closed_lock_and_an_ended_session_ring() {
        let folder = tempfile::tempdir().expect("a folder");
        let (lock, sessions) = (folder.path().join("lock"), folder.path().join("sessions"));
        File::create(&lock).expect("made");
        fs::create_dir(&sessions).expect("made");
        let session = File::create(sessions.join("1")).expect("made");
        let mut bell = ChangeNotifier::start(&lock, &sessions);
        assert!(bell.events.is_some());

        drop(File::options().write(true).open(&lock).expect("opened"));
        bell.wait_for_check().await;
        assert_eq!(bell.looks, 0);
        quiet(&mut bell).await;

        drop(session);
        bell.wait_for_check().await;
        assert_eq!(bell.looks, 0);
        quiet(&mut bell).await;

        fs::remove_file(sessions.join("1")).expect("removed");
        bell.wait_for_check().await;
        assert_eq!(bell.looks, 0);
    }

    #[tokio::test]
    async fn without_events_it_rings_by_the_clock() {
        let nowhere = Path::new("/nowhere/at/all");
        let mut bell = ChangeNotifier::start(nowhere, nowhere);
        assert!(bell.events.is_none());
        for _ in 0..3 {
            bell.wait_for_check().await;
        }
        assert_eq!(bell.looks, DELAYS_AFTER_EVENT.len());
    }
}
