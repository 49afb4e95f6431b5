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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    /// A bell that is quiet: the looks after its last event are over.
    async fn quiet(bell: &mut Bell) {
        while bell.looks < AFTER.len() {
            bell.ring().await;
        }
    }

    #[tokio::test]
    async fn a_closed_lock_and_an_ended_session_ring() {
        let folder = tempfile::tempdir().expect("a folder");
        let (lock, sessions) = (folder.path().join("lock"), folder.path().join("sessions"));
        File::create(&lock).expect("made");
        fs::create_dir(&sessions).expect("made");
        let session = File::create(sessions.join("1")).expect("made");
        let mut bell = Bell::hang(&lock, &sessions);
        assert!(bell.events.is_some());

        drop(File::options().write(true).open(&lock).expect("opened"));
        bell.ring().await;
        assert_eq!(bell.looks, 0);
        quiet(&mut bell).await;

        drop(session);
        bell.ring().await;
        assert_eq!(bell.looks, 0);
        quiet(&mut bell).await;

        fs::remove_file(sessions.join("1")).expect("removed");
        bell.ring().await;
        assert_eq!(bell.looks, 0);
    }

    #[tokio::test]
    async fn without_events_it_rings_by_the_clock() {
        let nowhere = Path::new("/nowhere/at/all");
        let mut bell = Bell::hang(nowhere, nowhere);
        assert!(bell.events.is_none());
        for _ in 0..3 {
            bell.ring().await;
        }
        assert_eq!(bell.looks, AFTER.len());
    }
}
