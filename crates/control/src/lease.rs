//! Mastership: who is the master of a job, and since when nobody else is.
//!
//! A record in the state manager names the holder. The holder writes it again before its term is over; every other
//! candidate looks at it from time to time, and takes over when it has seen the same version for a whole term.
//!
//! **Why there is one master.** Nobody compares clocks of two machines, only durations are assumed to be alike, within
//! [`LeaseConfig::drift_margin`]. The holder counts its term from the moment at which it *sent* the write; a candidate counts from the
//! moment at which it *saw* that write, which is later. So the holder's term, made shorter by the margin, has ended before
//! any candidate's has. Two candidates that find it over write against the same version: one of them succeeds. Since a
//! holder may still have messages under way when its term ends, all that a master says carries its [`MasterEpoch`],
//! and receivers obey the highest one only.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{MasterEpoch, RequestId, StoreReply, StoreRequest, StoreVersion};

/// What stands in the state manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The holder: a name that no other process has or had.
    pub holder: String,
    /// Where workers and commands reach it.
    pub address: String,
    /// The number of its mastership.
    pub epoch: MasterEpoch,
    /// Whether the holder has given it up: the next may take it at once.
    pub resigned: bool,
}

/// Times of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseConfig {
    /// How long a lease lasts after its last renewal. The same for all candidates.
    pub term: Duration,
    /// By how much a holder considers its own term shorter, for clocks that run at different speeds.
    pub drift_margin: Duration,
    /// How often a holder renews and a candidate looks.
    pub every: Duration,
    /// After how long a request counts as unanswered.
    pub patience: Duration,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        LeaseConfig {
            term: Duration::from_secs(4),
            drift_margin: Duration::from_millis(400),
            every: Duration::from_secs(1),
            patience: Duration::from_secs(1),
        }
    }
}

/// What happens to a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseEvent {
    /// Time has passed; comes at least every 100 ms.
    Tick,
    /// The state manager's answer.
    Reply(RequestId, StoreReply<LeaseRecord>),
    /// Give it up, in good order.
    Resign,
}

/// What a candidate wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseAction {
    /// Ask the state manager.
    Store(RequestId, StoreRequest<LeaseRecord>),
    /// From now on this is the master, until [`LeaseAction::Lost`].
    Gained(MasterEpoch),
    /// The job is gone: there is nothing to be master of, and nothing more is asked.
    JobGone,
    /// From now on this is not the master; whatever it has not sent yet must not be sent.
    Lost(MasterEpoch),
}

/// A candidate for the mastership of a job.
///
/// ```
/// use std::time::Duration;
/// use ardea_control::{Lease, LeaseAction, LeaseConfig, LeaseEvent, MasterEpoch, StoreReply, StoreVersion};
///
/// let mut lease = Lease::new("master-1", "10.0.0.1:7000", LeaseConfig::default());
/// let now = Duration::ZERO;
/// let [LeaseAction::Store(read, _)] = &lease.on(now, LeaseEvent::Tick)[..] else { panic!() };
/// let nobody = LeaseEvent::Reply(*read, StoreReply::Found(None));
/// let [LeaseAction::Store(write, _)] = &lease.on(now, nobody)[..] else { panic!() };
/// let written = LeaseEvent::Reply(*write, StoreReply::Written(StoreVersion(1)));
/// assert_eq!(lease.on(now, written), [LeaseAction::Gained(MasterEpoch(1))]);
/// ```
#[derive(Debug)]
pub struct Lease {
    holder: String,
    address: String,
    config: LeaseConfig,
    seen: Option<Seen>,
    held: Option<Held>,
    /// The last mastership of this candidate.
    gained: MasterEpoch,
    asked: Option<Asked>,
    /// A renewal that was not answered in time, and may still be.
    late: Option<Asked>,
    requests: u64,
    next_at: Duration,
    resigning: bool,
    over: bool,
}

/// What was read or written last, and since when it has been so.
#[derive(Clone, Debug)]
struct Seen {
    stored: Option<(LeaseRecord, StoreVersion)>,
    since: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    epoch: MasterEpoch,
    until: Duration,
}

/// The request that is under way.
#[derive(Clone, Debug)]
struct Asked {
    id: RequestId,
    sent: Duration,
    purpose: Purpose,
}

#[derive(Clone, Debug)]
enum Purpose {
    Look,
    Claim(LeaseRecord),
    Renew(LeaseRecord),
    Resign(LeaseRecord),
}

impl Lease {
    /// A candidate that no other process has the name of, reached at `address`.
    pub fn new(holder: impl Into<String>, address: impl Into<String>, config: LeaseConfig) -> Self {
        Lease {
            holder: holder.into(),
            address: address.into(),
            config,
            seen: None,
            held: None,
            gained: MasterEpoch::default(),
            asked: None,
            late: None,
            requests: 0,
            next_at: Duration::ZERO,
            resigning: false,
            over: false,
        }
    }

    /// The number of the mastership, while it lasts: ask this before each thing that only a master may do.
    pub fn mastership(&self, now: Duration) -> Option<MasterEpoch> {
        let held = self.held.filter(|held| now < held.until);
        held.map(|held| held.epoch)
    }

    /// Deals with an event.
    pub fn on(&mut self, now: Duration, event: LeaseEvent) -> Vec<LeaseAction> {
        let mut actions = Vec::new();
        if let Some(held) = self.held.take_if(|held| now >= held.until) {
            actions.push(LeaseAction::Lost(held.epoch));
        }
        let patience = self.config.patience;
        if let Some(asked) = self.asked.take_if(|asked| now >= asked.sent + patience) {
            // Whether a write was done is not known: look first.
            self.forget_unless_looking(&asked.purpose);
            self.next_at = now;
            self.late = Some(asked).filter(|asked| matches!(asked.purpose, Purpose::Renew(_)));
        }
        match event {
            LeaseEvent::Tick => {}
            LeaseEvent::Resign => {
                self.resigning = true;
                self.next_at = now;
            }
            LeaseEvent::Reply(id, reply) => {
                // A reply that was no longer waited for may be out of date: of those only renewals are heard.
                if let Some(asked) = self.asked.take_if(|asked| asked.id == id) {
                    self.answered(now, asked, reply, &mut actions);
                } else if let Some(late) = self.late.take_if(|late| late.id == id) {
                    self.renewed_late(now, late, reply);
                }
            }
        }
        self.ask(now, &mut actions);
        actions
    }

    fn forget_unless_looking(&mut self, purpose: &Purpose) {
        if !matches!(purpose, Purpose::Look) {
            self.seen = None;
        }
    }

    /// Slow answers are no reason to lose a mastership: a renewal that was written counts from when it was sent, as any other, and
    /// nobody can have claimed before that is over.
    fn renewed_late(&mut self, now: Duration, late: Asked, reply: StoreReply<LeaseRecord>) {
        let until = self.until(late.sent);
        if let (StoreReply::Written(version), Purpose::Renew(record)) = (reply, late.purpose)
            && let Some(held) = &mut self.held
            && held.epoch == record.epoch
        {
            held.until = held.until.max(until);
            // What it looks for meanwhile is known now.
            self.asked
                .take_if(|asked| matches!(asked.purpose, Purpose::Look));
            self.next_at = late.sent + self.config.every;
            self.seen = Some(Seen {
                stored: Some((record, version)),
                since: now,
            });
        }
    }

    /// How long a mastership lasts whose lease was written by what was sent then.
    fn until(&self, sent: Duration) -> Duration {
        sent + self.config.term.saturating_sub(self.config.drift_margin)
    }

    fn answered(
        &mut self,
        now: Duration,
        asked: Asked,
        reply: StoreReply<LeaseRecord>,
        actions: &mut Vec<LeaseAction>,
    ) {
        self.next_at = now + self.config.every;
        match (reply, asked.purpose) {
            (StoreReply::Found(found), _) => self.look(now, found, actions),
            (StoreReply::Written(version), purpose) => {
                self.wrote(now, asked.sent, purpose, version, actions);
            }
            (StoreReply::JobGone, _) => {
                let held = self.held.take();
                actions.extend(held.map(|held| LeaseAction::Lost(held.epoch)));
                actions.push(LeaseAction::JobGone);
                self.over = true;
            }
            (StoreReply::Conflict | StoreReply::Deleted, _) => {
                // Somebody has written since, perhaps this one itself, by a write that it had given up.
                self.seen = None;
                self.next_at = now;
            }
            (StoreReply::Unavailable | StoreReply::Refused(_), purpose) => {
                self.forget_unless_looking(&purpose);
                self.next_at = now + self.config.every / 4;
            }
        }
    }

    fn look(
        &mut self,
        now: Duration,
        found: Option<(LeaseRecord, StoreVersion)>,
        actions: &mut Vec<LeaseAction>,
    ) {
        let version = found.as_ref().map(|(_, version)| *version);
        let unchanged = self
            .seen
            .as_ref()
            .filter(|seen| seen.stored.as_ref().map(|(_, v)| *v) == version);
        let since = unchanged.map_or(now, |seen| seen.since);
        let own = found
            .as_ref()
            .is_some_and(|(record, _)| record.holder == self.holder);
        if let Some(held) = self.held.take_if(|_| !own) {
            actions.push(LeaseAction::Lost(held.epoch));
        }
        self.seen = Some(Seen {
            stored: found,
            since,
        });
        if self.held.is_some() || self.is_free(now) {
            self.next_at = now;
        }
    }

    fn wrote(
        &mut self,
        now: Duration,
        sent: Duration,
        purpose: Purpose,
        version: StoreVersion,
        actions: &mut Vec<LeaseAction>,
    ) {
        let until = self.until(sent);
        let record = match purpose {
            Purpose::Look => return,
            Purpose::Claim(record) => {
                // A claim that took longer than the term is worth nothing; it is made anew.
                if now < until {
                    let epoch = record.epoch;
                    self.held = Some(Held { epoch, until });
                    self.gained = epoch;
                    self.next_at = sent + self.config.every;
                    actions.push(LeaseAction::Gained(epoch));
                } else {
                    self.next_at = now;
                }
                record
            }
            Purpose::Renew(record) => {
                // It may have ended while this was under way: an ended mastership is not revived, a new one is claimed.
                match &mut self.held {
                    Some(held) => held.until = until,
                    None => self.next_at = now,
                }
                record
            }
            Purpose::Resign(record) => {
                if let Some(held) = self.held.take() {
                    actions.push(LeaseAction::Lost(held.epoch));
                }
                record
            }
        };
        self.seen = Some(Seen {
            stored: Some((record, version)),
            since: now,
        });
    }

    /// Whether nobody else can be the master now.
    fn is_free(&self, now: Duration) -> bool {
        let Some(seen) = &self.seen else {
            return false;
        };
        match &seen.stored {
            None => true,
            Some((record, _)) => {
                record.resigned
                    || record.holder == self.holder
                    || now >= seen.since + self.config.term
            }
        }
    }

    fn ask(&mut self, now: Duration, actions: &mut Vec<LeaseAction>) {
        let done = self.over || (self.resigning && self.held.is_none());
        if self.asked.is_some() || now < self.next_at || done {
            return;
        }
        let purpose = match (&self.seen, self.held) {
            (None, _) => Purpose::Look,
            (Some(_), Some(held)) if self.resigning => Purpose::Resign(self.record(held.epoch)),
            (Some(_), Some(held)) => Purpose::Renew(self.record(held.epoch)),
            (Some(seen), None) if self.is_free(now) => {
                let before = seen.stored.as_ref().map(|(record, _)| record.epoch);
                let before = before.unwrap_or_default().max(self.gained);
                Purpose::Claim(self.record(before.next()))
            }
            (Some(_), None) => Purpose::Look,
        };
        self.requests += 1;
        let id = RequestId(self.requests);
        let request = match &purpose {
            Purpose::Look => StoreRequest::Read,
            Purpose::Claim(record) | Purpose::Renew(record) | Purpose::Resign(record) => {
                let stored = self.seen.as_ref().and_then(|seen| seen.stored.as_ref());
                StoreRequest::Write {
                    value: record.clone(),
                    expected: stored.map(|(_, version)| *version),
                }
            }
        };
        actions.push(LeaseAction::Store(id, request));
        self.asked = Some(Asked {
            id,
            sent: now,
            purpose,
        });
    }

    fn record(&self, epoch: MasterEpoch) -> LeaseRecord {
        LeaseRecord {
            holder: self.holder.clone(),
            address: self.address.clone(),
            epoch,
            resigned: self.resigning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state manager, by hand: answers at once.
    #[derive(Default)]
    struct Shelf(Option<(LeaseRecord, StoreVersion)>, u64);

    impl Shelf {
        fn answer(&mut self, request: StoreRequest<LeaseRecord>) -> StoreReply<LeaseRecord> {
            let there = self.0.as_ref().map(|(_, version)| *version);
            match request {
                StoreRequest::Read => StoreReply::Found(self.0.clone()),
                StoreRequest::Write { value, expected } if expected == there => {
                    self.1 += 1;
                    self.0 = Some((value, StoreVersion(self.1)));
                    StoreReply::Written(StoreVersion(self.1))
                }
                _ => StoreReply::Conflict,
            }
        }

        /// Runs a candidate until it asks no more; what became of its mastership.
        fn run(&mut self, lease: &mut Lease, now: Duration, event: LeaseEvent) -> Vec<LeaseAction> {
            let mut told = Vec::new();
            let mut events = vec![event];
            while let Some(event) = events.pop() {
                for action in lease.on(now, event) {
                    match action {
                        LeaseAction::Store(id, request) => {
                            events.push(LeaseEvent::Reply(id, self.answer(request)));
                        }
                        other => told.push(other),
                    }
                }
            }
            told
        }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn candidates() -> (Lease, Lease) {
        let candidate = |name| Lease::new(name, name, LeaseConfig::default());
        (candidate("a"), candidate("b"))
    }

    #[test]
    fn the_first_to_claim_holds_and_renews_and_the_other_waits() {
        let (mut a, mut b) = candidates();
        let mut shelf = Shelf::default();
        let gained = shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
        assert_eq!(gained, [LeaseAction::Gained(MasterEpoch(1))]);
        for second in 0..20 {
            assert!(
                shelf
                    .run(&mut a, seconds(second), LeaseEvent::Tick)
                    .is_empty()
            );
            assert!(
                shelf
                    .run(&mut b, seconds(second), LeaseEvent::Tick)
                    .is_empty()
            );
            assert_eq!(a.mastership(seconds(second)), Some(MasterEpoch(1)));
        }
    }

    #[test]
    fn a_standby_takes_over_a_term_after_the_last_renewal_and_not_before_the_holder_has_given_up() {
        let (mut a, mut b) = candidates();
        let mut shelf = Shelf::default();
        shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
        let mut taken_over = None;
        for tick in 0..100 {
            let now = Duration::from_millis(100 * tick);
            if !shelf.run(&mut b, now, LeaseEvent::Tick).is_empty() {
                taken_over.get_or_insert(now);
                assert_eq!(a.mastership(now), None);
            }
        }
        let taken_over = taken_over.unwrap();
        assert!(
            (seconds(4)..=seconds(6)).contains(&taken_over),
            "{taken_over:?}"
        );
        assert_eq!(b.mastership(taken_over), Some(MasterEpoch(2)));
        let lost = a.on(taken_over, LeaseEvent::Tick);
        assert_eq!(lost[0], LeaseAction::Lost(MasterEpoch(1)));
    }

    #[test]
    fn who_resigns_is_followed_at_once() {
        let (mut a, mut b) = candidates();
        let mut shelf = Shelf::default();
        shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
        let lost = shelf.run(&mut a, seconds(1), LeaseEvent::Resign);
        assert_eq!(lost, [LeaseAction::Lost(MasterEpoch(1))]);
        let gained = shelf.run(&mut b, seconds(1), LeaseEvent::Tick);
        assert_eq!(gained, [LeaseAction::Gained(MasterEpoch(2))]);
    }

    #[test]
    fn a_claim_whose_answer_is_lost_is_made_again_with_a_higher_number() {
        let (mut a, _) = candidates();
        let mut shelf = Shelf::default();
        let read = a.on(seconds(0), LeaseEvent::Tick).remove(0);
        let LeaseAction::Store(id, request) = read else {
            panic!("{read:?}");
        };
        let claim = a
            .on(seconds(0), LeaseEvent::Reply(id, shelf.answer(request)))
            .remove(0);
        let LeaseAction::Store(lost_id, request) = claim else {
            panic!("{claim:?}");
        };
        let lost_answer = shelf.answer(request);
        let gained = shelf.run(&mut a, seconds(2), LeaseEvent::Tick);
        assert_eq!(gained, [LeaseAction::Gained(MasterEpoch(2))]);
        assert!(
            a.on(seconds(2), LeaseEvent::Reply(lost_id, lost_answer))
                .is_empty()
        );
    }

    #[test]
    fn a_holder_whose_store_answers_slowly_stays_the_holder() {
        let (mut a, _) = candidates();
        let mut shelf = Shelf::default();
        shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
        // Each answer takes a second and a half; the store has done at once what it was asked for.
        let mut coming = Vec::new();
        for tick in 0..600 {
            let now = Duration::from_millis(100 * tick);
            let ready = coming.partition_point(|(at, ..): &(Duration, _, _)| *at <= now);
            let mut events = vec![LeaseEvent::Tick];
            let ready = coming.drain(..ready);
            events.extend(ready.map(|(_, id, reply)| LeaseEvent::Reply(id, reply)));
            for action in events.into_iter().flat_map(|event| a.on(now, event)) {
                let LeaseAction::Store(id, request) = action else {
                    panic!("at {now:?}: {action:?}");
                };
                let at = now + Duration::from_millis(1500);
                coming.push((at, id, shelf.answer(request)));
            }
            assert_eq!(a.mastership(now), Some(MasterEpoch(1)));
        }
    }

    #[test]
    fn a_renewal_that_comes_back_after_the_term_does_not_revive_the_mastership() {
        let (mut a, _) = candidates();
        let mut shelf = Shelf::default();
        shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
        let config = LeaseConfig {
            patience: seconds(60),
            ..LeaseConfig::default()
        };
        a.config = config;
        let renewal = a.on(seconds(1), LeaseEvent::Tick).remove(0);
        let LeaseAction::Store(id, request) = renewal else {
            panic!("{renewal:?}");
        };
        let answer = shelf.answer(request);
        assert_eq!(
            a.on(seconds(5), LeaseEvent::Tick),
            [LeaseAction::Lost(MasterEpoch(1))]
        );
        let next = shelf.run(&mut a, seconds(6), LeaseEvent::Reply(id, answer));
        assert_eq!(next, [LeaseAction::Gained(MasterEpoch(2))]);
    }
}
