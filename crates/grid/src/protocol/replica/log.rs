//! Ordered log of the changes that may still be needed.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use crate::protocol::operation::{Change, MapId};

/// Size above which, in bytes, a replica is slow and changes stay in the log for long.
const SHARING_BYTES: usize = 256 << 10;

/// Changes with consecutive numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// Number of the change before the first one in the log.
    base: u64,
    changes: VecDeque<Change>,
    bytes: usize,
}

impl Log {
    /// Creates an empty log whose first change will have the number after `base`.
    pub fn behind(base: u64) -> Self {
        Log {
            base,
            ..Log::default()
        }
    }

    pub fn end(&self) -> u64 {
        self.base + self.changes.len() as u64
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, change: Change) -> u64 {
        // A change that stays for long is copied, so that it does not retain the memory of its
        // message.
        let change = match self.bytes < SHARING_BYTES {
            true => change,
            false => change.apart(),
        };
        self.bytes += change.cost();
        self.changes.push_back(change);
        self.end()
    }

    /// Sets the change with this number. If it differs from the existing change, the existing and
    /// all later changes are dropped, since they will never be settled. There must be no gap before
    /// `number`.
    pub fn set(&mut self, number: u64, change: Change) {
        if self.get(number) != Some(&change) {
            self.cut(number - 1);
            self.push(change);
        }
    }

    /// Drops all changes after this number.
    pub fn cut(&mut self, number: u64) {
        let kept = usize::try_from(number.saturating_sub(self.base)).unwrap_or(usize::MAX);
        for change in self.changes.drain(kept.min(self.changes.len())..) {
            self.bytes -= change.cost();
        }
    }

    pub fn get(&self, number: u64) -> Option<&Change> {
        let at = number.checked_sub(self.base + 1)?;
        self.changes.get(usize::try_from(at).ok()?)
    }

    /// Returns the changes after one number, up to another.
    pub fn between(&self, behind: u64, upto: u64) -> impl Iterator<Item = &Change> {
        let at = |number: u64| {
            let at = usize::try_from(number.saturating_sub(self.base));
            at.unwrap_or(usize::MAX).min(self.changes.len())
        };
        self.changes.range(at(behind)..at(upto.max(behind)))
    }

    /// Drops all changes up to this number.
    pub fn forget(&mut self, upto: u64) {
        while self.base < upto {
            let Some(change) = self.changes.pop_front() else {
                break;
            };
            self.bytes -= change.cost();
            self.base += 1;
        }
        if self.changes.is_empty() {
            // The next changes reuse the front of the buffer, instead of cycling through all of its
            // memory.
            self.changes.clear();
        }
    }

    /// Returns about `bytes` bytes of changes after a number, at least one if there is one; `None`
    /// if some of these changes have been dropped.
    pub fn behind_number(&self, number: u64, bytes: usize) -> Option<Vec<Change>> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let mut sum = 0;
        let fits = |change: &&Change| {
            let fits = sum < bytes;
            sum += change.cost();
            fits
        };
        Some(
            self.changes
                .iter()
                .skip(at)
                .take_while(fits)
                .cloned()
                .collect(),
        )
    }

    /// Returns the latest effect on a key of the changes after a number.
    pub fn latest(&self, behind: u64, map: MapId, key: &[u8]) -> Option<Option<(Bytes, i64)>> {
        let count = usize::try_from(self.end().saturating_sub(behind)).unwrap_or(usize::MAX);
        let newest = self.changes.iter().rev().take(count);
        newest.flat_map(|change| change.effect_on(map, key)).next()
    }

    /// Returns the keys affected by the changes after a number, and the maps that they clear or
    /// change atomically in several places.
    pub fn touched_behind(&self, number: u64) -> (BTreeSet<(MapId, &[u8])>, BTreeSet<MapId>) {
        let (mut keys, mut maps) = (BTreeSet::new(), BTreeSet::new());
        for change in self.between(number, self.end()) {
            match change {
                Change::Set { map, key, .. } | Change::Remove { map, key } => {
                    keys.insert((*map, &key[..]));
                }
                Change::SetAll { map, pairs, .. } => {
                    keys.extend(pairs.iter().map(|(key, _)| (*map, key)));
                }
                // The latter are changes of rings, whose entries do not expire.
                Change::Clear(map) | Change::Together(map, _) => {
                    maps.insert(*map);
                }
            }
        }
        (keys, maps)
    }
}
