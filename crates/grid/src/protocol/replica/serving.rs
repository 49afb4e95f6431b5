//! Operations served by a primary.

use std::time::Duration;

use bytes::Bytes;

use super::{Replica, ReplicaAction, Role};
use crate::protocol::operation::{
    Answer, Change, MapId, Operation, Outcome, Refusal, Ticket, When, expiry, own,
};
use crate::protocol::store::{Entry, NEVER, Store};

/// Bits of a scan position that hold the slot; the others hold the primary's term.
const SLOT: u64 = u32::MAX as u64;

impl Replica {
    /// Checks whether this replica may serve reads and writes.
    pub(super) fn may_serve(&self, may_act: bool) -> Result<(), Refusal> {
        match &self.role {
            Role::Primary(_) if !may_act => Err(Refusal::CutOff),
            Role::Primary(primary) if primary.is_frozen => Err(Refusal::Moving),
            Role::Primary(primary) if primary.settled >= primary.inherited => Ok(()),
            _ => Err(Refusal::NotPrimary),
        }
    }

    /// Applies `look` to the settled value of a key; `may_act` as for a
    /// [request](Replica::request). Allocates nothing, and calls `now` only if the entry has an
    /// expiry time.
    ///
    /// # Errors
    /// The refusal, if this replica may not serve reads now.
    pub fn read<R>(
        &self,
        now: impl FnOnce() -> Duration,
        may_act: bool,
        map: MapId,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Refusal> {
        self.may_serve(may_act)?;
        let entry = self.present(now, map, key);
        Ok(look(entry.map(|entry| entry.value)))
    }

    /// Returns the settled entry of a key, unless it has expired.
    fn present(&self, now: impl FnOnce() -> Duration, map: MapId, key: &[u8]) -> Option<Entry<'_>> {
        let entry = self.store.get(map, key)?;
        // Most entries never expire, so the time is rarely needed.
        (entry.expires == NEVER || entry.expires > self.wall(now())).then_some(entry)
    }

    /// Returns the wall-clock time in microseconds since the Unix epoch.
    pub(super) fn wall(&self, now: Duration) -> i64 {
        let since = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        self.config.began.saturating_add(since)
    }

    /// Carries out an operation. Returns the outcome if it is available immediately.
    pub(super) fn carry_out(
        &mut self,
        now: Duration,
        ticket: Ticket,
        operation: Operation,
        out: &mut Vec<ReplicaAction>,
    ) -> Option<Outcome> {
        let answer = match operation {
            Operation::Get { map, key } => {
                let entry = self.present(|| now, map, &key);
                Answer::Value(entry.map(|entry| entry.to_bytes()))
            }
            Operation::Count(map) => {
                Answer::Count(self.store.map(map).map_or(0, Store::len) as u64)
            }
            Operation::Measure(map) => {
                Answer::Count(self.store.map(map).map_or(0, Store::cost) as u64)
            }
            Operation::Scan { map, from, bytes } => self.page(now, map, from, bytes),
            Operation::Read { ring, from, bytes } => self.run(ring, from, bytes),
            writes => match self.write(now, writes) {
                Err(refusal) => return Some(Outcome::Refused(refusal)),
                Ok(answer) => {
                    self.wait(ticket, answer);
                    self.settle(out);
                    return None;
                }
            },
        };
        Some(Outcome::Answered(answer))
    }

    /// Orders a write after all others. Returns the answer, to be sent once it is settled.
    fn write(&mut self, now: Duration, operation: Operation) -> Result<Answer, Refusal> {
        let (change, answer) = match operation {
            Operation::Put {
                map,
                key,
                value,
                expires,
                when,
            } => {
                let (is_on, answer) = self.is_on(now, map, &key, when);
                let set = || Change::Set {
                    map,
                    key,
                    value,
                    expires: expiry(expires),
                };
                (is_on.then(set), answer)
            }
            Operation::Remove { map, key } => {
                let had = self.latest(now, map, &key);
                let change = had.is_some().then_some(Change::Remove { map, key });
                (change, Answer::Value(had))
            }
            Operation::Forget { map, key } => {
                let is_there = self.has_something(map, &key);
                (
                    is_there.then_some(Change::Remove { map, key }),
                    Answer::Done,
                )
            }
            Operation::Compute {
                map,
                key,
                function,
                argument,
                expires,
            } => self.computed(now, (map, key), (&function, &argument), expires)?,
            Operation::PutAll {
                map,
                pairs,
                expires,
            } => {
                let set = Change::SetAll {
                    map,
                    pairs,
                    expires: expiry(expires),
                };
                (Some(set), Answer::Done)
            }
            Operation::Clear(map) => (Some(Change::Clear(map)), Answer::Done),
            Operation::Append {
                ring,
                value,
                capacity,
                full,
            } => self.appending(ring, value, (capacity, full)),
            Operation::Take(ring) => self.taking(ring),
            Operation::Get { .. }
            | Operation::Count(_)
            | Operation::Measure(_)
            | Operation::Scan { .. }
            | Operation::Read { .. } => (None, Answer::Done),
        };
        if let Some(change) = change {
            self.check_room(&change)?;
            self.log.push(change);
        }
        Ok(answer)
    }

    /// Calls a function, and returns its change and the answer.
    fn computed(
        &self,
        now: Duration,
        (map, key): (MapId, Bytes),
        (function, argument): (&str, &[u8]),
        expires: Option<i64>,
    ) -> Result<(Option<Change>, Answer), Refusal> {
        let had = self.latest(now, map, &key);
        let new = self
            .functions
            .call(function, &key, had.as_deref(), argument);
        let new = new.map_err(Refusal::Function)?.map(Bytes::from);
        let change = match new.clone() {
            Some(value) => Some(Change::Set {
                map,
                key,
                value,
                expires: expiry(expires),
            }),
            None => had.is_some().then_some(Change::Remove { map, key }),
        };
        Ok((change, Answer::Value(new)))
    }

    /// Evaluates a condition, and returns the result and the answer.
    fn is_on(&self, now: Duration, map: MapId, key: &[u8], when: When) -> (bool, Answer) {
        match when {
            When::Always => (true, Answer::Done),
            When::Absent => {
                let had = self.latest(now, map, key);
                (had.is_none(), Answer::Value(had))
            }
            When::Is(wanted) => {
                let had = self.latest(now, map, key);
                (had.as_ref() == Some(&wanted), Answer::Value(had))
            }
        }
    }

    /// Returns true if a key has an entry after all changes in the log, expired or not.
    fn has_something(&self, map: MapId, key: &[u8]) -> bool {
        match self.log.latest(self.applied, map, key) {
            Some(effect) => effect.is_some(),
            None => self.store.get(map, key).is_some(),
        }
    }

    /// Returns the value of a key after all changes in the log.
    fn latest(&self, now: Duration, map: MapId, key: &[u8]) -> Option<Bytes> {
        let wall = self.wall(now);
        match self.log.latest(self.applied, map, key) {
            Some(effect) => {
                let value = effect.filter(|(_, expires)| *expires > wall);
                value.map(|(value, _)| own(&value))
            }
            None => {
                let entry = self
                    .store
                    .get(map, key)
                    .filter(|entry| entry.expires > wall);
                entry.map(|entry| entry.to_bytes())
            }
        }
    }

    fn page(&self, now: Duration, map: MapId, from: u64, bytes: u32) -> Answer {
        let (wall, mut sum, mut page, mut behind) = (self.wall(now), 0, Vec::new(), None);
        // Slots differ between replicas: a position of another primary restarts the scan.
        let reign = match &self.role {
            Role::Primary(primary) => primary.term.0 << 32,
            _ => 0,
        };
        let is_mine = from & !SLOT == reign;
        let start = if is_mine { (from & SLOT) as usize } else { 0 };
        let entries = self
            .store
            .map(map)
            .into_iter()
            .flat_map(|store| store.entries_from(start));
        for (next, entry) in entries {
            if sum >= bytes as usize {
                // The slot after the last entry taken.
                return Answer::Page(page, behind);
            }
            behind = Some(reign | next as u64);
            if entry.expires > wall {
                sum += Store::cost_of(entry.key.len(), entry.value.len());
                page.push((Bytes::copy_from_slice(entry.key), entry.to_bytes()));
            }
        }
        Answer::Page(page, None)
    }
}
