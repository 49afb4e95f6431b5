//! The keys of a batch, encoded column by column.

use std::borrow::Cow;

use ardea_core::PartitionId;
use arrow_array::{Array, StringArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::{GroupKey, KeyValues};

/// The keys of the records of a batch.
pub(crate) enum EncodedKeys {
    /// Keys of one integer column.
    Integers {
        values: ScalarBuffer<i64>,
        nulls: Option<NullBuffer>,
        is_nullable: bool,
    },
    /// Keys of one text column that is not nullable: their bytes are the canonical ones.
    Texts(StringArray),
    /// The canonical bytes of all keys, and the end of each.
    Bytes { bytes: Vec<u8>, ends: Vec<usize> },
}

impl EncodedKeys {
    /// Encodes the key columns, each with its nullability.
    pub(super) fn new(columns: &[(KeyValues, bool)], rows: usize) -> Self {
        if let [(KeyValues::Integers(values, nulls), is_nullable)] = columns {
            return EncodedKeys::Integers {
                values: values.clone(),
                nulls: nulls.clone(),
                is_nullable: *is_nullable,
            };
        }
        if let [(KeyValues::Texts(values), false)] = columns {
            return EncodedKeys::Texts(values.clone());
        }
        let is_tuple = columns.len() != 1;
        let mut bytes = Vec::with_capacity(rows * columns.len() * 24);
        let mut ends = Vec::with_capacity(rows);
        for row in 0..rows {
            for (values, is_nullable) in columns {
                let value = values.get(row);
                // As a part of the tuple, and within it as a part of the option.
                if is_tuple {
                    let inner = value.as_ref().map_or(0, |value| value.len());
                    let is_some = *is_nullable && value.is_some();
                    put_length(&mut bytes, inner + if is_some { 8 } else { 0 });
                }
                if let Some(value) = value {
                    if *is_nullable {
                        put_length(&mut bytes, value.len());
                    }
                    bytes.extend_from_slice(&value);
                }
            }
            ends.push(bytes.len());
        }
        EncodedKeys::Bytes { bytes, ends }
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        match self {
            EncodedKeys::Integers { values, .. } => values.len(),
            EncodedKeys::Texts(values) => values.len(),
            EncodedKeys::Bytes { ends, .. } => ends.len(),
        }
    }

    /// Returns the partition of the key of a record.
    #[inline]
    pub(crate) fn partition(&self, row: usize) -> PartitionId {
        match self.bytes(row) {
            None => PartitionId::of(&self.key(row)),
            Some(bytes) => PartitionId::of_canonical(bytes),
        }
    }

    /// Returns the canonical bytes of the key of a record; `None` for keys of one integer column.
    #[inline]
    pub(crate) fn bytes(&self, row: usize) -> Option<&[u8]> {
        match self {
            EncodedKeys::Integers { .. } => None,
            EncodedKeys::Texts(values) => Some(values.value(row).as_bytes()),
            EncodedKeys::Bytes { bytes, ends } => Some(&bytes[range(ends, row)]),
        }
    }

    /// Returns the key of a record.
    #[inline]
    pub(crate) fn key(&self, row: usize) -> GroupKey {
        match self {
            EncodedKeys::Integers {
                values,
                nulls,
                is_nullable,
            } => match is_nullable {
                false => GroupKey::Integer(values[row]),
                true => {
                    let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                    GroupKey::OptionalInteger(is_valid.then_some(values[row]))
                }
            },
            EncodedKeys::Texts(values) => GroupKey::Bytes(values.value(row).as_bytes().into()),
            EncodedKeys::Bytes { bytes, ends } => GroupKey::Bytes(bytes[range(ends, row)].into()),
        }
    }

    /// Adds the result of `group` for the key of each record of `rows` to `groups`. Where keys are
    /// expensive to create, `group` is called once for each distinct key.
    pub(crate) fn group(
        &self,
        rows: impl Iterator<Item = usize>,
        groups: &mut Vec<u32>,
        mut group: impl FnMut(Cow<'_, GroupKey>) -> u32,
    ) {
        if let EncodedKeys::Integers { .. } = self {
            return groups.extend(rows.map(|row| group(Cow::Owned(self.key(row)))));
        }
        let bytes = |row: usize| self.bytes(row).unwrap_or_default();
        // A row of each distinct key, and the key's group.
        let mut distinct: HashTable<(usize, u32)> = HashTable::new();
        for row in rows {
            let key = bytes(row);
            let is_same = |(other, _): &(usize, u32)| bytes(*other) == key;
            let hash = |(other, _): &(usize, u32)| xxh3_64(bytes(*other));
            let entry = distinct.entry(xxh3_64(key), is_same, hash);
            let entry = entry.or_insert_with(|| (row, group(Cow::Owned(self.key(row)))));
            groups.push(entry.get().1);
        }
    }
}

impl KeyValues {
    /// Returns the canonical bytes of a value; `None` if it is null.
    fn get(&self, row: usize) -> Option<Cow<'_, [u8]>> {
        match self {
            KeyValues::Integers(values, nulls) => {
                let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                is_valid.then(|| values[row].to_le_bytes().to_vec().into())
            }
            KeyValues::Texts(values) => {
                let text = values.is_valid(row).then(|| values.value(row));
                text.map(|text| text.as_bytes().into())
            }
            KeyValues::Binaries(values) => values.is_valid(row).then(|| values.value(row).into()),
        }
    }
}

fn put_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend_from_slice(&(length as u64).to_le_bytes());
}

/// Returns the range of bytes of a row.
#[inline]
fn range(ends: &[usize], row: usize) -> std::ops::Range<usize> {
    let start = row.checked_sub(1).map_or(0, |before| ends[before]);
    start..ends[row]
}
