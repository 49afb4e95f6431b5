//! Role of the primary.

use std::collections::VecDeque;
use std::time::Duration;

use super::{
    Replica, ReplicaAction, ReplicaBody, ReplicaMessage, ReplicaProgress, ReplicationStreamId, Role,
};
use crate::protocol::MemberId;
use crate::protocol::operation::{Answer, Change, Outcome, Ticket};
use crate::protocol::partition_store::Cursor;
use crate::protocol::view::{Holder, Record, ViewNumber};
use crate::protocol::watch_events::PrimaryTerm;

/// Number of slots checked for expired entries per tick.
const SWEPT: usize = 256;

/// Maximum number of times that the resend interval is doubled. An unanswered message may only be
/// queued behind others; frequent resends would delay it further.
const DOUBLED: u32 = 3;

/// State of a primary.
pub(super) struct Primary {
    pub term: ViewNumber,
    /// The last change that this replica had when it became primary. Reads and writes are served
    /// once that change is settled.
    pub inherited: u64,
    /// The last change that all complete replicas have.
    pub settled: u64,
    pub peers: Vec<Peer>,
    /// True if reads and writes are stopped for a handover.
    pub is_frozen: bool,
    /// Answers to be sent once a change is applied.
    waiting: VecDeque<(u64, Ticket, Answer)>,
    swept: Cursor,
}

/// Another replica, as known to its primary.
pub(super) struct Peer {
    pub member: MemberId,
    since: ViewNumber,
    attempt: u32,
    /// The change before the first one sent in this stream.
    start: u64,
    /// The last change that the peer is known to have.
    acked: u64,
    /// The last change sent.
    sent: u64,
    sent_at: Duration,
    /// The last acknowledged change at the last check, and the last time at which there was
    /// progress or nothing was outstanding.
    stood: (u64, Duration),
    /// Number of resends since the last progress.
    again: u32,
    /// The change after which everything was sent again because of a gap. Messages sent before
    /// report the same gap, which is ignored.
    went_back: Option<u64>,
    /// The last settled change reported to the peer.
    told: u64,
    /// The last change that the peer has applied.
    made: u64,
    was_heard: bool,
    /// True if the peer has all entries from before the stream.
    is_filled: bool,
    /// True if no change is settled until the peer has it.
    pub is_needed: bool,
}

impl Primary {
    /// Returns true if no answer is pending, and all replicas have all changes up to `end` and know
    /// that they are settled.
    pub(super) fn rests(&self, end: u64) -> bool {
        let is_calm = self.settled == end && !self.is_frozen && self.waiting.is_empty();
        is_calm && self.peers.iter().all(|peer| peer.rests(end))
    }
}

impl Peer {
    /// Returns true if the peer has all changes, has applied them, and knows that they are settled.
    fn rests(&self, end: u64) -> bool {
        let has_all = self.acked == end && self.sent == end && self.made >= end;
        has_all && self.is_needed && self.was_heard && self.told == end && !self.sent_at.is_zero()
    }

    /// Records that there was progress or nothing is outstanding.
    fn stands(&mut self, now: Duration) {
        self.stood = (self.acked, now);
        self.again = 0;
    }

    fn new(holder: Holder, start: u64, is_needed: bool) -> Self {
        Peer {
            member: holder.member,
            since: holder.since,
            attempt: 0,
            start,
            acked: start,
            sent: start,
            sent_at: Duration::ZERO,
            stood: (start, Duration::ZERO),
            again: 0,
            went_back: None,
            told: 0,
            made: 0,
            was_heard: false,
            is_filled: false,
            is_needed,
        }
    }

    fn course(&self, reign: ViewNumber) -> ReplicationStreamId {
        ReplicationStreamId {
            term: reign,
            since: self.since,
            attempt: self.attempt,
        }
    }

    /// Restarts the resync after the change `start`.
    fn begin_anew(&mut self, start: u64) {
        let holder = Holder {
            member: self.member,
            since: self.since,
        };
        *self = Peer {
            attempt: self.attempt + 1,
            ..Peer::new(holder, start, false)
        };
    }
}

impl Replica {
    /// Makes this replica the primary, or continues as primary.
    pub(super) fn reign(&mut self, record: &Record) {
        let start = self.applied;
        let others = || {
            record
                .whole
                .iter()
                .chain(&record.filling)
                .filter(|holder| holder.member != self.me)
        };
        let (mut known, inherited, settled, waiting) =
            match std::mem::replace(&mut self.role, Role::Nothing) {
                Role::Primary(primary) if primary.term == record.term => (
                    primary.peers,
                    primary.inherited,
                    primary.settled,
                    primary.waiting,
                ),
                _ => {
                    let inherited = self.log.end();
                    let rule = PrimaryTerm {
                        losses: record.losses,
                        term: record.term,
                        inherited,
                    };
                    self.events.begin(rule, &self.store);
                    (Vec::new(), inherited, start, VecDeque::new())
                }
            };
        let peers = others()
            .map(|holder| {
                let is_needed = record.is_whole(holder.member);
                let is_it =
                    |peer: &Peer| peer.member == holder.member && peer.since == holder.since;
                match known.iter().position(is_it) {
                    Some(at) => Peer {
                        is_needed,
                        ..known.swap_remove(at)
                    },
                    // With asynchronous backups, others may lack changes that were applied here; a
                    // new replica must not be ahead of them.
                    None => Peer::new(*holder, settled, is_needed),
                }
            })
            .collect();
        self.role = Role::Primary(Primary {
            term: record.term,
            inherited,
            settled,
            peers,
            is_frozen: record.next_primary.is_some(),
            waiting,
            swept: Cursor::default(),
        });
    }

    /// Ends the role as primary. The outcome of unsettled changes is unknown.
    pub(super) fn abdicate(&mut self, out: &mut Vec<ReplicaAction>) {
        if let Role::Primary(primary) = &mut self.role {
            for (_, ticket, _) in primary.waiting.drain(..) {
                out.push(ReplicaAction::Answer(ticket, Outcome::Unknown));
            }
        }
    }

    /// Queues an answer until all changes ordered so far are settled. This includes answers without
    /// a change, since they may depend on changes that are not settled.
    pub(super) fn wait(&mut self, ticket: Ticket, answer: Answer) {
        let end = self.log.end();
        if let Role::Primary(primary) = &mut self.role {
            primary.waiting.push_back((end, ticket, answer));
        }
    }

    /// Applies all changes that can be applied, and sends the answers that wait for them.
    pub(super) fn settle(&mut self, out: &mut Vec<ReplicaAction>) {
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        let end = self.log.end();
        let needed = primary.peers.iter().filter(|peer| peer.is_needed);
        let everywhere = needed.map(|peer| peer.acked).min().unwrap_or(end);
        primary.settled = primary.settled.max(everywhere);
        let (settled, all) = (primary.settled, primary.peers.iter().map(|peer| peer.acked));
        let kept_for = all.min().unwrap_or(end).min(settled);
        // Also with asynchronous backups, writes wait if backups are slow, so that the log stays
        // bounded.
        let waits = self.config.is_synchronous || self.log.bytes() > self.config.log_bytes;
        let visible = match waits {
            true => settled,
            false => end,
        };
        self.apply_up_to(visible);
        self.log.forget(kept_for.min(self.applied));
        if let Role::Primary(primary) = &mut self.role {
            while let Some((number, ..)) = primary.waiting.front()
                && *number <= visible
            {
                if let Some((_, ticket, answer)) = primary.waiting.pop_front() {
                    out.push(ReplicaAction::Answer(ticket, Outcome::Answered(answer)));
                }
            }
            if primary.waiting.is_empty() {
                // As in the log: the next answers reuse the front of the buffer.
                primary.waiting.clear();
            }
        }
    }

    /// Sends changes that have not been sent to the other replicas yet.
    pub fn flush(&mut self, now: Duration, out: &mut Vec<ReplicaAction>) {
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        let (end, settled, reign) = (self.log.end(), primary.settled, primary.term);
        let inherited = primary.inherited;
        for peer in &mut primary.peers {
            let mut is_due = !peer.was_heard && now >= peer.sent_at + self.config.resend;
            is_due |= peer.sent_at.is_zero();
            while is_due || (peer.sent < end && peer.sent - peer.acked < self.config.window) {
                let Some(changes) = self.log.behind_number(peer.sent, self.config.batch_bytes)
                else {
                    // The resync is so slow that changes it needs have been dropped.
                    peer.begin_anew(settled);
                    continue;
                };
                is_due = false;
                if peer.sent == peer.acked && peer.went_back != Some(peer.acked) {
                    peer.stands(now);
                }
                let before = peer.sent;
                peer.sent += changes.len() as u64;
                (peer.sent_at, peer.told) = (now.max(Duration::from_nanos(1)), settled);
                let say = ReplicaBody::Append {
                    start: peer.start,
                    inherited,
                    before,
                    settled,
                    changes,
                };
                let course = peer.course(reign);
                out.push(ReplicaAction::SendMessage(
                    peer.member,
                    ReplicaMessage {
                        stream: course,
                        body: say,
                    },
                ));
            }
        }
    }

    /// Marks messages to be sent again by the next flush.
    pub(super) fn repeat(&mut self, now: Duration) {
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        let too_much = self.log.bytes() > self.config.log_bytes;
        for peer in &mut primary.peers {
            let is_late = now >= peer.sent_at + self.config.resend;
            if peer.acked == peer.sent || peer.acked != peer.stood.0 {
                peer.stands(now);
            } else if now >= peer.stood.1 + self.config.resend * (1 << peer.again.min(DOUBLED)) {
                peer.stood.1 = now;
                peer.again += 1;
                peer.sent = peer.acked;
                peer.went_back = Some(peer.acked);
            }
            if too_much && !peer.is_needed && peer.acked < primary.settled {
                peer.begin_anew(primary.settled);
            }
            // There are no changes to send, but a settled number to report, or an acknowledgement
            // to be requested.
            let is_behind = peer.made < primary.settled || !peer.is_needed;
            let is_idle = peer.sent == self.log.end();
            if is_idle && (peer.told < primary.settled || (is_behind && is_late)) {
                peer.sent_at = Duration::ZERO;
            }
        }
    }

    /// Processes the progress of another replica.
    pub(super) fn has(
        &mut self,
        from: MemberId,
        course: ReplicationStreamId,
        have: ReplicaProgress,
        out: &mut Vec<ReplicaAction>,
    ) {
        let end = self.log.end();
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        let (reign, settled) = (primary.term, primary.settled);
        let is_it = |peer: &&mut Peer| peer.member == from && peer.course(reign) == course;
        let Some(peer) = primary.peers.iter_mut().find(is_it) else {
            return;
        };
        peer.was_heard = true;
        peer.made = peer.made.max(have.made);
        peer.acked = peer.acked.max(have.upto.min(end));
        // All messages sent after the missing one report the gap: only the first report counts, and
        // none if the missing one has arrived meanwhile.
        let is_missing = have.gap && peer.sent > peer.acked;
        let is_news = is_missing && peer.went_back != Some(peer.acked);
        if is_news {
            peer.went_back = Some(peer.acked);
            peer.sent = peer.acked;
        }
        peer.sent = peer.sent.max(peer.acked);
        peer.is_filled |= have.filled;
        // From now on no change is settled without the peer, and the peer has all settled ones.
        peer.is_needed |= peer.is_filled && peer.acked >= settled;
        self.settle(out);
    }

    /// Sends a chunk of entries to a replica in resync.
    pub(super) fn send_chunk(
        &mut self,
        from: MemberId,
        course: ReplicationStreamId,
        cursor: Cursor,
        out: &mut Vec<ReplicaAction>,
    ) {
        let Role::Primary(primary) = &self.role else {
            return;
        };
        let is_it = |peer: &&Peer| peer.member == from && peer.course(primary.term) == course;
        if primary.peers.iter().any(|peer| is_it(&peer)) {
            let (parcels, next) = self.store.parcels(cursor, self.config.batch_bytes);
            let say = ReplicaBody::Chunk {
                from: cursor,
                next,
                at: self.applied,
                parcels,
            };
            out.push(ReplicaAction::SendMessage(
                from,
                ReplicaMessage {
                    stream: course,
                    body: say,
                },
            ));
        }
    }

    /// Removes some expired entries.
    pub(super) fn sweep(&mut self, now: Duration) {
        // If replicas are slow, only requested changes are made.
        if self.may_serve(true).is_err() || self.log.bytes() > self.config.log_bytes {
            return;
        }
        let wall = self.wall(now);
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        let (mut expired, next) = self.store.expired(primary.swept, wall, SWEPT);
        primary.swept = next;
        if !expired.is_empty() && self.applied < self.log.end() {
            // Only settled entries were checked: an unsettled change may have set or removed the
            // key.
            let (keys, maps) = self.log.touched_behind(self.applied);
            expired.retain(|(map, key)| !maps.contains(map) && !keys.contains(&(*map, &key[..])));
        }
        for (map, key) in expired {
            self.log.push(Change::Remove { map, key });
        }
    }
}
