//! The primary's part.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Course, Have, Replica, ReplicaAction, ReplicaWord, Role, Say};
use crate::protocol::MemberId;
use crate::protocol::operation::{Answer, Change, Outcome, Ticket};
use crate::protocol::shelf::Cursor;
use crate::protocol::tidings::Rule;
use crate::protocol::view::{Holder, Record, ViewNumber};

/// How many slots are looked at for entries that have expired, at each tick.
const SWEPT: usize = 256;

/// How often the time is doubled after which what nobody answers is sent again. It may only wait behind a lot else: sent ever again it would wait for itself.
const DOUBLED: u32 = 3;

/// What a primary remembers.
pub(super) struct Primary {
    pub reign: ViewNumber,
    /// The last change that it had when it became primary: nothing is read or written before that is settled.
    pub inherited: u64,
    /// The last change that all whole copies have.
    pub settled: u64,
    pub peers: Vec<Peer>,
    /// Nothing is read or written any more, so that another can be primary.
    pub is_frozen: bool,
    /// Who is answered when a change is made.
    waiting: VecDeque<(u64, Ticket, Answer)>,
    swept: Cursor,
}

/// Another copy, as its primary knows it.
pub(super) struct Peer {
    pub member: MemberId,
    since: ViewNumber,
    attempt: u32,
    /// The change before the first that it gets on this course.
    start: u64,
    /// The last change that it is known to have.
    acked: u64,
    /// The last that was sent.
    sent: u64,
    sent_at: Duration,
    /// The last change that it was known to have when that was looked at, and when it last had all or another one.
    stood: (u64, Duration),
    /// How often that was sent again since.
    again: u32,
    /// All was sent again from behind this change on, since some was missing there: what was under way then says so too, and needn't be believed.
    went_back: Option<u64>,
    /// What it was told to be settled.
    told: u64,
    /// Up to where it has made all changes.
    made: u64,
    was_heard: bool,
    /// Everything from before the course is there too.
    is_filled: bool,
    /// Nothing is settled without it.
    pub is_needed: bool,
}

impl Primary {
    /// Whether nobody waits, and everybody has all changes up to the `end` and has been told so.
    pub(super) fn rests(&self, end: u64) -> bool {
        let is_calm = self.settled == end && !self.is_frozen && self.waiting.is_empty();
        is_calm && self.peers.iter().all(|peer| peer.rests(end))
    }
}

impl Peer {
    /// Whether it has everything, has made it, and has been told that all have it.
    fn rests(&self, end: u64) -> bool {
        let has_all = self.acked == end && self.sent == end && self.made >= end;
        has_all && self.is_needed && self.was_heard && self.told == end && !self.sent_at.is_zero()
    }

    /// It has not been waited for until now.
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

    fn course(&self, reign: ViewNumber) -> Course {
        Course {
            reign,
            since: self.since,
            attempt: self.attempt,
        }
    }

    /// Filling begins anew, behind that change.
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
    /// This copy is the primary, as it was before or from now on.
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
                Role::Primary(primary) if primary.reign == record.reign => (
                    primary.peers,
                    primary.inherited,
                    primary.settled,
                    primary.waiting,
                ),
                _ => {
                    let inherited = self.log.end();
                    let rule = Rule {
                        losses: record.losses,
                        reign: record.reign,
                        inherited,
                    };
                    self.diary.begin(rule, &self.shelf);
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
                    // Without synchronous backups others may lack some of what was made here: a new copy is not to be ahead of them.
                    None => Peer::new(*holder, settled, is_needed),
                }
            })
            .collect();
        self.role = Role::Primary(Primary {
            reign: record.reign,
            inherited,
            settled,
            peers,
            is_frozen: record.heir.is_some(),
            waiting,
            swept: Cursor::default(),
        });
    }

    /// It is primary no more: nobody knows what becomes of the changes that are not settled.
    pub(super) fn abdicate(&mut self, out: &mut Vec<ReplicaAction>) {
        if let Role::Primary(primary) = &mut self.role {
            for (_, ticket, _) in primary.waiting.drain(..) {
                out.push(ReplicaAction::Answer(ticket, Outcome::Unknown));
            }
        }
    }

    /// Answers when all is settled that has been ordered so far: what was found, and not changed, may be of changes that are under way.
    pub(super) fn wait(&mut self, ticket: Ticket, answer: Answer) {
        let end = self.log.end();
        if let Role::Primary(primary) = &mut self.role {
            primary.waiting.push_back((end, ticket, answer));
        }
    }

    /// Makes all changes that can be made, and answers who waits for them.
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
        // Whoever writes quicker than backups take it waits for them, so that what is kept for them stays bounded.
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
                // As the log: the next ones come where the last ones were.
                primary.waiting.clear();
            }
        }
    }

    /// Sends what other copies have not been sent yet.
    pub fn flush(&mut self, now: Duration, out: &mut Vec<ReplicaAction>) {
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        let (end, settled, reign) = (self.log.end(), primary.settled, primary.reign);
        let inherited = primary.inherited;
        for peer in &mut primary.peers {
            let mut is_due = !peer.was_heard && now >= peer.sent_at + self.config.resend;
            is_due |= peer.sent_at.is_zero();
            while is_due || (peer.sent < end && peer.sent - peer.acked < self.config.window) {
                let Some(changes) = self.log.behind_number(peer.sent, self.config.batch_bytes)
                else {
                    // It is filled so slowly that changes are forgotten which it needs.
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
                let say = Say::Append {
                    start: peer.start,
                    inherited,
                    before,
                    settled,
                    changes,
                };
                let course = peer.course(reign);
                out.push(ReplicaAction::Tell(
                    peer.member,
                    ReplicaWord { course, say },
                ));
            }
        }
    }

    /// What has to be said again is said with the next flush.
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
            // Nothing more to send, but something to tell, or to hear again.
            let is_behind = peer.made < primary.settled || !peer.is_needed;
            let is_idle = peer.sent == self.log.end();
            if is_idle && (peer.told < primary.settled || (is_behind && is_late)) {
                peer.sent_at = Duration::ZERO;
            }
        }
    }

    /// Another copy says what it has.
    pub(super) fn has(
        &mut self,
        from: MemberId,
        course: Course,
        have: Have,
        out: &mut Vec<ReplicaAction>,
    ) {
        let end = self.log.end();
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        let (reign, settled) = (primary.reign, primary.settled);
        let is_it = |peer: &&mut Peer| peer.member == from && peer.course(reign) == course;
        let Some(peer) = primary.peers.iter_mut().find(is_it) else {
            return;
        };
        peer.was_heard = true;
        peer.made = peer.made.max(have.made);
        peer.acked = peer.acked.max(have.upto.min(end));
        // Everything that is under way behind what is missing says so: once is enough, and not at all when it has come after all.
        let is_missing = have.gap && peer.sent > peer.acked;
        let is_news = is_missing && peer.went_back != Some(peer.acked);
        if is_news {
            peer.went_back = Some(peer.acked);
            peer.sent = peer.acked;
        }
        peer.sent = peer.sent.max(peer.acked);
        peer.is_filled |= have.filled;
        // From now on nothing is settled without it, and it has all that is.
        peer.is_needed |= peer.is_filled && peer.acked >= settled;
        self.settle(out);
    }

    /// Another copy asks for what was there before it was begun.
    pub(super) fn send_chunk(
        &mut self,
        from: MemberId,
        course: Course,
        cursor: Cursor,
        out: &mut Vec<ReplicaAction>,
    ) {
        let Role::Primary(primary) = &self.role else {
            return;
        };
        let is_it = |peer: &&Peer| peer.member == from && peer.course(primary.reign) == course;
        if primary.peers.iter().any(|peer| is_it(&peer)) {
            let (parcels, next) = self.shelf.parcels(cursor, self.config.batch_bytes);
            let say = Say::Chunk {
                from: cursor,
                next,
                at: self.applied,
                parcels,
            };
            out.push(ReplicaAction::Tell(from, ReplicaWord { course, say }));
        }
    }

    /// Removes some of what has expired.
    pub(super) fn sweep(&mut self, now: Duration) {
        // Copies that take changes slowly are not given more of them than somebody waits for.
        if self.may_serve(true).is_err() || self.log.bytes() > self.config.log_bytes {
            return;
        }
        let wall = self.wall(now);
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        let (mut expired, next) = self.shelf.expired(primary.swept, wall, SWEPT);
        primary.swept = next;
        if !expired.is_empty() && self.applied < self.log.end() {
            // Only what is settled was looked at: a change that is under way may have given the key another value, or removed it.
            let (keys, maps) = self.log.touched_behind(self.applied);
            expired.retain(|(map, key)| !maps.contains(map) && !keys.contains(&(*map, &key[..])));
        }
        for (map, key) in expired {
            self.log.push(Change::Remove { map, key });
        }
    }
}
