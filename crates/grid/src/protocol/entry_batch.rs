//! Batches of entries in transit.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Keys with their values, in the order in which they are put. Stored in one allocation, so the
/// overhead per entry is small. Cheap to clone.
///
/// ```
/// let mut bunch = ardea_grid::protocol::EntryBatch::default();
/// bunch.push(b"ibis", b"pond");
/// bunch.push(b"heron", b"river");
/// let pairs = bunch.finish();
/// assert_eq!(pairs.iter().last(), Some((&b"heron"[..], &b"river"[..])));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Pairs {
    /// Keys and values, concatenated.
    bytes: Bytes,
    /// Lengths of each key and its value.
    lengths: Arc<[(u32, u32)]>,
}

/// Received pairs whose lengths have not been validated.
#[derive(Deserialize)]
struct Unchecked {
    bytes: Bytes,
    lengths: Arc<[(u32, u32)]>,
}

impl TryFrom<Unchecked> for Pairs {
    type Error = &'static str;

    fn try_from(Unchecked { bytes, lengths }: Unchecked) -> std::result::Result<Self, Self::Error> {
        let all = lengths
            .iter()
            .map(|(key, value)| u64::from(*key) + u64::from(*value));
        match all.sum::<u64>() == bytes.len() as u64 {
            true => Ok(Pairs { bytes, lengths }),
            false => Err("the lengths of keys and values are not those of their bytes"),
        }
    }
}

impl Pairs {
    /// Returns the memory size in bytes.
    pub fn cost(&self) -> usize {
        self.bytes.len() + size_of_val(&self.lengths[..])
    }

    /// Returns the lengths of each key and its value.
    pub fn lengths(&self) -> impl Iterator<Item = (usize, usize)> {
        let lengths = self.lengths.iter();
        lengths.map(|(key, value)| (*key as usize, *value as usize))
    }

    /// Returns the keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.bytes[..];
        self.lengths().map(move |(key, value)| {
            let (key, behind) = rest.split_at(key);
            let (value, behind) = behind.split_at(value);
            rest = behind;
            (key, value)
        })
    }

    /// Returns the last value of a key.
    pub fn last_of(&self, wanted: &[u8]) -> Option<Bytes> {
        let (_, value) = self.iter().filter(|(key, _)| *key == wanted).last()?;
        Some(self.bytes.slice_ref(value))
    }
}

/// Builder of [`Pairs`].
#[derive(Clone, Debug, Default)]
pub struct EntryBatch {
    bytes: Vec<u8>,
    lengths: Vec<(u32, u32)>,
}

impl EntryBatch {
    /// Creates an empty batch with a capacity in bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        EntryBatch {
            bytes: Vec::with_capacity(bytes),
            lengths: Vec::new(),
        }
    }

    /// Appends an entry.
    ///
    /// # Panics
    /// If the key or the value has 4 GiB or more, which no grid accepts.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let lengths = [key, value].map(|part| u32::try_from(part.len()));
        let [Ok(key_bytes), Ok(value_bytes)] = lengths else {
            panic!("an entry is larger than a grid accepts");
        };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lengths.push((key_bytes, value_bytes));
    }

    /// Appends an entry that `write` encodes behind the given bytes: first the key, then the value.
    /// Returns the key's length, as returned by `write`.
    ///
    /// # Errors
    /// That of `write`, and [`ErrorCode::LimitReached`] for 4 GiB or more; nothing is appended
    /// then.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<usize>) -> Result<usize> {
        let start = self.bytes.len();
        let written = write(&mut self.bytes).and_then(|key| {
            let all = self.bytes.len() - start;
            let key = key.min(all);
            let lengths = [key, all - key].map(u32::try_from);
            match lengths {
                [Ok(key), Ok(value)] => Ok((key, value)),
                _ => Err(Error::new(
                    ErrorCode::LimitReached,
                    format!("an entry of {all} bytes is larger than a grid accepts"),
                )),
            }
        });
        match written {
            Ok((key, value)) => {
                self.lengths.push((key, value));
                Ok(key as usize)
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(error)
            }
        }
    }

    /// Removes and returns the last entry.
    pub fn take_last(&mut self) -> Option<(Bytes, Bytes)> {
        let (key, value) = self.lengths.pop()?;
        let start = self.bytes.len() - key as usize - value as usize;
        let mut key_bytes = Bytes::from(match start {
            // The only entry takes over the buffer, shrunk to its size, since it may be large and
            // long-lived.
            0 => {
                let mut alone = std::mem::take(&mut self.bytes);
                alone.shrink_to_fit();
                alone
            }
            _ => self.bytes.split_off(start),
        });
        let value = key_bytes.split_off(key as usize);
        Some((key_bytes, value))
    }

    /// Returns the total size of keys and values in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Builds the pairs.
    pub fn finish(mut self) -> Pairs {
        if self.bytes.capacity() > 2 * self.bytes.len() {
            // The pairs may have to wait in a queue.
            self.bytes.shrink_to_fit();
        }
        Pairs {
            bytes: self.bytes.into(),
            lengths: self.lengths.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pairs_are_what_was_put_here_and_elsewhere(
            entries in prop::collection::vec((any::<[u8; 1]>(), prop::collection::vec(any::<u8>(), 0..50)), 0..50),
        ) {
            let mut bunch = EntryBatch::default();
            for (at, (key, value)) in entries.iter().enumerate() {
                match at % 2 {
                    0 => bunch.push(key, value),
                    _ => {
                        let both = |bytes: &mut Vec<u8>| {
                            bytes.extend(key);
                            bytes.extend(value);
                            Ok(1)
                        };
                        prop_assert_eq!(bunch.write(both).unwrap(), 1);
                    }
                }
            }
            let pairs = bunch.finish();
            let elsewhere: Pairs = postcard::from_bytes(&postcard::to_allocvec(&pairs).unwrap()).unwrap();
            prop_assert_eq!(&elsewhere, &pairs);
            prop_assert_eq!(pairs.lengths().count(), entries.len());
            prop_assert!(pairs.iter().eq(entries.iter().map(|(key, value)| (&key[..], &value[..]))));
            for wanted in 0..=u8::MAX {
                let last = entries.iter().rfind(|(key, _)| key == &[wanted]);
                let last = last.map(|(_, value)| &value[..]);
                let told = pairs.last_of(&[wanted]);
                prop_assert_eq!(told.as_deref(), last);
            }
        }
    }

    #[test]
    fn lengths_that_are_not_those_of_the_bytes_are_refused() {
        let mut bunch = EntryBatch::default();
        bunch.push(b"key", b"value");
        let mut bytes = postcard::to_allocvec(&bunch.finish()).unwrap();
        assert!(postcard::from_bytes::<Pairs>(&bytes).is_ok());
        *bytes.last_mut().unwrap() += 1;
        assert!(postcard::from_bytes::<Pairs>(&bytes).is_err());
    }

    #[test]
    fn what_can_not_be_written_or_is_taken_out_again_leaves_nothing() {
        let mut bunch = EntryBatch::with_capacity(1_000);
        bunch.push(b"ibis", b"pond");
        let wrong = bunch.write(|bytes| {
            bytes.extend(b"half");
            Err(Error::new(ErrorCode::LimitReached, "too long"))
        });
        assert!(wrong.is_err());
        bunch.push(b"heron", b"river");
        assert_eq!(bunch.take_last(), Some(("heron".into(), "river".into())));
        assert_eq!((bunch.bytes(), bunch.is_empty()), (8, false));
        let pairs = bunch.finish();
        assert!(pairs.iter().eq([(&b"ibis"[..], &b"pond"[..])]));
    }
}
