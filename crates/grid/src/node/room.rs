//! How many bytes may wait for the driver.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long who waits for room goes without looking: it is told when there is some, but for a moment in which it isn't heard.
const LOOKS: Duration = Duration::from_millis(5);

/// Room for so many bytes. Whatever is larger than all of it gets in when nothing else is there.
#[derive(Debug)]
pub(crate) struct Room {
    most: usize,
    used: AtomicUsize,
    waiting: AtomicUsize,
    gate: Mutex<()>,
    freed: Condvar,
}

/// Some of a [`Room`], until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Room {
            most,
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            gate: Mutex::new(()),
            freed: Condvar::new(),
        })
    }

    /// Takes so many bytes if there is room.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        let more = |used: usize| {
            let sum = used.saturating_add(bytes);
            (used == 0 || sum <= self.most).then_some(sum)
        };
        self.used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .ok()?;
        Some(Share {
            room: Arc::clone(self),
            bytes,
        })
    }

    /// Takes so many bytes, and waits until there is room.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Share {
        loop {
            if let Some(share) = self.try_take(bytes) {
                return share;
            }
            let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let waited = self.freed.wait_timeout(gate, LOOKS);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Share {
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
        let room = Room::new(100);
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
        let room = Room::new(10);
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
