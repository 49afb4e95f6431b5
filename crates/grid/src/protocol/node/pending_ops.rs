//! Operations of local callers, until they end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea_core::PartitionId;

use super::request_dedup::MOST;
use crate::protocol::MemberId;
use crate::protocol::operation::{Operation, Outcome, Refusal};
use crate::protocol::reconfiguration::PartitionNumber;
use crate::protocol::sequence_slab::SequenceSlab;

/// An attempt at an operation, to be sent now.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub partition: PartitionNumber,
    /// Unique number of the attempt.
    pub number: u64,
    /// The lowest number of an outstanding attempt.
    pub floor: u64,
    pub operation: Operation,
}

/// Operations of local callers. Each is retried until it is answered, or until its outcome cannot
/// be determined.
///
/// Refused operations and reads are retried. A write that was sent and not answered is not retried,
/// since it could be carried out twice. Before a write ends as unknown it is recalled: if it has
/// not left this process, it was not carried out.
#[derive(Debug)]
pub(super) struct PendingOperations {
    me: MemberId,
    patience: Duration,
    retry: Duration,
    /// Outstanding attempts by number.
    under_way: SequenceSlab<PendingOperation>,
    /// Operations to be retried later.
    later: BTreeMap<u64, DelayedOperation>,
    /// Operations that have ended and were not reported yet.
    pub ended: Vec<(u64, Outcome)>,
    /// Attempts to be recalled, by recipient, and not reported yet.
    pub recalls: BTreeMap<MemberId, BTreeSet<u64>>,
}

#[derive(Debug)]
struct PendingOp {
    id: u64,
    partition: PartitionNumber,
    operation: Operation,
    until: Duration,
}

/// An attempt, its recipient and the time at which it was sent.
#[derive(Debug)]
struct PendingOperation {
    asked: PendingOp,
    to: Option<MemberId>,
    at: Duration,
    recalled: Option<Duration>,
}

/// A refused operation and the time of its retry.
#[derive(Debug)]
struct DelayedOperation {
    asked: PendingOp,
    at: Duration,
    refusal: Refusal,
}

impl PendingOperations {
    pub fn new(me: MemberId, patience: Duration, retry: Duration) -> Self {
        PendingOperations {
            me,
            patience,
            retry,
            under_way: SequenceSlab::default(),
            later: BTreeMap::new(),
            ended: Vec::new(),
            recalls: BTreeMap::new(),
        }
    }

    /// Starts an operation.
    pub fn ask(
        &mut self,
        now: Duration,
        id: u64,
        partition: PartitionId,
        operation: Operation,
    ) -> Option<Step> {
        let asked = PendingOp {
            id,
            partition: partition.index(),
            operation,
            until: now + self.patience,
        };
        self.attempt(now, asked)
    }

    fn attempt(&mut self, now: Duration, asked: PendingOp) -> Option<Step> {
        let floor = self.under_way.floor();
        if self.under_way.next() - floor >= MOST {
            // Other members deduplicate no wider range of numbers, so this one waits for the oldest
            // outstanding attempt.
            self.put_off(now + self.retry, asked, Refusal::NotPrimary);
            return None;
        }
        let (partition, operation) = (asked.partition, asked.operation.clone());
        let number = self.under_way.enter(PendingOperation {
            asked,
            to: None,
            at: now,
            recalled: None,
        });
        Some(Step {
            partition,
            number,
            floor,
            operation,
        })
    }

    /// Schedules a retry.
    fn put_off(&mut self, at: Duration, asked: PendingOp, refusal: Refusal) {
        let later = DelayedOperation { asked, at, refusal };
        self.later.insert(later.asked.id, later);
    }

    /// Records the recipient of an attempt.
    pub fn sent(&mut self, now: Duration, number: u64, to: Option<MemberId>) {
        if let Some(under_way) = self.under_way.get_mut(number) {
            (under_way.to, under_way.at) = (to, now);
        }
    }

    /// Ends an attempt that never left this process, and so was not carried out.
    pub fn unsent(&mut self, now: Duration, number: u64) {
        self.ended(now, number, None, Outcome::Refused(Refusal::NotPrimary));
    }

    /// Ends an attempt with an outcome reported by a member, or by this process.
    pub fn ended(&mut self, now: Duration, number: u64, from: Option<MemberId>, outcome: Outcome) {
        let is_it = |under_way: &PendingOperation| from.is_none() || from == under_way.to;
        if !self.under_way.get(number).is_some_and(is_it) {
            return;
        }
        let Some(PendingOperation { asked, .. }) = self.under_way.remove(number) else {
            return;
        };
        match outcome {
            Outcome::Refused(refusal) if refusal.may_pass() && now < asked.until => {
                self.put_off(now + self.retry, asked, refusal);
            }
            Outcome::Unknown if !asked.operation.writes() && now < asked.until => {
                self.put_off(now + self.retry, asked, Refusal::NotPrimary);
            }
            outcome => self.ended.push((asked.id, outcome)),
        }
    }

    /// Handles timeouts, and returns the attempts to be sent now.
    pub fn tick(&mut self, now: Duration) -> Vec<Step> {
        let is_over = |asked: &PendingOp| now >= asked.until;
        // A read whose answer is late is sent again.
        let is_late = |under_way: &PendingOperation| {
            under_way.to.is_some_and(|to| to != self.me)
                && !under_way.asked.operation.writes()
                && now >= under_way.at + self.patience / 10
        };
        // An attempt recalled before this tick has left: otherwise it would have been reported as
        // unsent.
        let has_left = |under_way: &PendingOperation| under_way.recalled.is_some_and(|at| at < now);
        for number in self.which(|it| is_over(&it.asked) || is_late(it) || has_left(it)) {
            self.wait_no_longer(now, number);
        }
        let due = |later: &DelayedOperation| now >= later.at || is_over(&later.asked);
        let all = self.later.iter();
        let due: Vec<u64> = all.filter(|(_, it)| due(it)).map(|(id, _)| *id).collect();
        let mut again = Vec::new();
        for id in due {
            let Some(DelayedOperation { asked, refusal, .. }) = self.later.remove(&id) else {
                continue;
            };
            match is_over(&asked) {
                true => self.ended.push((id, Outcome::Refused(refusal))),
                false => again.extend(self.attempt(now, asked)),
            }
        }
        again
    }

    /// Gives up waiting for an attempt. A write that may not have left this process is recalled
    /// first.
    fn wait_no_longer(&mut self, now: Duration, number: u64) {
        if let Some(PendingOperation {
            asked,
            to,
            recalled,
            ..
        }) = self.under_way.get_mut(number)
            && let Some(to) = to.filter(|to| *to != self.me)
            && asked.operation.writes()
            && recalled.is_none_or(|at| at == now)
        {
            if recalled.replace(now).is_none() {
                self.recalls.entry(to).or_default().insert(number);
            }
            return;
        }
        let Some(PendingOperation { asked, .. }) = self.under_way.remove(number) else {
            return;
        };
        match (asked.operation.writes(), now < asked.until) {
            (true, _) => self.ended.push((asked.id, Outcome::Unknown)),
            (false, true) => self.put_off(now, asked, Refusal::NotPrimary),
            (false, false) => {
                let refused = Outcome::Refused(Refusal::NotPrimary);
                self.ended.push((asked.id, refused));
            }
        }
    }

    /// Returns the numbers of the attempts for which `is_it` is true, in order.
    fn which(&self, is_it: impl Fn(&PendingOperation) -> bool) -> Vec<u64> {
        let all = self.under_way.iter();
        all.filter(|(_, it)| is_it(it))
            .map(|(number, _)| number)
            .collect()
    }

    /// Handles a new set of members. The outcome of writes sent to former members is unknown; other
    /// operations are retried.
    pub fn members_are(&mut self, now: Duration, members: &BTreeSet<MemberId>) {
        let is_gone = |it: &PendingOperation| it.to.is_some_and(|to| !members.contains(&to));
        // A recalled attempt ends by timeout only, since it may not be known yet whether it has
        // left.
        for number in self.which(|it| it.recalled.is_none() && is_gone(it)) {
            self.wait_no_longer(now, number);
        }
    }

    /// Ends all operations after this member has been removed or has left.
    pub fn give_up(&mut self) {
        for number in self.which(|_| true) {
            let Some(PendingOperation { asked, .. }) = self.under_way.remove(number) else {
                continue;
            };
            let outcome = match asked.operation.writes() {
                true => Outcome::Unknown,
                false => Outcome::Refused(Refusal::CutOff),
            };
            self.ended.push((asked.id, outcome));
        }
        for (id, _) in std::mem::take(&mut self.later) {
            self.ended.push((id, Outcome::Refused(Refusal::CutOff)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_far_ahead_of_the_oldest_waits_for_it() {
        let mut desk = PendingOperations::new(
            MemberId(1),
            Duration::from_secs(10),
            Duration::from_millis(2),
        );
        let (now, partition) = (Duration::from_secs(1), PartitionId::of_canonical(b"key"));
        let clear = || Operation::Clear(crate::protocol::MapId(1));
        let oldest = desk.ask(now, 1, partition, clear()).unwrap();
        let done = Outcome::Answered(crate::protocol::Answer::Done);
        for id in 2..=MOST {
            let step = desk.ask(now, id, partition, clear()).unwrap();
            desk.ended(now, step.number, None, done.clone());
        }
        desk.ended.clear();
        assert!(desk.ask(now, MOST + 1, partition, clear()).is_none());
        let later = now + Duration::from_millis(5);
        assert!(desk.tick(later).is_empty());
        desk.ended(later, oldest.number, None, done.clone());
        assert_eq!(desk.ended, [(1, done)]);
        assert_eq!(desk.tick(later + Duration::from_millis(5)).len(), 1);
    }
}
