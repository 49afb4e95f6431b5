//! Operations that were asked for here, until they end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea_core::PartitionId;

use super::seen::MOST;
use crate::protocol::MemberId;
use crate::protocol::operation::{Operation, Outcome, Refusal};
use crate::protocol::roll::Roll;
use crate::protocol::succession::PartitionNumber;

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
/// What was refused is tried again; so is what only reads. A write that was sent and not answered is not: it would be done twice. So before a write ends in doubt it is
/// recalled: if it has not left this process it was certainly not done.
#[derive(Debug)]
pub(super) struct Desk {
    me: MemberId,
    patience: Duration,
    retry: Duration,
    /// What is under way, by attempt.
    under_way: Roll<UnderWay>,
    /// What was refused, and is tried again.
    later: BTreeMap<u64, Later>,
    /// What has ended and was not told yet.
    pub ended: Vec<(u64, Outcome)>,
    /// Attempts to recall, by whom they are meant for, and not told yet.
    pub recalls: BTreeMap<MemberId, BTreeSet<u64>>,
}

#[derive(Debug)]
struct Asked {
    id: u64,
    partition: PartitionNumber,
    operation: Operation,
    until: Duration,
}

/// An attempt was sent to that member, then.
#[derive(Debug)]
struct UnderWay {
    asked: Asked,
    to: Option<MemberId>,
    at: Duration,
    recalled: Option<Duration>,
}

/// It was refused so, and is tried again then.
#[derive(Debug)]
struct Later {
    asked: Asked,
    at: Duration,
    refusal: Refusal,
}

impl Desk {
    pub fn new(me: MemberId, patience: Duration, retry: Duration) -> Self {
        Desk {
            me,
            patience,
            retry,
            under_way: Roll::default(),
            later: BTreeMap::new(),
            ended: Vec::new(),
            recalls: BTreeMap::new(),
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
            id,
            partition: partition.index(),
            operation,
            until: now + self.patience,
        };
        self.attempt(now, asked)
    }

    fn attempt(&mut self, now: Duration, asked: Asked) -> Option<Step> {
        let floor = self.under_way.floor();
        if self.under_way.next() - floor >= MOST {
            // Others remember no more: it waits for the oldest that is under way.
            self.put_off(now + self.retry, asked, Refusal::NotPrimary);
            return None;
        }
        let (partition, operation) = (asked.partition, asked.operation.clone());
        let number = self.under_way.enter(UnderWay {
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

    /// It is tried again then.
    fn put_off(&mut self, at: Duration, asked: Asked, refusal: Refusal) {
        let later = Later { asked, at, refusal };
        self.later.insert(later.asked.id, later);
    }

    /// The attempt was sent to that member.
    pub fn sent(&mut self, now: Duration, number: u64, to: Option<MemberId>) {
        if let Some(under_way) = self.under_way.get_mut(number) {
            (under_way.to, under_way.at) = (to, now);
        }
    }

    /// An attempt never left this process: nobody has done it.
    pub fn unsent(&mut self, now: Duration, number: u64) {
        self.ended(now, number, None, Outcome::Refused(Refusal::NotPrimary));
    }

    /// An attempt has ended, as that member says, or this one.
    pub fn ended(&mut self, now: Duration, number: u64, from: Option<MemberId>, outcome: Outcome) {
        let is_it = |under_way: &UnderWay| from.is_none() || from == under_way.to;
        if !self.under_way.get(number).is_some_and(is_it) {
            return;
        }
        let Some(UnderWay { asked, .. }) = self.under_way.remove(number) else {
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

    /// Time has passed: what is to be tried again.
    pub fn tick(&mut self, now: Duration) -> Vec<Step> {
        let is_over = |asked: &Asked| now >= asked.until;
        // A read whose answer is late is asked for once more.
        let is_late = |under_way: &UnderWay| {
            under_way.to.is_some_and(|to| to != self.me)
                && !under_way.asked.operation.writes()
                && now >= under_way.at + self.patience / 10
        };
        // What was recalled a tick ago has left: otherwise that would be known.
        let has_left = |under_way: &UnderWay| under_way.recalled.is_some_and(|at| at < now);
        for number in self.which(|it| is_over(&it.asked) || is_late(it) || has_left(it)) {
            self.wait_no_longer(now, number);
        }
        let due = |later: &Later| now >= later.at || is_over(&later.asked);
        let all = self.later.iter();
        let due: Vec<u64> = all.filter(|(_, it)| due(it)).map(|(id, _)| *id).collect();
        let mut again = Vec::new();
        for id in due {
            let Some(Later { asked, refusal, .. }) = self.later.remove(&id) else {
                continue;
            };
            match is_over(&asked) {
                true => self.ended.push((id, Outcome::Refused(refusal))),
                false => again.extend(self.attempt(now, asked)),
            }
        }
        again
    }

    /// An attempt is waited for no longer. If nobody can say yet whether a write has left, it is recalled.
    fn wait_no_longer(&mut self, now: Duration, number: u64) {
        if let Some(UnderWay {
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
        let Some(UnderWay { asked, .. }) = self.under_way.remove(number) else {
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

    /// The attempts of which that is true, in order.
    fn which(&self, is_it: impl Fn(&UnderWay) -> bool) -> Vec<u64> {
        let all = self.under_way.iter();
        all.filter(|(_, it)| is_it(it))
            .map(|(number, _)| number)
            .collect()
    }

    /// Who belongs to the grid now. Nobody can say what became of writes that were sent to others; all else is tried again.
    pub fn members_are(&mut self, now: Duration, members: &BTreeSet<MemberId>) {
        let is_gone = |it: &UnderWay| it.to.is_some_and(|to| !members.contains(&to));
        // What is recalled already is concluded by time alone: whether it has left may not be known yet.
        for number in self.which(|it| it.recalled.is_none() && is_gone(it)) {
            self.wait_no_longer(now, number);
        }
    }

    /// This member belongs to no grid any more.
    pub fn give_up(&mut self) {
        for number in self.which(|_| true) {
            let Some(UnderWay { asked, .. }) = self.under_way.remove(number) else {
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
        let mut desk = Desk::new(
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
