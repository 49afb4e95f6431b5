//! A thread that waits for the end of processes. It sleeps until one ends, and serves all rings of
//! this process.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ardea_core::{Error, ErrorCode, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{read, write};

use crate::peer_process::PeerProcess;

type OnEnd = Box<dyn FnOnce() + Send>;

struct Watched {
    process: PeerProcess,
    on_end: OnEnd,
}

struct Watcher {
    /// Signals that a process was added.
    added: OwnedFd,
    queue: Mutex<Vec<Watched>>,
}

/// The watcher of this process, once its thread runs.
static WATCHER: Mutex<Option<Arc<Watcher>>> = Mutex::new(None);

/// Locks a mutex under which no code that can panic runs.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    /// Returns the watcher of this process; the first call starts its thread.
    fn get() -> Result<Arc<Self>> {
        let mut running = lock(&WATCHER);
        if let Some(watcher) = &*running {
            return Ok(Arc::clone(watcher));
        }
        let failed = |error: std::io::Error| {
            let what = "cannot start the thread that watches the producers of rings";
            Error::new(ErrorCode::LimitReached, what)
                .because(error)
                .hint("raise the limits of threads and file handles (ulimit -u, ulimit -n)")
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let watcher = Arc::new(Watcher {
            added: eventfd(0, flags).map_err(|error| failed(error.into()))?,
            queue: Mutex::default(),
        });
        let body = {
            let watcher = Arc::clone(&watcher);
            move || watcher.run()
        };
        let thread = thread::Builder::new().name("ring-watcher".into());
        thread.spawn(body).map_err(failed)?;
        *running = Some(Arc::clone(&watcher));
        Ok(watcher)
    }

    fn run(&self) {
        let mut watched: Vec<Watched> = Vec::new();
        loop {
            let mut handles = vec![PollFd::new(&self.added, PollFlags::IN)];
            handles.extend(
                watched
                    .iter()
                    .map(|one| PollFd::new(&one.process, PollFlags::IN)),
            );
            // An interruption leaves all handles without events.
            let _ = poll(&mut handles, None);
            let ready: Vec<bool> = handles
                .iter()
                .map(|one| !one.revents().is_empty())
                .collect();
            for index in (0..watched.len()).rev().filter(|index| ready[index + 1]) {
                (watched.swap_remove(index).on_end)();
            }
            // It fails if nothing was added.
            let _ = read(&self.added, &mut [0; 8]);
            watched.append(&mut lock(&self.queue));
        }
    }
}

/// Calls `on_end` on the watching thread when the process has ended.
///
/// # Errors
/// [`ErrorCode::LimitReached`] if the thread cannot be started.
pub(crate) fn watch(process: PeerProcess, on_end: OnEnd) -> Result<()> {
    let watcher = Watcher::get()?;
    lock(&watcher.queue).push(Watched { process, on_end });
    // It fails only if the count is at its maximum, which wakes the thread as well.
    let _ = write(&watcher.added, &1u64.to_ne_bytes());
    Ok(())
}
