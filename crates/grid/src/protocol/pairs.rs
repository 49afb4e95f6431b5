//! Several keys with their values, on their way together.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Keys and their values, in the order in which they are put: all in one piece of memory, so that many of them cost little more than their bytes. Cheap to clone.
///
/// ```
/// let mut bunch = ardea_grid::protocol::Bunch::default();
/// bunch.push(b"ibis", b"pond");
/// bunch.push(b"heron", b"river");
/// let pairs = bunch.finish();
/// assert_eq!(pairs.iter().last(), Some((&b"heron"[..], &b"river"[..])));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Pairs {
    /// Keys and values, one behind the other.
    bytes: Bytes,
    /// How long each key is, and its value.
    lengths: Arc<[(u32, u32)]>,
}

/// Pairs as they come from elsewhere.
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
    /// What they take, in bytes.
    pub fn cost(&self) -> usize {
        self.bytes.len() + size_of_val(&self.lengths[..])
    }

    /// How long each key is, and its value.
    pub fn lengths(&self) -> impl Iterator<Item = (usize, usize)> {
        let lengths = self.lengths.iter();
        lengths.map(|(key, value)| (*key as usize, *value as usize))
    }

    /// The keys and their values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.bytes[..];
        self.lengths().map(move |(key, value)| {
            let (key, behind) = rest.split_at(key);
            let (value, behind) = behind.split_at(value);
            rest = behind;
            (key, value)
        })
    }

    /// What a key has by them.
    pub fn last_of(&self, wanted: &[u8]) -> Option<Bytes> {
        let (_, value) = self.iter().filter(|(key, _)| *key == wanted).last()?;
        Some(self.bytes.slice_ref(value))
    }
}

/// [`Pairs`] that are being gathered.
#[derive(Clone, Debug, Default)]
pub struct Bunch {
    bytes: Vec<u8>,
    lengths: Vec<(u32, u32)>,
}

impl Bunch {
    /// One for which so many bytes are likely to come.
    pub fn with_capacity(bytes: usize) -> Self {
        Bunch {
            bytes: Vec::with_capacity(bytes),
            lengths: Vec::new(),
        }
    }

    /// Puts a key and its value behind the others.
    ///
    /// # Panics
    /// If one of them has 4 GiB or more: no grid takes such an entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let lengths = [key, value].map(|part| u32::try_from(part.len()));
        let [Ok(key_bytes), Ok(value_bytes)] = lengths else {
            panic!("an entry is longer than any that a grid takes");
        };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lengths.push((key_bytes, value_bytes));
    }

    /// The same with what `write` puts behind the bytes that it is given: a key and a value. It says how long the key is, which is said here again.
    ///
    /// # Errors
    /// That of `write`, and [`ErrorCode::LimitReached`] for 4 GiB or more: then nothing is put.
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
                    format!("an entry of {all} bytes is longer than any that a grid takes"),
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

    /// Takes the last key and its value out again.
    pub fn take_last(&mut self) -> Option<(Bytes, Bytes)> {
        let (key, value) = self.lengths.pop()?;
        let start = self.bytes.len() - key as usize - value as usize;
        let mut key_bytes = Bytes::from(match start {
            // Alone it takes its memory along, and no more of it than it needs: it may be long, and be kept.
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

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// All of them.
    pub fn finish(mut self) -> Pairs {
        if self.bytes.capacity() > 2 * self.bytes.len() {
            // It may have to wait.
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
            let mut bunch = Bunch::default();
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
        let mut bunch = Bunch::default();
        bunch.push(b"key", b"value");
        let mut bytes = postcard::to_allocvec(&bunch.finish()).unwrap();
        assert!(postcard::from_bytes::<Pairs>(&bytes).is_ok());
        *bytes.last_mut().unwrap() += 1;
        assert!(postcard::from_bytes::<Pairs>(&bytes).is_err());
    }

    #[test]
    fn what_can_not_be_written_or_is_taken_out_again_leaves_nothing() {
        let mut bunch = Bunch::with_capacity(1_000);
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
