//! The key of a group of records.

use std::borrow::Cow;

use ardea_core::{Key, KeyBytes};
use serde::{Deserialize, Serialize};

/// The key of records in columns, independent of their schema.
///
/// The keys of one step all have the same variant.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum GroupKey {
    /// An integer column, with the bits of an unsigned one.
    Integer(i64),
    /// A nullable integer column.
    OptionalInteger(Option<i64>),
    /// The canonical bytes of other columns.
    Bytes(#[serde(with = "bytes")] Box<[u8]>),
}

/// Keys as bytes in serialized form, instead of a list of numbers.
mod bytes {
    use std::fmt;

    use serde::de::{Deserializer, Error, SeqAccess, Visitor};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Box<[u8]>, D::Error> {
        deserializer.deserialize_byte_buf(BytesVisitor)
    }

    /// A visitor of bytes.
    struct BytesVisitor;

    impl<'de> Visitor<'de> for BytesVisitor {
        type Value = Box<[u8]>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the bytes of a key")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Box<[u8]>, E> {
            Ok(bytes.into())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Box<[u8]>, A::Error> {
            let mut all = Vec::new();
            while let Some(byte) = bytes.next_element()? {
                all.push(byte);
            }
            Ok(all.into())
        }
    }
}

impl Key for GroupKey {
    fn write(&self, bytes: &mut KeyBytes) {
        match self {
            GroupKey::Integer(key) => key.write(bytes),
            GroupKey::OptionalInteger(key) => key.write(bytes),
            GroupKey::Bytes(key) => bytes.raw(key),
        }
    }

    #[inline]
    fn key_hash(&self) -> u64 {
        match self {
            GroupKey::Integer(key) => key.key_hash(),
            GroupKey::OptionalInteger(key) => key.key_hash(),
            GroupKey::Bytes(key) => xxhash_rust::xxh3::xxh3_64(key),
        }
    }

    #[inline]
    fn as_index(&self) -> Option<u64> {
        match self {
            GroupKey::Integer(key) | GroupKey::OptionalInteger(Some(key)) => key.as_index(),
            GroupKey::OptionalInteger(None) | GroupKey::Bytes(_) => None,
        }
    }
}

impl GroupKey {
    /// Returns the canonical bytes; `None` for an integer.
    #[inline]
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            GroupKey::Integer(_) | GroupKey::OptionalInteger(_) => None,
            GroupKey::Bytes(bytes) => Some(bytes),
        }
    }

    /// Returns the canonical bytes of the value of a column, given its position and the number of
    /// columns; `None` if it is null.
    pub(super) fn part(
        &self,
        (part, arity): (usize, usize),
        is_nullable: bool,
    ) -> Option<Cow<'_, [u8]>> {
        let bytes: &[u8] = match self {
            GroupKey::Integer(key) => return Some(key.to_le_bytes().to_vec().into()),
            GroupKey::OptionalInteger(key) => {
                return key.map(|key| key.to_le_bytes().to_vec().into());
            }
            GroupKey::Bytes(bytes) => bytes,
        };
        let value = match arity {
            1 => bytes,
            _ => {
                let mut parts = (0..part).try_fold(bytes, |rest, _| Some(split_part(rest)?.1));
                split_part(parts.take()?)?.0
            }
        };
        match is_nullable {
            true => split_part(value).map(|(value, _)| value.into()),
            false => Some(value.into()),
        }
    }
}

/// Splits off a part after its length of eight bytes.
fn split_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}
