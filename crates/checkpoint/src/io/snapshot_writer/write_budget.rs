//! The limit for the entries that wait to be written.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ardea_core::{StateChunk, Waker};

/// The maximum number of bytes that wait to be written: enough to keep a disk busy.
const MOST_WAITING: usize = 16 << 20;
/// The maximum number of empty chunks to retain.
const MOST_EMPTY: usize = 256;
/// The size in bytes beyond which a chunk, grown for a large entry, is not reused.
const LARGE: usize = 256 << 10;

/// The budget of chunks waiting for the writers, and a pool of empty chunks.
#[derive(Debug, Default)]
pub(crate) struct WriteBudget {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting_bytes: usize,
    empty: Vec<StateChunk>,
    asking: Vec<Waker>,
}

impl WriteBudget {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an empty chunk. If the budget is exhausted, returns `None`, and wakes `waker` once
    /// there is space.
    pub(crate) fn chunk(&self, waker: &Waker) -> Option<StateChunk> {
        let mut state = self.lock();
        if state.waiting_bytes >= MOST_WAITING {
            state.asking.push(waker.clone());
            return None;
        }
        Some(state.empty.pop().unwrap_or_default())
    }

    /// Adds bytes to those that wait to be written.
    pub(crate) fn fill(&self, bytes: usize) {
        self.lock().waiting_bytes += bytes;
    }

    /// Takes back a chunk that was written or dropped, and frees its share of the budget.
    pub(crate) fn empty(&self, mut chunk: StateChunk) {
        let bytes = chunk.byte_len();
        chunk.clear();
        let mut state = self.lock();
        state.waiting_bytes = state.waiting_bytes.saturating_sub(bytes);
        if bytes <= LARGE && state.empty.len() < MOST_EMPTY {
            state.empty.push(chunk);
        }
        if state.waiting_bytes < MOST_WAITING && !state.asking.is_empty() {
            let asking = std::mem::take(&mut state.asking);
            drop(state);
            asking.iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::StateEntry;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_finds_no_room_is_woken_when_there_is_some() {
        let room = WriteBudget::default();
        let mut chunk = room.chunk(&Waker::none()).unwrap();
        let value = vec![0; MOST_WAITING];
        let entry = StateEntry {
            state: "s",
            partition: None,
            key: b"k",
            value: Some(&value),
        };
        chunk.push(entry).unwrap();
        room.fill(chunk.byte_len());
        let woken = Arc::new(AtomicBool::new(false));
        let wakes = Arc::clone(&woken);
        let waker = Waker::new(move || wakes.store(true, Ordering::SeqCst));
        assert!(room.chunk(&waker).is_none());
        assert!(!woken.load(Ordering::SeqCst));
        room.empty(chunk);
        assert!(woken.load(Ordering::SeqCst));
        assert!(room.chunk(&waker).unwrap().is_empty());
    }
}
