//! What has happened to a map, as it travels and waits to be taken.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, PartitionId, Result};
use ardea_grid_net::{MapEvent, MapListener, Plain};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ask::Hearing;

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

    /// Of which key it is, if of one.
    fn key(&self) -> Option<&Bytes> {
        match self {
            News::Added(key, _) | News::Updated(key, _) | News::Removed(key) => Some(key),
            News::Missed(_) => None,
        }
    }

    fn into_event(self) -> MapEvent<Bytes, Bytes> {
        match self {
            News::Added(key, value) => MapEvent::Added(key, value),
            News::Updated(key, value) => MapEvent::Updated(key, value),
            News::Removed(key) => MapEvent::Removed(key),
            News::Missed(partitions) => MapEvent::Missed(known(partitions).collect()),
        }
    }
}

fn known(partitions: Vec<u32>) -> impl Iterator<Item = PartitionId> {
    let partitions = partitions.into_iter();
    partitions.filter_map(PartitionId::from_index)
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

/// What was heard and waits to be taken. Of what doesn't fit is only told that it was missed.
pub(crate) struct Waiting {
    most: usize,
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    news: VecDeque<News>,
    bytes: usize,
    /// Where something was missed. What comes of there is not kept: whoever takes this reads it all.
    missed: BTreeSet<PartitionId>,
    /// Why nothing more comes.
    over: Option<Error>,
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting::bounded(WAITING_BYTES)
    }
}

impl Waiting {
    fn bounded(most: usize) -> Self {
        Waiting {
            most,
            state: Mutex::default(),
            came: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This has come.
    pub fn hear(&self, letter: Vec<News>) {
        let mut state = self.state();
        for news in letter {
            state.keep(news, self.most);
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
    fn keep(&mut self, news: News, most: usize) {
        let Some(key) = news.key() else {
            if let News::Missed(partitions) = news {
                self.missed.extend(known(partitions));
            }
            return;
        };
        // The partition is asked for where it matters: it takes a hash.
        let is_full = !self.news.is_empty() && self.bytes + news.cost() > most;
        if is_full || !self.missed.is_empty() {
            let partition = PartitionId::of(&Plain(key.clone()));
            if is_full {
                self.missed.insert(partition);
            }
            if self.missed.contains(&partition) {
                return;
            }
        }
        self.bytes += news.cost();
        self.news.push_back(news);
    }

    fn next(&mut self) -> Option<MapEvent<Bytes, Bytes>> {
        if let Some(news) = self.news.pop_front() {
            self.bytes -= news.cost();
            return Some(news.into_event());
        }
        let missed = std::mem::take(&mut self.missed);
        (!missed.is_empty()).then(|| MapEvent::Missed(missed.into_iter().collect()))
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting", self.state().news.len())
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    fn removed(key: u8) -> News {
        News::Removed(vec![key].into())
    }

    fn partition(key: u8) -> PartitionId {
        PartitionId::of(&Plain::from(vec![key]))
    }

    fn taken(waiting: &Waiting) -> Vec<News> {
        let mut all = Vec::new();
        while let Ok(Some(event)) = waiting.take(Duration::ZERO) {
            all.push(event.into());
        }
        all
    }

    fn missed(partitions: impl IntoIterator<Item = PartitionId>) -> News {
        let sorted: BTreeSet<u32> = partitions.into_iter().map(PartitionId::index).collect();
        News::Missed(sorted.into_iter().collect())
    }

    #[test]
    fn what_does_not_fit_is_told_to_be_missed_behind_what_came_before() {
        let waiting = Waiting::bounded(removed(1).cost() * 2);
        waiting.hear((1..=4).map(removed).collect());
        let wanted = missed([partition(3), partition(4)]);
        assert_eq!(taken(&waiting), [removed(1), removed(2), wanted]);
        waiting.hear(vec![removed(3)]);
        assert_eq!(taken(&waiting), [removed(3)]);
    }

    #[test]
    fn what_comes_of_where_something_was_missed_is_not_kept_until_that_is_taken() {
        let waiting = Waiting::default();
        let there = missed([partition(1)]);
        waiting.hear(vec![there.clone(), removed(1), removed(2)]);
        assert_eq!(taken(&waiting), [removed(2), there]);
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
