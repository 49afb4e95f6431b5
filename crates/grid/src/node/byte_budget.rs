//! Bound on the bytes of operations waiting for the driver.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Poll interval of a thread that waits for free bytes, since a notification may be missed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A semaphore over bytes. A request for more than the maximum succeeds if nothing else is taken.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    most: usize,
    used: AtomicUsize,
    waiting: AtomicUsize,
    gate: Mutex<()>,
    freed: Condvar,
}

/// Bytes taken from a [`ByteBudget`], returned on drop.
#[derive(Debug)]
pub(crate) struct BytePermit {
    room: Arc<ByteBudget>,
    bytes: usize,
}

impl ByteBudget {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(ByteBudget {
            most,
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            gate: Mutex::new(()),
            freed: Condvar::new(),
        })
    }

    /// Takes bytes if they are available.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Option<BytePermit> {
        let more = |used: usize| {
            let sum = used.saturating_add(bytes);
            (used == 0 || sum <= self.most).then_some(sum)
        };
        self.used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .ok()?;
        Some(BytePermit {
            room: Arc::clone(self),
            bytes,
        })
    }

    /// Takes bytes, waiting until they are available.
    pub fn take(self: &Arc<Self>, bytes: usize) -> BytePermit {
        loop {
            if let Some(share) = self.try_take(bytes) {
                return share;
            }
            let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let waited = self.freed.wait_timeout(gate, POLL_INTERVAL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for BytePermit {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::SeqCst);
        if self.room.waiting.load(Ordering::SeqCst) > 0 {
            self.room.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_gets_in_than_there_is_room_for_but_anything_if_it_is_alone() {
        let room = ByteBudget::new(100);
        let large = room.try_take(1_000);
        assert!(large.is_some() && room.try_take(1).is_none());
        drop(large);
        let shares = (room.try_take(60), room.try_take(40));
        assert!(shares.0.is_some() && shares.1.is_some());
        assert!(room.try_take(1).is_none());
        drop(shares.1);
        assert!(room.try_take(40).is_some());
    }

    #[test]
    fn who_waits_for_room_gets_it_when_there_is_some() {
        let room = ByteBudget::new(10);
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let room = Arc::clone(&room);
                std::thread::spawn(move || (0..100).for_each(|_| drop(room.take(7))))
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
        assert_eq!(room.used.load(Ordering::SeqCst), 0);
    }
}
