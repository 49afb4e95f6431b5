//! Whether there is room for a change.

use std::collections::BTreeMap;

use super::Replica;
use crate::protocol::operation::{Change, Refusal};
use crate::protocol::store::Store;

impl Replica {
    /// Whether there is room for what it sets, all of it.
    pub(super) fn check_room(&self, change: &Change) -> Result<(), Refusal> {
        let map = change.map();
        let most = change
            .sets()
            .map(|(key, value)| Store::cost_of(key.len(), value));
        // What the keys have already is looked for where it matters: it lies anywhere in memory.
        if self.quota.check(map, most.sum()).is_err() {
            self.quota.check(map, self.excess(change))?;
        }
        let store = self.shelf.map(map);
        let beside = |(key, value): (&[u8], usize)| Store::beside(key.len(), value);
        let all: usize = change.sets().map(beside).sum();
        // Changes that are under way take their places later: there is twice as much as they can need.
        let coming = 2 * self.log.bytes() + all;
        let fits = |(key, value): (&[u8], usize)| {
            let others = coming - Store::beside(key.len(), value);
            store.is_none_or(|store| store.has_place(key.len(), value, others))
        };
        match change.sets().all(fits) {
            true => Ok(()),
            false => Err(Refusal::Full {
                used: u64::from(u32::MAX),
                limit: u64::from(u32::MAX),
            }),
        }
    }

    /// How much more the keys have that it sets than before, in bytes: a key that comes twice has what comes last.
    fn excess(&self, change: &Change) -> usize {
        let last: BTreeMap<&[u8], usize> = change.sets().collect();
        let (mut then, mut now) = (0, 0);
        for (key, value) in last {
            then += Store::cost_of(key.len(), value);
            let known = self.shelf.get(change.map(), key);
            now += known.map_or(0, |entry| Store::cost_of(key.len(), entry.value.len()));
        }
        then.saturating_sub(now)
    }
}
