//! One member's copy of a partition.
//!
//! **The primary orders.** It gives each change a number, sends it to the other copies, and makes it when all whole copies have it: then it is
//! *settled*, whoever asked is answered, and reads see it. Other copies make a change when they are told that it is settled. So what is acknowledged is
//! on all whole copies, and what was read is never taken back.
//!
//! **A new primary** goes on with the changes that it has, settles them anew with the other copies, and only then reads and writes. All that was settled
//! before it has: a view makes only whole copies primary. The others drop what it hasn't, and keep the rest until it sends that again: should it be gone
//! before, they still have all that was settled.
//!
//! **A copy is filled** beside the writes. It takes all changes from when filling begins, and asks for what was there before, in chunks. Each entry
//! says which change made it, so that neither order nor repetition matters. When all is there the primary counts it among the whole ones, then claims so,
//! and the next view says it.
//!
//! **A promise holds until the record changes.** A primary that has claimed something (see [`Claim`]) keeps to it until a view says something else of the
//! partition: so it doesn't matter when, or whether, the claim is heard.
//!
//! * `log`: changes that may still be needed; `primary`, `serving`, `backup`: the roles; `room`: whether there is room; `filling`: what a copy remembers that isn't whole; `diary`: what is noted for
//!   those who watch; `word`: what is said.

mod backup;
mod diary;
mod filling;
mod log;
mod primary;
mod rings;
mod room;
mod serving;
mod word;

use std::cmp::Ordering::{Equal, Greater, Less};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backup::{Backup, Bounds};
use diary::Diary;
use log::Log;
use primary::{Peer, Primary};
pub use word::{Course, Have, ReplicaWord, Say};

use crate::protocol::MemberId;
use crate::protocol::operation::{MapId, Operation, Outcome, Refusal, Ticket};
use crate::protocol::shelf::{Parcel, Shelf};
use crate::protocol::succession::{Claim, Promise};
use crate::protocol::tidings::{Chapter, Rule};
use crate::protocol::view::{Holder, Record};

/// How copies are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaConfig {
    /// Whether a write is acknowledged only when all whole copies have it. Otherwise at once: then the last writes are lost with their primary.
    pub is_synchronous: bool,
    /// About how many bytes are sent at a time.
    pub batch_bytes: usize,
    /// How many changes may be under way to a copy.
    pub window: u64,
    /// How many bytes of changes are kept for a copy that is filled too slowly, until its filling begins anew. When more is kept, writes wait for their
    /// backups without synchronous ones too.
    pub log_bytes: usize,
    /// After how long what was not answered is sent again.
    pub resend: Duration,
    /// What the time is when the machine's is zero, in microseconds since the Unix epoch.
    pub began: i64,
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        ReplicaConfig {
            is_synchronous: true,
            batch_bytes: 256 << 10,
            window: 10_000,
            log_bytes: 16 << 20,
            resend: Duration::from_millis(200),
            began: 0,
        }
    }
}

/// How much the copies of a member may take together, and do: the maps of guests, and all others. Neither takes the other's room.
#[derive(Debug)]
pub struct Quota {
    own: Budget,
    guests: Budget,
}

#[derive(Debug)]
struct Budget {
    used: AtomicU64,
    limit: u64,
}

/// What a copy takes, in bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Taken {
    own: usize,
    guests: usize,
}

impl Quota {
    /// So many bytes may be used, and so many more by guests.
    pub fn new(limit: u64, guest_limit: u64) -> Self {
        let budget = |limit| Budget {
            used: AtomicU64::new(0),
            limit,
        };
        Quota {
            own: budget(limit),
            guests: budget(guest_limit),
        }
    }

    /// What is used, in bytes.
    pub fn used(&self) -> u64 {
        self.own.used().saturating_add(self.guests.used())
    }

    /// Whether so many more of a map fit; if not, why. Who takes no more than he has always may.
    fn check(&self, map: MapId, more: usize) -> Result<(), Refusal> {
        let budget = match map.is_of_guest() {
            true => &self.guests,
            false => &self.own,
        };
        let (used, limit) = (budget.used(), budget.limit);
        match more > 0 && used.saturating_add(more as u64) > limit {
            true => Err(Refusal::Full { used, limit }),
            false => Ok(()),
        }
    }

    fn changed(&self, before: Taken, after: Taken) {
        self.own.changed(before.own, after.own);
        self.guests.changed(before.guests, after.guests);
    }
}

impl Budget {
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn changed(&self, before: usize, after: usize) {
        match after.cmp(&before) {
            // It is everybody's: who changes nothing of it doesn't touch it.
            Equal => 0,
            Greater => self
                .used
                .fetch_add((after - before) as u64, Ordering::Relaxed),
            Less => self
                .used
                .fetch_sub((before - after) as u64, Ordering::Relaxed),
        };
    }
}

/// The functions that [`Operation::Compute`] knows. All members have to have the same ones.
pub trait Functions: Send + Sync {
    /// What a key should have, given what it has; none for nothing. Called with the partition at a halt: it must be quick.
    ///
    /// # Errors
    /// What is told to who asked; nothing is changed then.
    fn call(
        &self,
        name: &str,
        key: &[u8],
        value: Option<&[u8]>,
        argument: &[u8],
    ) -> Result<Option<Vec<u8>>, String>;
}

/// No functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFunctions;

impl Functions for NoFunctions {
    fn call(
        &self,
        name: &str,
        _: &[u8],
        _: Option<&[u8]>,
        _: &[u8],
    ) -> Result<Option<Vec<u8>>, String> {
        Err(format!("no function {name:?} is known"))
    }
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaAction {
    /// Tell it to that member.
    Tell(MemberId, ReplicaWord),
    /// That is how the operation has ended.
    Answer(Ticket, Outcome),
}

/// One member's copy of a partition.
pub struct Replica {
    me: MemberId,
    config: Arc<ReplicaConfig>,
    quota: Arc<Quota>,
    functions: Arc<dyn Functions>,
    record: Option<Arc<Record>>,
    shelf: Shelf,
    /// What the quota knows of.
    accounted: Taken,
    /// Changes that not all copies are known to have, and those that can't be made yet.
    log: Log,
    /// The last change that was made.
    applied: u64,
    diary: Diary,
    role: Role,
}

enum Role {
    Nothing,
    Primary(Primary),
    Backup(Backup),
}

impl Replica {
    /// No copy yet.
    pub fn new(
        me: MemberId,
        config: Arc<ReplicaConfig>,
        quota: Arc<Quota>,
        functions: Arc<dyn Functions>,
    ) -> Self {
        Replica {
            me,
            config,
            quota,
            functions,
            record: None,
            shelf: Shelf::default(),
            accounted: Taken::default(),
            log: Log::default(),
            applied: 0,
            diary: Diary::default(),
            role: Role::Nothing,
        }
    }

    /// Who keeps the partition, if that is known.
    pub fn record(&self) -> Option<&Arc<Record>> {
        self.record.as_ref()
    }

    /// What it holds.
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// All that it holds, in order: for comparing copies.
    pub fn content(&self) -> Vec<Parcel> {
        self.shelf.sorted()
    }

    /// How many changes have been made to it, by number.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// These maps are watched by somebody: what happens to them here is noted while this copy is the primary.
    pub fn watch(&mut self, maps: Arc<[MapId]>) {
        self.diary.watch(maps);
    }

    /// What was noted since the last time.
    pub fn take_noted(&mut self) -> Vec<Chapter> {
        self.diary.take()
    }

    /// Where a map stands here, if this copy is the primary.
    pub fn place_of(&self, map: MapId) -> Option<Chapter> {
        let rule = self.rule()?;
        Some(Diary::place(rule, map, &self.shelf))
    }

    /// As what it rules, if it is the primary.
    fn rule(&self) -> Option<Rule> {
        match (&self.role, &self.record) {
            (Role::Primary(primary), Some(record)) => Some(Rule {
                losses: record.losses,
                reign: primary.reign,
                inherited: primary.inherited,
            }),
            _ => None,
        }
    }

    /// A view says who keeps the partition now.
    pub fn install(&mut self, now: Duration, record: &Arc<Record>, out: &mut Vec<ReplicaAction>) {
        let before = self.record.clone();
        if before
            .as_ref()
            .is_some_and(|before| before.version >= record.version)
        {
            return;
        }
        self.record = Some(Arc::clone(record));
        let held = before.as_ref().and_then(|before| before.holder(self.me));
        let Some(holder) = record.holder(self.me) else {
            self.give_up(out);
            return;
        };
        if held != Some(holder) {
            self.give_up(out);
        }
        if record.primary() == Some(self.me) {
            self.reign(record);
        } else {
            self.serve(holder, record, out);
        }
        self.tick(now, out);
    }

    /// Forgets everything. Whoever waits for a write here is told that nobody knows.
    pub fn give_up(&mut self, out: &mut Vec<ReplicaAction>) {
        self.abdicate(out);
        self.role = Role::Nothing;
        self.wipe(0);
    }

    fn wipe(&mut self, behind: u64) {
        self.shelf.clear();
        self.log = Log::behind(behind);
        self.applied = behind;
        self.account();
    }

    fn account(&mut self) {
        let (all, guests) = (self.shelf.cost(), self.shelf.guest_cost());
        let taken = Taken {
            own: all - guests,
            guests,
        };
        self.quota.changed(self.accounted, taken);
        self.accounted = taken;
    }

    /// Another copy's primary says something, or a copy of this primary does.
    pub fn hear(&mut self, from: MemberId, word: ReplicaWord, out: &mut Vec<ReplicaAction>) {
        match word.say {
            Say::Append {
                start,
                inherited,
                before,
                settled,
                changes,
            } => {
                let bounds = Bounds {
                    start,
                    inherited,
                    before,
                    settled,
                };
                self.append(from, word.course, bounds, changes, out);
            }
            Say::Chunk {
                from: cursor,
                next,
                at,
                parcels,
            } => self.unpack(from, word.course, cursor, next, at, parcels, out),
            Say::Have(have) => self.has(from, word.course, have, out),
            Say::Pull(cursor) => self.send_chunk(from, word.course, cursor, out),
        }
    }

    /// Somebody asks for something. `may_act` says whether this member has a lease. Changes leave with the next [`flush`](Self::flush).
    pub fn request(
        &mut self,
        now: Duration,
        may_act: bool,
        ticket: Ticket,
        operation: Operation,
        out: &mut Vec<ReplicaAction>,
    ) {
        let outcome = match self.may_serve(may_act) {
            Err(refusal) => Some(Outcome::Refused(refusal)),
            Ok(()) => self.carry_out(now, ticket, operation, out),
        };
        if let Some(outcome) = outcome {
            out.push(ReplicaAction::Answer(ticket, outcome));
        }
    }

    /// Whether nothing comes of it that time passes, until something else happens to it: all that there is is everywhere, all know
    /// that, and nothing expires; or it is no primary.
    pub fn rests(&self) -> bool {
        let end = self.log.end();
        match &self.role {
            Role::Primary(it) => it.rests(end) && self.applied == end && !self.shelf.expires(),
            _ => true,
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<ReplicaAction>) {
        if let Role::Primary(_) = self.role {
            self.repeat(now);
            self.sweep(now);
            self.settle(out);
            self.flush(now, out);
        }
    }

    /// Whether it would read and write, if its member may act.
    pub fn is_ready(&self) -> bool {
        self.may_serve(true).is_ok()
    }

    /// What it promises, as a primary.
    pub fn claims(&self, partition: u32) -> Vec<Claim> {
        let (Role::Primary(primary), Some(record)) = (&self.role, &self.record) else {
            return Vec::new();
        };
        let claim = |promise| Claim {
            partition,
            version: record.version,
            promise,
        };
        self.promises(primary, record).map(claim).collect()
    }

    fn promises<'a>(
        &self,
        primary: &'a Primary,
        record: &'a Record,
    ) -> impl Iterator<Item = Promise> + use<'a> {
        let is_admitted = |peer: &&Peer| peer.is_needed && !record.is_whole(peer.member);
        let filled = primary
            .peers
            .iter()
            .filter(is_admitted)
            .map(|peer| Promise::Filled(peer.member));
        let is_quiet = primary.is_frozen && primary.settled == self.log.end();
        let yielded = record.heir.filter(|_| is_quiet).map(Promise::Yielded);
        filled.chain(yielded)
    }

    /// The copy that this one is, if it isn't the primary's own.
    fn holder(&self) -> Option<Holder> {
        self.record.as_ref()?.holder(self.me)
    }

    /// Makes all changes up to that one.
    fn apply_up_to(&mut self, upto: u64) {
        if self.applied >= upto {
            return;
        }
        let rule = self.rule();
        if upto - self.applied > 1 {
            self.shelf.look_ahead(self.log.between(self.applied, upto));
        }
        while self.applied < upto {
            let number = self.applied + 1;
            let Some(change) = self.log.get(number) else {
                break;
            };
            match &mut self.role {
                Role::Backup(Backup {
                    filling: Some(filling),
                    ..
                }) => filling.apply(&mut self.shelf, change, number),
                _ => match rule.filter(|_| self.diary.watches(change.map())) {
                    Some(rule) => self.diary.apply(rule, &mut self.shelf, change, number),
                    None => self.shelf.apply(change, number),
                },
            }
            self.applied = number;
        }
        self.account();
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match &self.role {
            Role::Nothing => "none",
            Role::Primary(_) => "primary",
            Role::Backup(backup) if backup.filling.is_some() => "filling",
            Role::Backup(_) => "backup",
        };
        let (applied, end) = (self.applied, self.log.end());
        write!(f, "Replica({role}, {applied} of {end} changes made)")
    }
}
