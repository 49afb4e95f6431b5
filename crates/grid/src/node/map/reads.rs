//! Non-blocking reads of a map.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use crate::protocol::{Operation, Outcome};
use ardea_codec::StateValue;
use ardea_core::{Key, PartitionId, Result, Waker};

use super::GridMap;
use super::near_cache::Keep;
use crate::node::request_handle::Answers;

/// Non-blocking reads of a map, for example for a step of a job.
pub struct MapReads<K, V> {
    map: GridMap<K, V>,
    waker: Waker,
    answers: Arc<Answers>,
    /// Received outcomes that were not taken.
    come: VecDeque<(u64, Outcome)>,
    asked: u64,
    /// With a near-cache: entries to be cached, by number of the read.
    keeps: HashMap<u64, Keep>,
}

/// Immediate result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read<V> {
    /// The value was available locally.
    Here(Option<V>),
    /// The value was requested from its primary; the [answer](MapReads::answer) will have this
    /// number.
    Later(u64),
    /// Too many reads are outstanding; retry shortly.
    NotNow,
}

impl<K: Key + StateValue, V: StateValue> MapReads<K, V> {
    /// Reads a key locally if possible, and otherwise requests it from its primary.
    ///
    /// # Errors
    /// As [`GridMap::get`].
    pub fn get(&mut self, key: &K) -> Result<Read<V>> {
        self.map.asking.check_outside()?;
        let (partition, bytes) = (PartitionId::of(key), self.map.key(key)?);
        if let Some(value) = self.map.read_here(key, &bytes) {
            return Ok(Read::Here(value?));
        }
        let number = self.asked + 1;
        let keep = self.map.to_keep(partition, &bytes);
        let get = Operation::Get {
            map: self.map.asking.id,
            key: bytes,
        };
        let told = (&self.answers, self.waker.clone());
        if !self.map.asking.try_order(partition, get, number, told)? {
            return Ok(Read::NotNow);
        }
        self.asked = number;
        self.keeps.extend(keep.map(|keep| (number, keep)));
        Ok(Read::Later(number))
    }

    /// Returns the next answer, in any order, with the number of its read; `None` if there is none
    /// yet. The waker is woken when there are answers.
    pub fn answer(&mut self) -> Option<(u64, Result<Option<V>>)> {
        if self.come.is_empty() {
            let mut outcomes = Vec::from(std::mem::take(&mut self.come));
            self.answers.take(&mut outcomes);
            self.come = outcomes.into();
        }
        let (number, outcome) = self.come.pop_front()?;
        let answer = self.map.asking.outcome_to_result(outcome);
        let keep = self.keeps.remove(&number);
        if let Ok(answer) = &answer {
            self.map.keep_near(keep, answer);
        }
        Some((number, answer.and_then(|answer| self.map.value(answer))))
    }
}

impl<K: Key + StateValue, V: StateValue> GridMap<K, V> {
    /// Creates non-blocking reads of the map. `waker` is woken when there are answers.
    pub fn reads(&self, waker: Waker) -> MapReads<K, V> {
        MapReads {
            map: self.clone(),
            waker,
            answers: Arc::default(),
            come: VecDeque::new(),
            asked: 0,
            keeps: HashMap::new(),
        }
    }
}

impl<K, V> fmt::Debug for MapReads<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapReads({:?}, {} asked)", self.map, self.asked)
    }
}
