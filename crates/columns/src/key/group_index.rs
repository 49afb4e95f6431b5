//! The groups of records by their keys.

use std::borrow::Cow;
use std::ops::Range;

use ardea_operators::KeyIndex;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::{EncodedKeys, GroupKey};

/// Assigns each key a group, a dense number in the order of arrival.
///
/// Keys of bytes are compared within the batch, so that a key is allocated only once.
#[derive(Debug, Default)]
pub(crate) struct GroupIndex {
    /// The keys of one integer column.
    integers: KeyIndex<GroupKey>,
    /// The keys of bytes, by group.
    bytes: Vec<GroupKey>,
    /// The hashes and groups of the keys of bytes.
    groups: HashTable<(u64, u32)>,
}

impl GroupIndex {
    /// Returns the number of groups.
    pub(crate) fn len(&self) -> usize {
        self.keys().len()
    }

    /// Returns the keys by group. All keys have one variant.
    pub(crate) fn keys(&self) -> &[GroupKey] {
        match self.bytes.is_empty() {
            true => self.integers.keys(),
            false => &self.bytes,
        }
    }

    /// Appends the groups of the keys of some records to `groups`.
    pub(crate) fn group(&mut self, keys: &EncodedKeys, rows: Range<usize>, groups: &mut Vec<u32>) {
        groups.reserve(rows.len());
        if let EncodedKeys::Integers { .. } = keys {
            let index = &mut self.integers;
            let group = |row: usize| index.find_or_insert(Cow::Owned(keys.key(row))).0;
            groups.extend(rows.map(group));
            return;
        }
        let (known, index) = (&mut self.bytes, &mut self.groups);
        for row in rows {
            let key = keys.bytes(row).unwrap_or_default();
            let hash = xxh3_64(key);
            let is_same = |(other, group): &(u64, u32)| {
                *other == hash && known[*group as usize].bytes() == Some(key)
            };
            let group = match index.find(hash, is_same) {
                Some((_, group)) => *group,
                None => {
                    let group = known.len() as u32;
                    known.push(keys.key(row));
                    index.insert_unique(hash, (hash, group), |(hash, _)| *hash);
                    group
                }
            };
            groups.push(group);
        }
    }
}
