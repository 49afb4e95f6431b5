//! Reads that nobody waits for.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use crate::protocol::{Operation, Outcome};
use ardea_codec::Kept;
use ardea_core::{Key, PartitionId, Result, Waker};

use super::GridMap;
use super::nearby::Keep;
use crate::node::asker::Answers;

/// Reads of a map by who must not wait: a step of a job, for example. Never blocks.
pub struct MapReads<K, V> {
    map: GridMap<K, V>,
    waker: Waker,
    answers: Arc<Answers>,
    /// What has come and was not taken.
    come: VecDeque<(u64, Outcome)>,
    asked: u64,
    /// Where there is a near-cache: what is to be kept in it, by read.
    keeps: HashMap<u64, Keep>,
}

/// What comes of a read at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read<V> {
    /// What the key has.
    Here(Option<V>),
    /// Its primary was asked; the [answer](MapReads::answer) has this number.
    Later(u64),
    /// Too much is under way: ask again in a moment.
    NotNow,
}

impl<K: Key + Kept, V: Kept> MapReads<K, V> {
    /// What a key has, if this member knows; else its primary is asked.
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

    /// The next answer that has come, in any order, with its number; none if none has. The waker is woken when there are some.
    pub fn answer(&mut self) -> Option<(u64, Result<Option<V>>)> {
        if self.come.is_empty() {
            let mut outcomes = Vec::from(std::mem::take(&mut self.come));
            self.answers.take(&mut outcomes);
            self.come = outcomes.into();
        }
        let (number, outcome) = self.come.pop_front()?;
        let answer = self.map.asking.judge(outcome);
        let keep = self.keeps.remove(&number);
        if let Ok(answer) = &answer {
            self.map.keep_near(keep, answer);
        }
        Some((number, answer.and_then(|answer| self.map.value(answer))))
    }
}

impl<K: Key + Kept, V: Kept> GridMap<K, V> {
    /// Reads of the map that nobody waits for: the waker is woken when there are answers.
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
