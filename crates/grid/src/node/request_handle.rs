//! Requesters of operations, and the delivery of outcomes to them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::protocol::{Outcome, Refusal};
use ardea_core::Waker;

use crate::node::byte_budget::BytePermit;

/// Outcomes with the numbers of their operations, in the order of arrival.
pub(crate) type Outcomes = Vec<(u64, Outcome)>;

/// Outcome buffer of one calling thread.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    told: Mutex<OutcomeBuffer>,
    changed: Condvar,
    has_some: AtomicBool,
}

#[derive(Debug, Default)]
struct OutcomeBuffer {
    outcomes: Outcomes,
    is_waiting: bool,
}

impl Answers {
    fn told(&self) -> MutexGuard<'_, OutcomeBuffer> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, number: u64, outcome: Outcome) {
        let mut told = self.told();
        told.outcomes.push((number, outcome));
        self.has_some.store(true, Ordering::Release);
        // One wake-up is enough: the woken thread takes all outcomes.
        if std::mem::take(&mut told.is_waiting) {
            self.changed.notify_one();
        }
    }

    /// Moves all outcomes to the end of `into`. Returns true if there were any.
    pub fn take(&self, into: &mut Outcomes) -> bool {
        if !self.has_some.load(Ordering::Acquire) {
            return false;
        }
        self.move_to(into, &mut self.told())
    }

    fn move_to(&self, into: &mut Outcomes, told: &mut OutcomeBuffer) -> bool {
        self.has_some.store(false, Ordering::Relaxed);
        let has_come = !told.outcomes.is_empty();
        match into.is_empty() {
            true => std::mem::swap(into, &mut told.outcomes),
            false => into.append(&mut told.outcomes),
        }
        has_come
    }

    /// Waits for outcomes and moves them to the end of `into`.
    pub fn wait(&self, into: &mut Outcomes) {
        let mut told = self.told();
        while !self.move_to(into, &mut told) {
            told.is_waiting = true;
            let woken = self.changed.wait(told);
            told = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Shared state of the operations of one call: the destination of their outcomes, and their share
/// of the byte budget, held until all have ended.
pub(crate) struct Group {
    answers: Arc<Answers>,
    waker: Option<Waker>,
    _room: BytePermit,
}

impl Group {
    pub fn new(answers: &Arc<Answers>, room: BytePermit) -> Self {
        Group {
            answers: Arc::clone(answers),
            waker: None,
            _room: room,
        }
    }

    /// Sets a waker that is woken as well at each outcome.
    pub fn waking(mut self, waker: Waker) -> Self {
        self.waker = Some(waker);
        self
    }
}

/// The requester of one operation. If dropped, it reports that the operation was not carried out.
pub(crate) struct Requester {
    number: u64,
    group: Option<Arc<Group>>,
}

impl Requester {
    /// Creates a requester that reports to `group` under this number.
    pub fn new(number: u64, group: &Arc<Group>) -> Self {
        Requester {
            number,
            group: Some(Arc::clone(group)),
        }
    }

    /// Drops the requester without a report.
    pub fn forgotten(mut self) {
        self.group = None;
    }

    pub fn told(mut self, outcome: Outcome) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Outcome) {
        if let Some(group) = self.group.take() {
            group.answers.tell(self.number, outcome);
            if let Some(waker) = &group.waker {
                waker.wake();
            }
        }
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        self.tell(Outcome::Refused(Refusal::CutOff));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::byte_budget::ByteBudget;

    fn group(answers: &Arc<Answers>) -> Arc<Group> {
        let room = ByteBudget::new(10);
        Arc::new(Group::new(answers, room.take(1)))
    }

    #[test]
    fn who_is_forgotten_is_told_that_nothing_was_done_unless_nobody_is_to_be_told() {
        let answers = Arc::new(Answers::default());
        let group = group(&answers);
        drop(Requester::new(1, &group));
        Requester::new(2, &group).forgotten();
        Requester::new(3, &group).told(Outcome::Unknown);
        let mut outcomes = Vec::new();
        assert!(answers.take(&mut outcomes) && !answers.take(&mut outcomes));
        let refused = Outcome::Refused(Refusal::CutOff);
        assert_eq!(outcomes, [(1, refused), (3, Outcome::Unknown)]);
    }

    #[test]
    fn who_waits_is_woken_by_each_outcome_that_comes_when_none_is_there() {
        let answers = Arc::new(Answers::default());
        let group = group(&answers);
        let teller = std::thread::spawn(move || {
            for number in 0..10_000 {
                Requester::new(number, &group).told(Outcome::Unknown);
            }
        });
        let (mut all, mut some) = (Vec::new(), Vec::new());
        while all.len() < 10_000 {
            answers.wait(&mut some);
            all.extend(some.drain(..).map(|(number, _)| number));
        }
        assert!(all.into_iter().eq(0..10_000));
        assert!(teller.join().is_ok());
    }
}
