//! Serializable map events, and the queue of events on the watching side.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::node::{EventQueue, MapEvent, MapListener, QueueItem, RawBytes};
use ardea_core::{Error, PartitionId, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cluster::request::MapEventStream;

/// Maximum size of the queued events of a watch, in bytes.
const WAITING_BYTES: usize = 16 << 20;

/// A [`MapEvent`] in serializable form.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum WatchEvent {
    Added(Bytes, Bytes),
    Updated(Bytes, Bytes),
    Removed(Bytes),
    /// Partitions of which events were missed.
    Missed(Vec<u32>),
}

impl From<MapEvent<Bytes, Bytes>> for WatchEvent {
    fn from(event: MapEvent<Bytes, Bytes>) -> Self {
        match event {
            MapEvent::Added(key, value) => WatchEvent::Added(key, value),
            MapEvent::Updated(key, value) => WatchEvent::Updated(key, value),
            MapEvent::Removed(key) => WatchEvent::Removed(key),
            MapEvent::Missed(partitions) => {
                let partitions = partitions.into_iter().map(PartitionId::index);
                WatchEvent::Missed(partitions.collect())
            }
        }
    }
}

impl WatchEvent {
    /// Returns the approximate memory size of the event.
    pub fn cost(&self) -> usize {
        let content = match self {
            WatchEvent::Added(key, value) | WatchEvent::Updated(key, value) => {
                key.len() + value.len()
            }
            WatchEvent::Removed(key) => key.len(),
            WatchEvent::Missed(partitions) => partitions.len() * size_of::<u32>(),
        };
        content + size_of::<WatchEvent>()
    }

    fn into_event(self) -> MapEvent<Bytes, Bytes> {
        match self {
            WatchEvent::Added(key, value) => MapEvent::Added(key, value),
            WatchEvent::Updated(key, value) => MapEvent::Updated(key, value),
            WatchEvent::Removed(key) => MapEvent::Removed(key),
            WatchEvent::Missed(partitions) => missed(partitions),
        }
    }
}

fn missed(partitions: impl IntoIterator<Item = u32>) -> MapEvent<Bytes, Bytes> {
    let partitions = partitions.into_iter();
    MapEvent::Missed(partitions.filter_map(PartitionId::from_index).collect())
}

impl MapEventStream for MapListener<RawBytes, RawBytes> {
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<Bytes, Bytes>>> {
        let event = MapListener::next(self, patience)?;
        Ok(event.map(|event| match event {
            MapEvent::Added(key, value) => MapEvent::Added(key.0, value.0),
            MapEvent::Updated(key, value) => MapEvent::Updated(key.0, value.0),
            MapEvent::Removed(key) => MapEvent::Removed(key.0),
            MapEvent::Missed(partitions) => MapEvent::Missed(partitions),
        }))
    }
}

/// Queue of received events.
pub(crate) struct WatchQueue {
    state: Mutex<State>,
    came: Condvar,
}

struct State {
    heard: EventQueue<WatchEvent>,
    /// Reason why no more events will be received.
    over: Option<Error>,
}

impl Default for WatchQueue {
    fn default() -> Self {
        WatchQueue {
            state: Mutex::new(State {
                heard: EventQueue::new(WAITING_BYTES),
                over: None,
            }),
            came: Condvar::new(),
        }
    }
}

impl WatchQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends received events.
    pub fn hear(&self, letter: Vec<WatchEvent>) {
        let mut state = self.state();
        for news in letter {
            state.hear(news);
        }
        drop(state);
        self.came.notify_one();
    }

    /// Ends the queue with an error. Only the first error is kept.
    pub fn end(&self, why: Error) {
        self.state().over.get_or_insert(why);
        self.came.notify_one();
    }

    /// Waits up to `patience` for the next event. Returns `None` on a timeout.
    ///
    /// # Errors
    /// The error given to [`end`](Self::end), once the queue is empty.
    pub fn take(&self, patience: Duration) -> Result<Option<MapEvent<Bytes, Bytes>>> {
        let begun = Instant::now();
        let mut state = self.state();
        loop {
            if let Some(event) = state.next() {
                return Ok(Some(event));
            }
            if let Some(why) = &state.over {
                return Err(why.clone());
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.came.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    fn hear(&mut self, news: WatchEvent) {
        let bytes = news.cost();
        match news {
            WatchEvent::Missed(partitions) => {
                for partition in partitions {
                    self.heard.miss(partition);
                }
            }
            WatchEvent::Added(ref key, _)
            | WatchEvent::Updated(ref key, _)
            | WatchEvent::Removed(ref key) => {
                let key = key.clone();
                let partition = || PartitionId::of(&RawBytes(key)).index();
                self.heard.hear(news, bytes, partition);
            }
        }
    }

    fn next(&mut self) -> Option<MapEvent<Bytes, Bytes>> {
        Some(match self.heard.take()? {
            QueueItem::Event(news) => news.into_event(),
            QueueItem::Missed(partitions) => missed(partitions),
        })
    }
}

impl fmt::Debug for WatchQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting", self.state().heard.waiting())
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    fn removed(key: u8) -> WatchEvent {
        WatchEvent::Removed(vec![key].into())
    }

    fn taken(waiting: &WatchQueue) -> Vec<WatchEvent> {
        let mut all = Vec::new();
        while let Ok(Some(event)) = waiting.take(Duration::ZERO) {
            all.push(event.into());
        }
        all
    }

    #[test]
    fn what_a_host_has_missed_is_told_at_its_place() {
        let waiting = WatchQueue::default();
        let missed = WatchEvent::Missed(vec![PartitionId::of(&RawBytes::from(vec![1])).index()]);
        waiting.hear(vec![removed(1), missed.clone(), removed(1), removed(2)]);
        assert_eq!(taken(&waiting), [removed(1), missed, removed(2)]);
    }

    #[test]
    fn why_nothing_more_comes_is_told_once_all_is_taken_that_came() {
        let waiting = WatchQueue::default();
        let why = |text: &str| Error::new(ErrorCode::Network, text.to_string());
        waiting.hear(vec![removed(1)]);
        waiting.end(why("first"));
        waiting.end(why("second"));
        assert_eq!(taken(&waiting), [removed(1)]);
        let error = waiting.take(Duration::MAX).unwrap_err();
        assert!(error.to_string().contains("first"), "{error}");
    }
}
