//! Operations that were asked for here, until they end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea_core::PartitionId;

use super::seen::MOST;
use crate::MemberId;
use crate::operation::{Operation, Outcome, Refusal};
use crate::succession::PartitionNumber;

/// An operation to be tried now.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub partition: PartitionNumber,
    /// Of this attempt: no two have one.
    pub number: u64,
    /// The lowest number of an attempt that is waited for.
    pub floor: u64,
    pub operation: Operation,
}

/// Operations that were asked for here. Each is tried until it is answered, or until nobody can say whether it was done.
///
/// What was refused is tried again; so is what only reads. A write that was sent and not answered is not: it would be done twice.
#[derive(Debug)]
pub(super) struct Desk {
    me: MemberId,
    patience: Duration,
    retry: Duration,
    asked: BTreeMap<u64, Asked>,
    /// Which operation an attempt belongs to.
    attempts: BTreeMap<u64, u64>,
    last: u64,
    ended: Vec<(u64, Outcome)>,
}

#[derive(Debug)]
struct Asked {
    partition: PartitionNumber,
    operation: Operation,
    until: Duration,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// This attempt was sent to that member.
    Sent(u64, Option<MemberId>, Duration),
    /// It was refused so, and is tried again then.
    Later(Duration, Refusal),
}

impl Desk {
    pub fn new(me: MemberId, patience: Duration, retry: Duration) -> Self {
        Desk {
            me,
            patience,
            retry,
            asked: BTreeMap::new(),
            attempts: BTreeMap::new(),
            last: 0,
            ended: Vec::new(),
        }
    }

    /// Somebody asks.
    pub fn ask(
        &mut self,
        now: Duration,
        id: u64,
        partition: PartitionId,
        operation: Operation,
    ) -> Option<Step> {
        let asked = Asked {
            partition: partition.index(),
            operation,
            until: now + self.patience,
            stage: Stage::Later(now, Refusal::CutOff),
        };
        self.asked.insert(id, asked);
        self.attempt(now, id)
    }

    fn attempt(&mut self, now: Duration, id: u64) -> Option<Step> {
        let asked = self.asked.get_mut(&id)?;
        let number = self.last + 1;
        let floor = self.attempts.keys().next().copied().unwrap_or(number);
        if number - floor >= MOST {
            // Others remember no more: it waits for the oldest that is under way.
            asked.stage = Stage::Later(now + self.retry, Refusal::NotPrimary);
            return None;
        }
        self.last = number;
        asked.stage = Stage::Sent(number, None, now);
        self.attempts.insert(number, id);
        Some(Step {
            partition: asked.partition,
            number,
            floor,
            operation: asked.operation.clone(),
        })
    }

    /// The attempt was sent to that member.
    pub fn sent(&mut self, now: Duration, number: u64, to: Option<MemberId>) {
        if let Some(asked) = self
            .attempts
            .get(&number)
            .and_then(|id| self.asked.get_mut(id))
        {
            asked.stage = Stage::Sent(number, to, now);
        }
    }

    /// An attempt has ended, as that member says, or this one.
    pub fn ended(&mut self, now: Duration, number: u64, from: Option<MemberId>, outcome: Outcome) {
        let Some(id) = self.attempts.get(&number).copied() else {
            return;
        };
        let Some(asked) = self.asked.get_mut(&id) else {
            return;
        };
        match &asked.stage {
            Stage::Sent(sent, to, _) if *sent == number && (from.is_none() || from == *to) => {}
            _ => return,
        }
        self.attempts.remove(&number);
        match outcome {
            Outcome::Refused(refusal) if refusal.may_pass() && now < asked.until => {
                asked.stage = Stage::Later(now + self.retry, refusal);
            }
            Outcome::Unknown if !asked.operation.writes() && now < asked.until => {
                asked.stage = Stage::Later(now + self.retry, Refusal::NotPrimary);
            }
            outcome => self.end(id, outcome),
        }
    }

    fn end(&mut self, id: u64, outcome: Outcome) {
        if let Some(asked) = self.asked.remove(&id) {
            if let Stage::Sent(number, ..) = asked.stage {
                self.attempts.remove(&number);
            }
            self.ended.push((id, outcome));
        }
    }

    /// Time has passed: what is to be tried again.
    pub fn tick(&mut self, now: Duration) -> Vec<Step> {
        let mut again = Vec::new();
        let mut over = Vec::new();
        for (id, asked) in &self.asked {
            let is_over = now >= asked.until;
            match &asked.stage {
                Stage::Later(_, refusal) if is_over => {
                    over.push((*id, Outcome::Refused(refusal.clone())));
                }
                Stage::Later(at, _) if now >= *at => again.push(*id),
                Stage::Sent(..) if is_over => over.push((*id, Outcome::Unknown)),
                // A read whose answer is late is asked for once more.
                Stage::Sent(_, Some(to), at)
                    if *to != self.me
                        && !asked.operation.writes()
                        && now >= *at + self.patience / 10 =>
                {
                    again.push(*id);
                }
                _ => {}
            }
        }
        for (id, outcome) in over {
            self.end(id, outcome);
        }
        for id in &again {
            if let Some(Stage::Sent(number, ..)) = self.asked.get(id).map(|asked| &asked.stage) {
                self.attempts.remove(number);
            }
        }
        again
            .into_iter()
            .filter_map(|id| self.attempt(now, id))
            .collect()
    }

    /// Who belongs to the grid now. Nobody can say what became of writes that were sent to others; all else is tried again.
    pub fn members_are(&mut self, now: Duration, members: &BTreeSet<MemberId>) {
        let is_lost = |asked: &Asked| matches!(&asked.stage, Stage::Sent(_, Some(to), _) if !members.contains(to));
        let lost: Vec<u64> = self
            .asked
            .iter()
            .filter(|(_, asked)| is_lost(asked))
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            if self
                .asked
                .get(&id)
                .is_some_and(|asked| asked.operation.writes())
            {
                self.end(id, Outcome::Unknown);
            } else if let Some(asked) = self.asked.get_mut(&id) {
                if let Stage::Sent(number, ..) = asked.stage {
                    self.attempts.remove(&number);
                }
                asked.stage = Stage::Later(now, Refusal::NotPrimary);
            }
        }
    }

    /// This member belongs to no grid any more.
    pub fn give_up(&mut self) {
        let all: Vec<u64> = self.asked.keys().copied().collect();
        for id in all {
            let outcome = match self.asked.get(&id).map(|asked| &asked.stage) {
                Some(Stage::Later(..)) => Outcome::Refused(Refusal::CutOff),
                _ => Outcome::Unknown,
            };
            self.end(id, outcome);
        }
    }

    /// What has ended since the last time.
    pub fn take_ended(&mut self) -> Vec<(u64, Outcome)> {
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_far_ahead_of_the_oldest_waits_for_it() {
        let mut desk = Desk::new(
            MemberId(1),
            Duration::from_secs(10),
            Duration::from_millis(2),
        );
        let (now, partition) = (Duration::from_secs(1), PartitionId::of_canonical(b"key"));
        let clear = || Operation::Clear(crate::MapId(1));
        let oldest = desk.ask(now, 1, partition, clear()).unwrap();
        desk.last += MOST - 1;
        assert!(desk.ask(now, 2, partition, clear()).is_none());
        let later = now + Duration::from_millis(5);
        assert!(desk.tick(later).is_empty());
        let done = Outcome::Answered(crate::Answer::Done);
        desk.ended(later, oldest.number, None, done.clone());
        assert_eq!(desk.take_ended(), [(1, done)]);
        assert_eq!(desk.tick(later + Duration::from_millis(5)).len(), 1);
    }
}
