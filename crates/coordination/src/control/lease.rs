//! Leader election: a lease in the metadata store that determines the leader of a job.
//!
//! A lease record in the metadata store names the holder, which renews the lease before its term
//! ends. Every other candidate reads the record periodically. It takes over when the version has
//! not changed for a whole term.
//!
//! **Why there is one leader.** Clocks of different machines are never compared; only durations are
//! assumed to agree, within [`LeaseConfig::drift_margin`]. The holder counts its term from the
//! moment at which it *sent* the write. A candidate counts from the moment at which it *saw* that
//! write, which is later. So the holder's term, shortened by the margin, ends before any
//! candidate's. If two candidates claim the lease, they write against the same version, and only
//! one of them succeeds. A holder may still have messages in transit when its term ends. Therefore
//! every message of a leader carries its [`MasterEpoch`], and receivers obey the highest one only.
//!
//! **A missing lease** of an existing job means that a damaged lease was removed, since a
//! resignation does not remove the record. The holder of the removed lease may still rely on its
//! term. A candidate that has read a lease before therefore waits for one term after it finds none.
//! Then it claims an epoch above all epochs that it has read. A holder whose own lease was removed
//! claims immediately. Only a new candidate, which has never read a lease, assumes that the job
//! never had a leader. For at most one term there may then be two leaders. The job's record decides
//! between them, since it contains the epoch and is written against a version. A leader that finds
//! a later epoch in the record, or its own epoch written by another process, steps down
//! ([`LeaseEvent::Outpaced`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::{MasterEpoch, RequestId, StoreReply, StoreRequest, StoreVersion};

/// The lease as stored in the metadata store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The name of the holder, which no other process has or had.
    pub holder: String,
    /// The address at which workers and commands reach the holder.
    pub address: String,
    /// The master epoch of the holder's leadership.
    pub epoch: MasterEpoch,
    /// True if the holder has resigned, so that the next candidate may claim immediately.
    pub resigned: bool,
}

/// Durations of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseConfig {
    /// The time for which a lease is valid after its last renewal. Must be the same for all
    /// candidates.
    pub term: Duration,
    /// The amount by which a holder shortens its own term, to allow for clocks of different speeds.
    pub drift_margin: Duration,
    /// The interval of renewals by the holder, and of reads by candidates.
    pub renew_interval: Duration,
    /// The timeout of a request to the metadata store.
    pub request_timeout: Duration,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        LeaseConfig {
            term: Duration::from_secs(4),
            drift_margin: Duration::from_millis(400),
            renew_interval: Duration::from_secs(1),
            request_timeout: Duration::from_secs(1),
        }
    }
}

/// An event for a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseEvent {
    /// Time has passed. Must come at least every 100 ms.
    Tick,
    /// A reply of the metadata store.
    Reply(RequestId, StoreReply<LeaseRecord>),
    /// Resign the leadership, so that another candidate can claim it immediately.
    Resign,
    /// Another leadership with this epoch, not below the own one, was observed: the lease was
    /// removed and written again. If this process still holds the lease, it claims it again with a
    /// later epoch.
    Outpaced(MasterEpoch),
}

/// An action requested by a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseAction {
    /// Send a request to the metadata store.
    Store(RequestId, StoreRequest<LeaseRecord>),
    /// This process is the leader from now on, until [`LeaseAction::Lost`].
    Gained(MasterEpoch),
    /// The job is gone: there is no leadership any more, and no more requests are sent.
    JobGone,
    /// This process is no longer the leader; messages not yet sent must be dropped.
    Lost(MasterEpoch),
}

/// A candidate for the leadership of a job.
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
    seen: Option<ObservedLease>,
    held: Option<LeaseHolder>,
    /// The highest master epoch of this candidate or observed by it.
    newest: MasterEpoch,
    /// True if this candidate has read a lease whose holder may still rely on it, even after its
    /// removal.
    was_there: bool,
    asked: Option<PendingRequest>,
    /// A renewal that was not answered in time, and whose reply may still arrive.
    late: Option<PendingRequest>,
    requests: u64,
    next_at: Duration,
    resigning: bool,
    over: bool,
}

/// The last value read or written, and the time since which it has been unchanged.
#[derive(Clone, Debug)]
struct ObservedLease {
    stored: Option<(LeaseRecord, StoreVersion)>,
    since: Duration,
}

#[derive(Clone, Copy, Debug)]
struct LeaseHolder {
    epoch: MasterEpoch,
    until: Duration,
}

#[derive(Clone, Debug)]
struct PendingRequest {
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
    /// Creates a candidate that workers and clients reach at `address`. `holder` must be unique
    /// among all present and past processes.
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

    /// Returns the master epoch while this candidate leads at the time `now`, otherwise `None`. To
    /// be checked before every operation that is reserved to the leader.
    pub fn mastership(&self, now: Duration) -> Option<MasterEpoch> {
        let held = self.held.filter(|held| now < held.until);
        held.map(|held| held.epoch)
    }

    /// Handles an event and returns the resulting actions.
    pub fn on(&mut self, now: Duration, event: LeaseEvent) -> Vec<LeaseAction> {
        let mut actions = Vec::new();
        if let Some(held) = self.held.take_if(|held| now >= held.until) {
            actions.push(LeaseAction::Lost(held.epoch));
        }
        let patience = self.config.request_timeout;
        if let Some(asked) = self.asked.take_if(|asked| now >= asked.sent + patience) {
            // It is unknown whether a write was done, so the record is read first.
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
                // A reply after the timeout may be outdated; only replies to renewals are accepted.
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

    /// Ends the leadership, and then claims a later epoch unless another candidate holds the lease.
    fn outpaced(&mut self, now: Duration, newest: MasterEpoch, actions: &mut Vec<LeaseAction>) {
        self.newest = self.newest.max(newest);
        if let Some(held) = self.held.take_if(|held| held.epoch <= newest) {
            actions.push(LeaseAction::Lost(held.epoch));
            // The pending request would renew the ended leadership.
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

    /// Handles the late reply to a renewal, so that a slow store does not end a leadership. A
    /// successful renewal counts from the time at which it was sent. Before this term ends, no
    /// other candidate can have claimed the lease.
    fn renewed_late(
        &mut self,
        now: Duration,
        late: PendingRequest,
        reply: StoreReply<LeaseRecord>,
    ) {
        let until = self.until(late.sent);
        if let (StoreReply::Written(version), Purpose::Renew(record)) = (reply, late.purpose)
            && let Some(held) = &mut self.held
            && held.epoch == record.epoch
        {
            held.until = held.until.max(until);
            // The pending read is no longer needed.
            self.asked
                .take_if(|asked| matches!(asked.purpose, Purpose::Look));
            self.next_at = late.sent + self.config.renew_interval;
            self.seen = Some(ObservedLease {
                stored: Some((record, version)),
                since: now,
            });
        }
    }

    /// Returns the time at which a leadership ends whose lease was last written by a request sent
    /// at `sent`.
    fn until(&self, sent: Duration) -> Duration {
        sent + self.config.term.saturating_sub(self.config.drift_margin)
    }

    fn answered(
        &mut self,
        now: Duration,
        asked: PendingRequest,
        reply: StoreReply<LeaseRecord>,
        actions: &mut Vec<LeaseAction>,
    ) {
        self.next_at = now + self.config.renew_interval;
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
                // Another process has written the lease, or this process has, by a write that timed
                // out.
                self.seen = None;
                self.next_at = now;
            }
            (StoreReply::Unavailable | StoreReply::Refused(_), purpose) => {
                self.forget_unless_looking(&purpose);
                self.next_at = now + self.config.renew_interval / 4;
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
            // No candidate that waited for this term has claimed.
            None if self.held.is_some() => self.was_there = false,
            None => {}
        }
        if let Some(held) = self.held.take_if(|_| !own) {
            actions.push(LeaseAction::Lost(held.epoch));
        }
        self.seen = Some(ObservedLease {
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
                // A claim whose reply took longer than the term is void, and is repeated.
                if now < until {
                    self.held = Some(LeaseHolder { epoch, until });
                    self.next_at = sent + self.config.renew_interval;
                    actions.push(LeaseAction::Gained(epoch));
                } else {
                    self.next_at = now;
                }
                record
            }
            Purpose::Renew(record) => {
                // The term may have ended in the meantime. An ended leadership is not revived; a
                // new one is claimed.
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
        self.seen = Some(ObservedLease {
            stored: Some((record, version)),
            since: now,
        });
    }

    /// Returns true if no other process can be the leader at `now`, according to the observations
    /// of this candidate.
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
        self.asked = Some(PendingRequest {
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
