//! The producers of a ring, as its consumer's process knows them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Error, ErrorCode, Result};

use crate::layout::{Claim, MAX_PRODUCERS, Position};
use crate::memory::Memory;
use crate::sync::{AtomicBool, AtomicU32, Futex, Ordering, producers};

/// True when the process of a producer has died.
pub(crate) type Dead = Arc<AtomicBool>;

/// The producers, shared by the consumer and the threads that hand the ring over.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Changes when a producer is added, when one dies, and on a wake-up from outside.
    version: AtomicU32,
    members: Mutex<[Option<Dead>; MAX_PRODUCERS]>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Registry {
            version: AtomicU32::new(0),
            members: Mutex::new([const { None }; MAX_PRODUCERS]),
        }
    }

    fn members(&self) -> MutexGuard<'_, [Option<Dead>; MAX_PRODUCERS]> {
        // No code that can panic runs under the lock.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Adds a producer and returns its number.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the ring has the highest number of producers.
    pub(crate) fn add(&self, memory: &Memory) -> Result<(u8, Dead)> {
        let mut members = self.members();
        let free = producers().find(|&number| members[usize::from(number)].is_none());
        let Some(number) = free else {
            let what = format!("cannot add a producer to a ring that has {MAX_PRODUCERS}");
            return Err(Error::new(ErrorCode::LimitReached, what)
                .hint("end some producers, or create another ring"));
        };
        // No process uses this number: the consumer has passed all slots of its last owner.
        let none = Claim::new(Position::new(0), 0);
        memory.claim(number).store(none.word(), Ordering::Release);
        memory.closed(number).store(0, Ordering::Release);
        let dead = Arc::new(AtomicBool::new(false));
        members[usize::from(number)] = Some(Arc::clone(&dead));
        drop(members);
        self.version.fetch_add(1, Ordering::AcqRel);
        Ok((number, dead))
    }

    /// Returns the flag of a producer; `None` if there is no such producer.
    pub(crate) fn member(&self, number: u8) -> Option<Dead> {
        self.members()[usize::from(number)].clone()
    }

    /// Returns the flags of all producers.
    pub(crate) fn all(&self) -> [Option<Dead>; MAX_PRODUCERS] {
        self.members().clone()
    }

    /// Frees the number of a producer whose slots have all been passed.
    pub(crate) fn remove(&self, number: u8) {
        self.members()[usize::from(number)] = None;
    }

    /// Wakes the consumer.
    pub(crate) fn wake(&self, memory: &Memory) {
        self.version.fetch_add(1, Ordering::AcqRel);
        memory.wake(Futex::Arrivals);
    }
}
