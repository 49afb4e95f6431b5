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
//!
//! **A lease that is removed** while its job is there, which happens to damaged ones alone (whoever resigns writes that down), says nothing
//! of its holder, who may count on its term. So who has seen a lease waits for a term from when it finds none, and then claims with a
//! number above all that it has seen; who has lost the lease by that itself claims at once. Only a candidate that has just come, and has
//! seen no lease, takes the job for one that nobody has led yet. For a term at most there may be two masters then, and what is stored of
//! the job decides: it is written against a version, and with the number; who finds a later number there, or its own that it has not
//! written, steps down ([`LeaseEvent::Outpaced`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::{MasterEpoch, RequestId, StoreReply, StoreRequest, StoreVersion};

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
    /// A mastership of this number, which is not below the present one, was heard of: the lease has been lost and was written anew. If it is
    /// still held, it is claimed with a later number.
    Outpaced(MasterEpoch),
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
/// use ardea_coordination::control::{Lease, LeaseAction, LeaseConfig, LeaseEvent, MasterEpoch, StoreReply, StoreVersion};
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
    /// The last mastership of this candidate, or a later one that it has seen or heard of.
    newest: MasterEpoch,
    /// Whether there has been a lease that somebody else may still count on when it is gone.
    was_there: bool,
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
            newest: MasterEpoch::default(),
            was_there: false,
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
            LeaseEvent::Outpaced(newest) => self.outpaced(now, newest, &mut actions),
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

    /// Ends the mastership, and claims another if nobody has by then.
    fn outpaced(&mut self, now: Duration, newest: MasterEpoch, actions: &mut Vec<LeaseAction>) {
        self.newest = self.newest.max(newest);
        if let Some(held) = self.held.take_if(|held| held.epoch <= newest) {
            actions.push(LeaseAction::Lost(held.epoch));
            // What is under way would renew what is over.
            self.asked = None;
            self.late = None;
            self.seen = None;
            self.next_at = now;
        }
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
        match &found {
            Some((record, _)) => {
                self.newest = self.newest.max(record.epoch);
                self.was_there = true;
            }
            // Nobody who has waited for the term of this one has claimed.
            None if self.held.is_some() => self.was_there = false,
            None => {}
        }
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
                let epoch = record.epoch;
                self.newest = self.newest.max(epoch);
                // A claim that took longer than the term is worth nothing; it is made anew.
                if now < until {
                    self.held = Some(Held { epoch, until });
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
        self.was_there = true;
        self.seen = Some(Seen {
            stored: Some((record, version)),
            since: now,
        });
    }

    /// Whether nobody else can be the master now, as far as this one has seen.
    fn is_free(&self, now: Duration) -> bool {
        let Some(seen) = &self.seen else {
            return false;
        };
        let at_once = match &seen.stored {
            None => !self.was_there,
            Some((record, _)) => record.resigned || record.holder == self.holder,
        };
        at_once || now >= seen.since + self.config.term
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
            (Some(_), None) if self.is_free(now) => Purpose::Claim(self.record(self.newest.next())),
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
mod tests;
