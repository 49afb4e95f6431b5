//! Changes that may still be needed, in order.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use crate::protocol::operation::{Change, MapId};

/// Where more is kept than this, in bytes, a copy is slow, and changes stay for long.
const SHARING_BYTES: usize = 256 << 10;

/// Changes, each with its number.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// The change before the first.
    base: u64,
    changes: VecDeque<Change>,
    bytes: usize,
}

impl Log {
    /// Without changes, behind that one.
    pub fn behind(base: u64) -> Self {
        Log {
            base,
            ..Log::default()
        }
    }

    pub fn end(&self) -> u64 {
        self.base + self.changes.len() as u64
    }

    /// What is kept, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, change: Change) -> u64 {
        // What waits for long is not to keep the memory of others that came with it.
        let change = match self.bytes < SHARING_BYTES {
            true => change,
            false => change.apart(),
        };
        self.bytes += change.cost();
        self.changes.push_back(change);
        self.end()
    }

    /// The change of that number is this one. What was here from there on stays if it begins with this one, and never will be otherwise. Nothing before it
    /// may be missing.
    pub fn set(&mut self, number: u64, change: Change) {
        if self.get(number) != Some(&change) {
            self.cut(number - 1);
            self.push(change);
        }
    }

    /// Forgets all behind that one.
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

    /// The changes behind one, up to another.
    pub fn between(&self, behind: u64, upto: u64) -> impl Iterator<Item = &Change> {
        let at = |number: u64| {
            let at = usize::try_from(number.saturating_sub(self.base));
            at.unwrap_or(usize::MAX).min(self.changes.len())
        };
        self.changes.range(at(behind)..at(upto.max(behind)))
    }

    /// Forgets all up to that one.
    pub fn forget(&mut self, upto: u64) {
        while self.base < upto {
            let Some(change) = self.changes.pop_front() else {
                break;
            };
            self.bytes -= change.cost();
            self.base += 1;
        }
        if self.changes.is_empty() {
            // The next ones come where the last ones were, and not all around the memory that it ever needed.
            self.changes.clear();
        }
    }

    /// The changes behind that one, about so many bytes of them, at least one if there is one; none if some of them are forgotten.
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

    /// What the changes behind that one say of a key, and which says it.
    pub fn latest(&self, behind: u64, map: MapId, key: &[u8]) -> Option<Option<(Bytes, i64)>> {
        let count = usize::try_from(self.end().saturating_sub(behind)).unwrap_or(usize::MAX);
        let newest = self.changes.iter().rev().take(count);
        newest.flat_map(|change| change.effect_on(map, key)).next()
    }

    /// Which keys the changes behind that one are about, and which maps they clear or change in several places.
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
                // Nothing of a ring expires.
                Change::Clear(map) | Change::Together(map, _) => {
                    maps.insert(*map);
                }
            }
        }
        (keys, maps)
    }
}
