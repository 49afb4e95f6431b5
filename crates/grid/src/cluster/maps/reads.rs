//! Non-blocking reads of a map of the cluster.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::node::Read;
use ardea_codec::StateValue;
use ardea_core::{Error, ErrorCode, Key, Result, Waker};
use bytes::Bytes;

use super::ClusterMap;
use crate::cluster::request::MESSAGE_BYTES;

/// Maximum number of outstanding reads.
const MOST_READS: usize = 4096;

/// Non-blocking reads of a [`ClusterMap`], for example for a step of a job.
///
/// A dedicated thread, started by the first read, sends requests for all keys queued at that time.
/// After this value is dropped, the thread ends once its current request is answered; the drop does
/// not wait for the thread.
pub struct ClusterReads<K, V> {
    map: ClusterMap<K, V>,
    waker: Waker,
    desk: Arc<ReadQueue>,
    has_thread: bool,
    asked: u64,
}

/// The number of a read, and its result.
type Answer = (u64, Result<Option<Bytes>>);

/// Queue between the caller and the reading thread.
#[derive(Default)]
struct ReadQueue {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<(u64, Bytes)>,
    answers: VecDeque<Answer>,
    /// Number of outstanding reads, and the total size of their keys.
    reads: usize,
    key_bytes: usize,
    is_over: bool,
}

impl<K: Key + StateValue, V: StateValue> ClusterMap<K, V> {
    /// Creates non-blocking reads of the map. `waker` is woken when there are results.
    pub fn reads(&self, waker: Waker) -> ClusterReads<K, V> {
        ClusterReads {
            map: self.clone(),
            waker,
            desk: Arc::default(),
            has_thread: false,
            asked: 0,
        }
    }
}

impl<K: Key + StateValue, V: StateValue> ClusterReads<K, V> {
    /// Queues the read of a key unless too many are outstanding. Never returns a value immediately.
    ///
    /// # Errors
    /// [`ErrorCode::UserError`] if the key is larger than 1 MiB, [`ErrorCode::LimitReached`] if no
    /// thread can be started.
    pub fn get(&mut self, key: &K) -> Result<Read<V>> {
        let key = self.map.key(key)?;
        if !self.has_thread {
            self.start()?;
        }
        let number = self.asked + 1;
        if !self.desk.ask(number, key) {
            return Ok(Read::NotNow);
        }
        self.asked = number;
        Ok(Read::Later(number))
    }

    /// Returns the next result, in any order, with the number of its read; `None` if there is none
    /// yet. Errors are those of [`ClusterMap::get`].
    pub fn answer(&mut self) -> Option<(u64, Result<Option<V>>)> {
        let (number, answer) = self.desk.state().answers.pop_front()?;
        let value = answer.and_then(|value| {
            let value = value.map(|value| self.map.values.get(&value));
            value.transpose()
        });
        Some((number, value))
    }

    fn start(&mut self) -> Result<()> {
        let (map, desk) = (self.map.clone(), Arc::clone(&self.desk));
        let waker = self.waker.clone();
        let thread = std::thread::Builder::new().name("ardea-map-reads".into());
        let spawned = thread.spawn(move || {
            while let Some(asked) = desk.next() {
                desk.answer(asked, |keys| map.some_bytes_of(keys), &waker);
            }
        });
        spawned.map_err(|error| {
            let what = "cannot start the thread that reads a map";
            Error::new(ErrorCode::LimitReached, what).because(error)
        })?;
        self.has_thread = true;
        Ok(())
    }
}

impl<K, V> Drop for ClusterReads<K, V> {
    fn drop(&mut self) {
        self.desk.state().is_over = true;
        self.desk.came.notify_one();
    }
}

impl ReadQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a read. Returns false if too many are outstanding.
    fn ask(&self, number: u64, key: Bytes) -> bool {
        let mut state = self.state();
        let fits = state.reads < MOST_READS && state.key_bytes + key.len() <= MESSAGE_BYTES;
        if !fits && state.reads > 0 {
            return false;
        }
        state.reads += 1;
        state.key_bytes += key.len();
        state.waiting.push((number, key));
        drop(state);
        self.came.notify_one();
        true
    }

    /// Waits for queued reads and takes them all. Returns `None` at shutdown.
    fn next(&self) -> Option<Vec<(u64, Bytes)>> {
        let mut state = self.state();
        while !state.is_over {
            if !state.waiting.is_empty() {
                return Some(std::mem::take(&mut state.waiting));
            }
            let waited = self.came.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Answers all of `asked`. `some_of` gets the remaining distinct keys and returns the values of
    /// the first ones.
    fn answer(
        &self,
        asked: Vec<(u64, Bytes)>,
        some_of: impl Fn(&[Bytes]) -> Result<Vec<Option<Bytes>>>,
        waker: &Waker,
    ) {
        let mut numbers: HashMap<Bytes, Vec<u64>> = HashMap::with_capacity(asked.len());
        for (number, key) in asked {
            numbers.entry(key).or_default().push(number);
        }
        let (keys, numbers): (Vec<Bytes>, Vec<Vec<u64>>) = numbers.into_iter().unzip();
        let mut at = 0;
        while at < keys.len() && !self.state().is_over {
            // Every read gets a result, even if the reading code panics.
            let some = catch_unwind(AssertUnwindSafe(|| some_of(&keys[at..])));
            let some = some.unwrap_or_else(|_| {
                let what = "a map was not read: the thread that reads it panicked";
                Err(Error::new(ErrorCode::Internal, what))
            });
            let answers: Vec<Result<Option<Bytes>>> = match some {
                Ok(values) => values.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); keys.len() - at],
            };
            let count = answers.len();
            let mut state = self.state();
            for (place, answer) in (at..).zip(answers) {
                let numbers = &numbers[place];
                state.reads -= numbers.len();
                state.key_bytes -= numbers.len() * keys[place].len();
                let each = numbers.iter().map(|number| (*number, answer.clone()));
                state.answers.extend(each);
            }
            drop(state);
            waker.wake();
            at += count;
        }
    }
}

impl<K, V> fmt::Debug for ClusterReads<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterReads({:?}, {} asked)", self.map, self.asked)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn key(number: u8) -> Bytes {
        vec![number].into()
    }

    #[test]
    fn a_key_that_is_asked_for_again_and_again_is_read_once_and_all_are_answered() {
        let desk = ReadQueue::default();
        for number in 0..10 {
            assert!(desk.ask(number, key(number as u8 % 3)));
        }
        let read = RefCell::new(Vec::new());
        let asked = desk.next().unwrap();
        // Two at a time, as if the values were large.
        let two = |keys: &[Bytes]| {
            let some = &keys[..keys.len().min(2)];
            read.borrow_mut().extend_from_slice(some);
            Ok(some.iter().cloned().map(Some).collect())
        };
        desk.answer(asked, two, &Waker::none());
        let mut read = read.take();
        read.sort();
        assert_eq!(read, [key(0), key(1), key(2)]);
        let mut state = desk.state();
        assert_eq!((state.reads, state.key_bytes), (0, 0));
        let mut answers: Vec<Answer> = state.answers.drain(..).collect();
        answers.sort_by_key(|(number, _)| *number);
        for (number, (its, answer)) in (0..).zip(answers) {
            let wanted = Some(key(number as u8 % 3));
            assert_eq!((its, answer.unwrap()), (number, wanted));
        }
    }

    #[test]
    fn what_is_under_way_is_bounded_and_what_fails_is_answered_all_the_same() {
        let desk = ReadQueue::default();
        let asked = (0..).take_while(|number| desk.ask(*number, key(*number as u8)));
        assert_eq!(asked.count(), MOST_READS);
        let all = desk.next().unwrap();
        desk.answer(
            all,
            |_| panic!("as if something were wrong"),
            &Waker::none(),
        );
        let state = desk.state();
        assert_eq!((state.reads, state.answers.len()), (0, MOST_READS));
        assert!(state.answers.iter().all(|(_, answer)| answer.is_err()));
    }

    #[test]
    fn when_it_is_over_nothing_is_asked_any_more() {
        let desk = ReadQueue::default();
        assert!(desk.ask(1, key(1)));
        desk.state().is_over = true;
        assert!(desk.next().is_none());
    }
}
