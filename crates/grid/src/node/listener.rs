//! Watch of a map.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::protocol::EntryEvent;
use ardea_codec::StateValue;
use ardea_core::{Error, ErrorCode, Key, PartitionId, Result};
use bytes::Bytes;

use crate::node::event_queue::{EventQueue, QueueItem};
use crate::node::listeners::EventListener;
use crate::node::map::Coder;
use crate::node::member_status::MemberStatus;

/// Maximum size of the queued events of a watch, in bytes.
const WAITING_BYTES: usize = 16 << 20;

/// Interval at which a waiting thread checks whether its member has stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A change of a map entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapEvent<K, V> {
    /// A key without a value got this one.
    Added(K, V),
    /// The value of a key was replaced by this one.
    Updated(K, V),
    /// A key was removed or expired.
    Removed(K),
    /// Events of these partitions were missed, because the queue was full or the member that should
    /// have sent them was lost. Earlier events have been returned; later ones follow once this has
    /// been taken. Read the partitions with
    /// [`scan_partitions`](crate::node::GridMap::scan_partitions).
    Missed(Vec<PartitionId>),
}

/// Watch of a map, or of one key of it, from its creation until it is dropped. The events of one
/// key are in order.
///
/// Up to 16 MB of events are queued; further ones are reported as [missed](MapEvent::Missed). While
/// all members live, nothing else is missed.
pub struct MapListener<K, V> {
    queue: Arc<Queue>,
    coder: Coder<K, V>,
    standing: Arc<MemberStatus>,
}

impl<K: Key + StateValue, V: StateValue> MapListener<K, V> {
    pub(crate) fn new(queue: Arc<Queue>, coder: Coder<K, V>, standing: Arc<MemberStatus>) -> Self {
        MapListener {
            queue,
            coder,
            standing,
        }
    }

    /// Waits up to `patience` for the next event. Returns `None` on a timeout.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if the entry is of another type; [`ErrorCode::StateUnavailable`] if
    /// this process's grid member has stopped and all queued events were returned.
    pub fn next(&self, patience: Duration) -> Result<Option<MapEvent<K, V>>> {
        match self.queue.take(patience, || self.standing.is_out()) {
            Some(QueueItem::Event(EntryEvent::Set { key, value, is_new })) => {
                let (key, value) = (self.coder.key(&key)?, self.coder.value(&value)?);
                Ok(Some(match is_new {
                    true => MapEvent::Added(key, value),
                    false => MapEvent::Updated(key, value),
                }))
            }
            Some(QueueItem::Event(EntryEvent::Removed { key })) => {
                Ok(Some(MapEvent::Removed(self.coder.key(&key)?)))
            }
            Some(QueueItem::Missed(partitions)) => {
                let partitions = partitions.into_iter();
                let known = partitions.filter_map(PartitionId::from_index);
                Ok(Some(MapEvent::Missed(known.collect())))
            }
            None if self.standing.is_out() => Err(Error::new(
                ErrorCode::StateUnavailable,
                "the watch of a map has ended: this process's member of the grid has stopped or was removed by the others",
            )
            .hint("start another member, watch the map again, and read it")),
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

/// Event queue of a watch.
pub(crate) struct Queue {
    /// The only key to watch, if set, and its partition.
    key: Option<(u32, Bytes)>,
    state: Mutex<EventQueue<EntryEvent>>,
    came: Condvar,
    is_closed: AtomicBool,
}

impl Queue {
    /// Creates a queue for all keys, or for one key.
    pub fn new(key: Option<(u32, Bytes)>) -> Self {
        Queue {
            key,
            state: Mutex::new(EventQueue::new(WAITING_BYTES)),
            came: Condvar::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, EventQueue<EntryEvent>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(
        &self,
        patience: Duration,
        is_over: impl Fn() -> bool,
    ) -> Option<QueueItem<EntryEvent>> {
        let mut state = self.state();
        let mut left = patience;
        loop {
            if let Some(next) = state.take() {
                return Some(next);
            }
            if left.is_zero() || is_over() {
                return None;
            }
            let pause = left.min(POLL_INTERVAL);
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

impl EventListener for Queue {
    fn on_events(&self, partition: u32, news: &[EntryEvent]) {
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

    fn on_missed(&self, partition: u32) {
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

    fn removed(key: u8) -> EntryEvent {
        let key = vec![key].into();
        EntryEvent::Removed { key }
    }

    #[test]
    fn who_listens_to_one_key_hears_of_no_other() {
        let queue = Queue::new(Some((7, vec![1].into())));
        queue.on_events(7, &[removed(1), removed(2)]);
        queue.on_events(8, &[removed(1)]);
        queue.on_missed(8);
        let take = || queue.take(Duration::ZERO, || false);
        assert_eq!(take(), Some(QueueItem::Event(removed(1))));
        assert_eq!(take(), None);
    }
}
