//! One member's replica of a partition.
//!
//! **The primary orders changes.** It numbers each change, sends it to the other replicas, and
//! applies it when all complete replicas have it: then it is *settled*, its requester is answered,
//! and reads see it. Other replicas apply a change once the primary reports it as settled. An
//! acknowledged change is therefore on all complete replicas, and a value that was read is never
//! rolled back.
//!
//! **A new primary** continues with the changes that it has, settles them again with the other
//! replicas, and only then serves reads and writes. It has all changes settled earlier, since only
//! complete replicas become primary. The other replicas drop changes that the new primary does not
//! have. They retain the rest until it sends them again, so settled changes survive if it fails
//! earlier.
//!
//! **Resync** runs concurrently with writes. The replica receives all changes from the start of the
//! resync on, and requests the earlier entries in chunks. Each entry carries the number of the
//! change that set it, so order and repetition do not matter. When all entries have arrived, the
//! primary treats the replica as complete, then claims so, and the next view records it.
//!
//! **A claim is binding until the record changes.** A primary that has made a [`ReplicaClaim`]
//! complies with it until a view changes the partition's record. It therefore does not matter when,
//! or whether, the claim is received.
//!
//! * `log`: changes that may still be needed; `primary`, `serving`, `backup`: the roles; `quota`:
//!   memory limits; `resync`: state of an incomplete replica; `event_log`: events for watches;
//!   `rings`: queues and ring buffers; `message`: messages.

mod backup;
mod event_log;
mod log;
mod message;
mod primary;
mod quota;
mod resync;
mod rings;
mod serving;

use std::cmp::Ordering::{Equal, Greater, Less};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backup::{Backup, Bounds};
use event_log::EventLog;
use log::Log;
pub use message::{ReplicaBody, ReplicaMessage, ReplicaProgress, ReplicationStreamId};
use primary::{Peer, Primary};

use crate::protocol::MemberId;
use crate::protocol::operation::{MapId, Operation, Outcome, Refusal, Ticket};
use crate::protocol::partition_store::{EntryTransfer, PartitionStore};
use crate::protocol::reconfiguration::{ReplicaClaim, SyncState};
use crate::protocol::view::{Holder, Record};
use crate::protocol::watch_events::{EventBatch, PrimaryTerm};

/// Settings of replication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaConfig {
    /// True if a write is acknowledged only when all complete replicas have it. Otherwise it is
    /// acknowledged immediately, and the last writes are lost with their primary.
    pub is_synchronous: bool,
    /// Approximate size of a message in bytes.
    pub batch_bytes: usize,
    /// Maximum number of changes outstanding to a replica.
    pub window: u64,
    /// Maximum size of the changes retained for a replica in resync, in bytes. Above it, the resync
    /// restarts, and writes wait for backups even if these are asynchronous.
    pub log_bytes: usize,
    /// Time after which an unacknowledged message is sent again.
    pub resend: Duration,
    /// Wall-clock time at zero of the member's clock, in microseconds since the Unix epoch.
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

/// Memory limits and use of a member's replicas, separately for guest maps and all other maps.
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

/// Memory size of a replica, in bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Taken {
    own: usize,
    guests: usize,
}

impl Quota {
    /// Creates a quota with limits for regular maps and for guest maps, in bytes.
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

    /// Returns the memory in use, in bytes.
    pub fn used(&self) -> u64 {
        self.own.used().saturating_add(self.guests.used())
    }

    /// Checks whether `more` bytes fit into the limit of a map. 0 bytes always fit.
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
            // The counter is shared by all threads, so it is not written without a change.
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

/// The functions available to [`Operation::Compute`]. All members must have the same ones.
pub trait Functions: Send + Sync {
    /// Computes the new value of a key from its current one; `None` removes it. Called with the
    /// partition locked, so it must be fast.
    ///
    /// # Errors
    /// The text is returned to the caller, and nothing is changed.
    fn call(
        &self,
        name: &str,
        key: &[u8],
        value: Option<&[u8]>,
        argument: &[u8],
    ) -> Result<Option<Vec<u8>>, String>;
}

/// An empty set of functions.
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
        Err(format!("no function {name:?} is registered"))
    }
}

/// Output of a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaAction {
    /// Send a message to this member.
    SendMessage(MemberId, ReplicaMessage),
    /// Report the outcome of an operation.
    Answer(Ticket, Outcome),
}

/// One member's replica of a partition.
pub struct Replica {
    me: MemberId,
    config: Arc<ReplicaConfig>,
    quota: Arc<Quota>,
    functions: Arc<dyn Functions>,
    record: Option<Arc<Record>>,
    store: PartitionStore,
    /// Memory size reported to the quota.
    accounted: Taken,
    /// Changes that not all replicas are known to have, and those that cannot be applied yet.
    log: Log,
    /// Number of the last applied change.
    applied: u64,
    events: EventLog,
    role: Role,
}

enum Role {
    Nothing,
    Primary(Primary),
    Backup(Backup),
}

impl Replica {
    /// Creates an empty replica without a role.
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
            store: PartitionStore::default(),
            accounted: Taken::default(),
            log: Log::default(),
            applied: 0,
            events: EventLog::default(),
            role: Role::Nothing,
        }
    }

    /// Returns the partition's record, if known.
    pub fn record(&self) -> Option<&Arc<Record>> {
        self.record.as_ref()
    }

    /// Returns the content.
    pub fn shelf(&self) -> &PartitionStore {
        &self.store
    }

    /// Returns all entries in order, for comparing replicas.
    pub fn content(&self) -> Vec<EntryTransfer> {
        self.store.sorted()
    }

    /// Returns the number of the last applied change.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Sets the watched maps, whose events are recorded while this replica is the primary.
    pub fn watch(&mut self, maps: Arc<[MapId]>) {
        self.events.watch(maps);
    }

    /// Takes the events recorded since the last call.
    pub fn take_noted(&mut self) -> Vec<EventBatch> {
        self.events.take()
    }

    /// Returns the position of a map in its event stream, if this replica is the primary.
    pub fn place_of(&self, map: MapId) -> Option<EventBatch> {
        let rule = self.rule()?;
        Some(EventLog::place(rule, map, &self.store))
    }

    /// Returns the term of this replica, if it is the primary.
    fn rule(&self) -> Option<PrimaryTerm> {
        match (&self.role, &self.record) {
            (Role::Primary(primary), Some(record)) => Some(PrimaryTerm {
                losses: record.losses,
                term: primary.term,
                inherited: primary.inherited,
            }),
            _ => None,
        }
    }

    /// Installs the record of a new view.
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

    /// Drops all content. The outcome of pending writes is unknown.
    pub fn give_up(&mut self, out: &mut Vec<ReplicaAction>) {
        self.abdicate(out);
        self.role = Role::Nothing;
        self.wipe(0);
    }

    fn wipe(&mut self, behind: u64) {
        self.store.clear();
        self.log = Log::behind(behind);
        self.applied = behind;
        self.account();
    }

    fn account(&mut self) {
        let (all, guests) = (self.store.cost(), self.store.guest_cost());
        let taken = Taken {
            own: all - guests,
            guests,
        };
        self.quota.changed(self.accounted, taken);
        self.accounted = taken;
    }

    /// Processes a message from the primary, or from another replica to this primary.
    pub fn receive(&mut self, from: MemberId, word: ReplicaMessage, out: &mut Vec<ReplicaAction>) {
        match word.body {
            ReplicaBody::Append {
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
                self.append(from, word.stream, bounds, changes, out);
            }
            ReplicaBody::Chunk {
                from: cursor,
                next,
                at,
                parcels,
            } => self.unpack(from, word.stream, cursor, next, at, parcels, out),
            ReplicaBody::Progress(have) => self.has(from, word.stream, have, out),
            ReplicaBody::Pull(cursor) => self.send_chunk(from, word.stream, cursor, out),
        }
    }

    /// Processes an operation. `may_act` is true if this member holds a lease. Changes are sent by
    /// the next [`flush`](Self::flush).
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

    /// Returns true if ticks have no effect until another event: all replicas have all changes and
    /// know it, and nothing expires; or this is not the primary.
    pub fn rests(&self) -> bool {
        let end = self.log.end();
        match &self.role {
            Role::Primary(it) => it.rests(end) && self.applied == end && !self.store.expires(),
            _ => true,
        }
    }

    /// Processes the passage of time.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<ReplicaAction>) {
        if let Role::Primary(_) = self.role {
            self.repeat(now);
            self.sweep(now);
            self.settle(out);
            self.flush(now, out);
        }
    }

    /// Returns true if this replica serves reads and writes, provided its member holds a lease.
    pub fn is_ready(&self) -> bool {
        self.may_serve(true).is_ok()
    }

    /// Returns the claims of this replica, if it is the primary.
    pub fn claims(&self, partition: u32) -> Vec<ReplicaClaim> {
        let (Role::Primary(primary), Some(record)) = (&self.role, &self.record) else {
            return Vec::new();
        };
        let claim = |promise| ReplicaClaim {
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
    ) -> impl Iterator<Item = SyncState> + use<'a> {
        let is_admitted = |peer: &&Peer| peer.is_needed && !record.is_whole(peer.member);
        let filled = primary
            .peers
            .iter()
            .filter(is_admitted)
            .map(|peer| SyncState::Completed(peer.member));
        let is_quiet = primary.is_frozen && primary.settled == self.log.end();
        let yielded = record
            .next_primary
            .filter(|_| is_quiet)
            .map(SyncState::HandedOver);
        filled.chain(yielded)
    }

    /// Returns this replica's entry in the record.
    fn holder(&self) -> Option<Holder> {
        self.record.as_ref()?.holder(self.me)
    }

    /// Applies all changes up to this number.
    fn apply_up_to(&mut self, upto: u64) {
        if self.applied >= upto {
            return;
        }
        let rule = self.rule();
        if upto - self.applied > 1 {
            self.store.look_ahead(self.log.between(self.applied, upto));
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
                }) => filling.apply(&mut self.store, change, number),
                _ => match rule.filter(|_| self.events.watches(change.map())) {
                    Some(rule) => self.events.apply(rule, &mut self.store, change, number),
                    None => self.store.apply(change, number),
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
