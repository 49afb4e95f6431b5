//! Hearing what happens to a map.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::protocol::Happened;
use ardea_codec::Kept;
use ardea_core::{Error, ErrorCode, Key, PartitionId, Result};
use bytes::Bytes;

use crate::node::ears::Ear;
use crate::node::heard::{Heard, NextHeard};
use crate::node::map::Coder;
use crate::node::standing::Standing;

/// How many bytes may wait for whoever listens.
const WAITING_BYTES: usize = 16 << 20;

/// How often who waits for news looks whether its member has stopped.
const LOOKS: Duration = Duration::from_millis(200);

/// What has become of an entry of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapEvent<K, V> {
    /// A key that had no value has this one.
    Added(K, V),
    /// A key that had a value has this one.
    Updated(K, V),
    /// A key has no value any more: it was removed, or its time was over.
    Removed(K),
    /// Something has happened to entries of these partitions that was not told: too much waited, or a member was lost that should have told it. What
    /// happened before was told before; what happens in them from when this is taken will be. Read them with
    /// [`scan_partitions`](crate::node::GridMap::scan_partitions).
    Missed(Vec<PartitionId>),
}

/// Hears what happens to a map, or to one key of it, from when it was made until it is dropped: what happens to a key in the order in which it happens.
///
/// What isn't taken waits, up to 16 MB; of what comes then only [is told](MapEvent::Missed) that it was. While all members live nothing else is missed.
pub struct MapListener<K, V> {
    queue: Arc<Queue>,
    coder: Coder<K, V>,
    standing: Arc<Standing>,
}

impl<K: Key + Kept, V: Kept> MapListener<K, V> {
    pub(crate) fn new(queue: Arc<Queue>, coder: Coder<K, V>, standing: Arc<Standing>) -> Self {
        MapListener {
            queue,
            coder,
            standing,
        }
    }

    /// What happened next, when there is something; none if nothing happens for so long.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if the entry is of another type; [`ErrorCode::StateUnavailable`] if this process's member of the grid has stopped, and
    /// everything was taken that it had told.
    pub fn next(&self, patience: Duration) -> Result<Option<MapEvent<K, V>>> {
        match self.queue.take(patience, || self.standing.is_out()) {
            Some(NextHeard::News(Happened::Set { key, value, is_new })) => {
                let (key, value) = (self.coder.key(&key)?, self.coder.value(&value)?);
                Ok(Some(match is_new {
                    true => MapEvent::Added(key, value),
                    false => MapEvent::Updated(key, value),
                }))
            }
            Some(NextHeard::News(Happened::Removed { key })) => {
                Ok(Some(MapEvent::Removed(self.coder.key(&key)?)))
            }
            Some(NextHeard::Missed(partitions)) => {
                let partitions = partitions.into_iter();
                let known = partitions.filter_map(PartitionId::from_index);
                Ok(Some(MapEvent::Missed(known.collect())))
            }
            None if self.standing.is_out() => Err(Error::new(
                ErrorCode::StateUnavailable,
                "nothing more is heard of a map: this process's member of the grid has stopped, or the others went on without it",
            )
            .hint("start another member, listen again, and read the map")),
            None => Ok(None),
        }
    }
}

impl<K, V> Drop for MapListener<K, V> {
    fn drop(&mut self) {
        self.queue.is_closed.store(true, Ordering::Relaxed);
    }
}

impl<K, V> fmt::Debug for MapListener<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.queue.state().waiting();
        write!(f, "MapListener({waiting} waiting)")
    }
}

/// What waits for whoever listens.
pub(crate) struct Queue {
    /// Only what happens to this key is wanted, if there is one; it is in that partition.
    key: Option<(u32, Bytes)>,
    state: Mutex<Heard<Happened>>,
    came: Condvar,
    is_closed: AtomicBool,
}

impl Queue {
    /// For all keys, or one.
    pub fn new(key: Option<(u32, Bytes)>) -> Self {
        Queue {
            key,
            state: Mutex::new(Heard::new(WAITING_BYTES)),
            came: Condvar::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, Heard<Happened>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, patience: Duration, is_over: impl Fn() -> bool) -> Option<NextHeard<Happened>> {
        let mut state = self.state();
        let mut left = patience;
        loop {
            if let Some(next) = state.take() {
                return Some(next);
            }
            if left.is_zero() || is_over() {
                return None;
            }
            let pause = left.min(LOOKS);
            left -= pause;
            let waited = self.came.wait_timeout(state, pause);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_elsewhere(&self, partition: u32) -> bool {
        let mut key = self.key.iter();
        key.any(|(wanted, _)| *wanted != partition)
    }
}

impl Ear for Queue {
    fn hears(&self, partition: u32, news: &[Happened]) {
        if self.is_elsewhere(partition) {
            return;
        }
        let mut state = self.state();
        for what in news {
            let is_wanted = self.key.as_ref().is_none_or(|(_, key)| key == what.key());
            if is_wanted {
                state.hear(what.clone(), what.cost(), || partition);
            }
        }
        drop(state);
        self.came.notify_one();
    }

    fn misses(&self, partition: u32) {
        if !self.is_elsewhere(partition) {
            self.state().miss(partition);
            self.came.notify_one();
        }
    }

    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(key: u8) -> Happened {
        let key = vec![key].into();
        Happened::Removed { key }
    }

    #[test]
    fn who_listens_to_one_key_hears_of_no_other() {
        let queue = Queue::new(Some((7, vec![1].into())));
        queue.hears(7, &[removed(1), removed(2)]);
        queue.hears(8, &[removed(1)]);
        queue.misses(8);
        let take = || queue.take(Duration::ZERO, || false);
        assert_eq!(take(), Some(NextHeard::News(removed(1))));
        assert_eq!(take(), None);
    }
}
