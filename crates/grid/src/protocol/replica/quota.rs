//! Memory limit checks for changes.

use std::collections::BTreeMap;

use super::Replica;
use crate::protocol::operation::{Change, Refusal};
use crate::protocol::store::Store;

impl Replica {
    /// Checks whether the memory limit and the address space allow all entries that a change sets.
    pub(super) fn check_room(&self, change: &Change) -> Result<(), Refusal> {
        let map = change.map();
        let most = change
            .sets()
            .map(|(key, value)| Store::cost_of(key.len(), value));
        // The current sizes of the entries are looked up only if needed, since that is slow.
        if self.quota.check(map, most.sum()).is_err() {
            self.quota.check(map, self.excess(change))?;
        }
        let store = self.store.map(map);
        let beside = |(key, value): (&[u8], usize)| Store::beside(key.len(), value);
        let all: usize = change.sets().map(beside).sum();
        // Changes in the log are applied later; twice their size is an upper bound of their need.
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

    /// Returns the number of bytes by which the entries that a change sets grow. If a key occurs
    /// twice, the last value counts.
    fn excess(&self, change: &Change) -> usize {
        let last: BTreeMap<&[u8], usize> = change.sets().collect();
        let (mut then, mut now) = (0, 0);
        for (key, value) in last {
            then += Store::cost_of(key.len(), value);
            let known = self.store.get(change.map(), key);
            now += known.map_or(0, |entry| Store::cost_of(key.len(), entry.value.len()));
        }
        then.saturating_sub(now)
    }
}
