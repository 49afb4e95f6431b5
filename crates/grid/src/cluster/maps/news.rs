//! What has happened to a map, as it travels and waits to be taken.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::node::{Heard, MapEvent, MapListener, NextHeard, Plain};
use ardea_core::{Error, PartitionId, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cluster::ask::Hearing;

/// How many bytes may wait for whoever listens.
const WAITING_BYTES: usize = 16 << 20;

/// A [`MapEvent`] that travels.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum News {
    Added(Bytes, Bytes),
    Updated(Bytes, Bytes),
    Removed(Bytes),
    /// Partitions of which something was not told.
    Missed(Vec<u32>),
}

impl From<MapEvent<Bytes, Bytes>> for News {
    fn from(event: MapEvent<Bytes, Bytes>) -> Self {
        match event {
            MapEvent::Added(key, value) => News::Added(key, value),
            MapEvent::Updated(key, value) => News::Updated(key, value),
            MapEvent::Removed(key) => News::Removed(key),
            MapEvent::Missed(partitions) => {
                let partitions = partitions.into_iter().map(PartitionId::index);
                News::Missed(partitions.collect())
            }
        }
    }
}

impl News {
    /// What it takes in memory, about.
    pub fn cost(&self) -> usize {
        let content = match self {
            News::Added(key, value) | News::Updated(key, value) => key.len() + value.len(),
            News::Removed(key) => key.len(),
            News::Missed(partitions) => partitions.len() * size_of::<u32>(),
        };
        content + size_of::<News>()
    }

    fn into_event(self) -> MapEvent<Bytes, Bytes> {
        match self {
            News::Added(key, value) => MapEvent::Added(key, value),
            News::Updated(key, value) => MapEvent::Updated(key, value),
            News::Removed(key) => MapEvent::Removed(key),
            News::Missed(partitions) => missed(partitions),
        }
    }
}

fn missed(partitions: impl IntoIterator<Item = u32>) -> MapEvent<Bytes, Bytes> {
    let partitions = partitions.into_iter();
    MapEvent::Missed(partitions.filter_map(PartitionId::from_index).collect())
}

impl Hearing for MapListener<Plain, Plain> {
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

/// What was heard and waits to be taken.
pub(crate) struct Waiting {
    state: Mutex<State>,
    came: Condvar,
}

struct State {
    heard: Heard<News>,
    /// Why nothing more comes.
    over: Option<Error>,
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting {
            state: Mutex::new(State {
                heard: Heard::new(WAITING_BYTES),
                over: None,
            }),
            came: Condvar::new(),
        }
    }
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This has come.
    pub fn hear(&self, letter: Vec<News>) {
        let mut state = self.state();
        for news in letter {
            state.hear(news);
        }
        drop(state);
        self.came.notify_one();
    }

    /// Nothing more comes, because of this, unless it was said before.
    pub fn end(&self, why: Error) {
        self.state().over.get_or_insert(why);
        self.came.notify_one();
    }

    /// What comes next, when there is something; none if nothing comes for so long.
    ///
    /// # Errors
    /// Why nothing more comes.
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
    fn hear(&mut self, news: News) {
        let bytes = news.cost();
        match news {
            News::Missed(partitions) => {
                for partition in partitions {
                    self.heard.miss(partition);
                }
            }
            News::Added(ref key, _) | News::Updated(ref key, _) | News::Removed(ref key) => {
                let key = key.clone();
                let partition = || PartitionId::of(&Plain(key)).index();
                self.heard.hear(news, bytes, partition);
            }
        }
    }

    fn next(&mut self) -> Option<MapEvent<Bytes, Bytes>> {
        Some(match self.heard.take()? {
            NextHeard::News(news) => news.into_event(),
            NextHeard::Missed(partitions) => missed(partitions),
        })
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting", self.state().heard.waiting())
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    fn removed(key: u8) -> News {
        News::Removed(vec![key].into())
    }

    fn taken(waiting: &Waiting) -> Vec<News> {
        let mut all = Vec::new();
        while let Ok(Some(event)) = waiting.take(Duration::ZERO) {
            all.push(event.into());
        }
        all
    }

    #[test]
    fn what_a_host_has_missed_is_told_at_its_place() {
        let waiting = Waiting::default();
        let missed = News::Missed(vec![PartitionId::of(&Plain::from(vec![1])).index()]);
        waiting.hear(vec![removed(1), missed.clone(), removed(1), removed(2)]);
        assert_eq!(taken(&waiting), [removed(1), missed, removed(2)]);
    }

    #[test]
    fn why_nothing_more_comes_is_told_once_all_is_taken_that_came() {
        let waiting = Waiting::default();
        let why = |text: &str| Error::new(ErrorCode::Network, text.to_string());
        waiting.hear(vec![removed(1)]);
        waiting.end(why("first"));
        waiting.end(why("second"));
        assert_eq!(taken(&waiting), [removed(1)]);
        let error = waiting.take(Duration::MAX).unwrap_err();
        assert!(error.to_string().contains("first"), "{error}");
    }
}
