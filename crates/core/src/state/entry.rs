//! A buffer of snapshot entries.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorCode};
use crate::{Epoch, PartitionId, Result};

/// One entry of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StateEntry<'a> {
    /// The name of the state, unique in its vertex.
    pub state: &'a str,
    /// The partition of the key; `None` if the entry belongs to no partition.
    pub partition: Option<PartitionId>,
    /// The key: for keyed state its canonical bytes, see [`Key`](crate::Key).
    pub key: &'a [u8],
    /// The value; `None` if the key was removed.
    pub value: Option<&'a [u8]>,
}

/// Bytes of an entry's header: the index of the state's name, the partition, both lengths.
const HEAD: usize = 12;
/// The partition field of an entry without partition.
const NO_PARTITION: u16 = u16::MAX;
/// The value length field of a removed key.
const REMOVED: u32 = u32::MAX;

/// The type of the missing value function of a removed key.
type AppendsNothing = fn(&mut Vec<u8>) -> Result<()>;

/// A reusable buffer of entries: once it has grown, appending allocates nothing.
///
/// ```
/// use ardea_core::{StateChunk, StateEntry};
///
/// let mut chunk = StateChunk::default();
/// chunk.push(StateEntry { state: "count", partition: None, key: b"a", value: Some(b"7") })?;
/// chunk.push(StateEntry { state: "count", partition: None, key: b"b", value: None })?;
/// let keys: Vec<&[u8]> = chunk.entries().map(|entry| entry.key).collect();
/// assert_eq!(keys, [b"a", b"b"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct StateChunk {
    /// The state names that occur, by index.
    names: Vec<Arc<str>>,
    bytes: Vec<u8>,
    entries: usize,
    /// States by index, each with the epoch before which its entries are outdated.
    outdated: Vec<(u16, Epoch)>,
}

impl StateChunk {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the bytes of the entries.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Drops all entries but keeps the memory.
    pub fn clear(&mut self) {
        self.names.clear();
        self.bytes.clear();
        self.entries = 0;
        self.outdated.clear();
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn push(&mut self, entry: StateEntry<'_>) -> Result<()> {
        let key = |out: &mut Vec<u8>| {
            out.extend_from_slice(entry.key);
            Ok(())
        };
        match entry.value {
            Some(value) => self.write(entry.state, entry.partition, key, |out| {
                out.extend_from_slice(value);
                Ok(())
            }),
            None => self.write_removed(entry.state, entry.partition, key),
        }
    }

    /// Appends an entry; `key` and `value` append to the buffer in place.
    ///
    /// # Errors
    /// Errors of `key` and `value`, and [`ErrorCode::LimitReached`] for a key or value of 4 GB.
    /// Then nothing is appended.
    pub fn write(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        value: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.append(state, partition, key, Some(value))
    }

    /// Appends a tombstone for a removed key.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_removed(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.append(state, partition, key, None::<AppendsNothing>)
    }

    fn append(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        value: Option<impl FnOnce(&mut Vec<u8>) -> Result<()>>,
    ) -> Result<()> {
        let start = self.bytes.len();
        let name = self.number_of(state)?;
        self.bytes.resize(start + HEAD, 0);
        let written = lengths_of(&mut self.bytes, start + HEAD, key, value);
        let (key_length, value_length) = match written {
            Ok(lengths) => lengths,
            Err(error) => {
                self.bytes.truncate(start);
                return Err(error);
            }
        };
        let head = &mut self.bytes[start..start + HEAD];
        let partition = partition.map_or(NO_PARTITION, |partition| partition.index() as u16);
        head[..2].copy_from_slice(&name.to_le_bytes());
        head[2..4].copy_from_slice(&partition.to_le_bytes());
        head[4..8].copy_from_slice(&key_length.to_le_bytes());
        head[8..].copy_from_slice(&value_length.to_le_bytes());
        self.entries += 1;
        Ok(())
    }

    /// Declares entries of `state` outdated: all from snapshots before the epoch `before`, see
    /// [`SnapshotWriter::outdate`](crate::SnapshotWriter::outdate).
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] for too many names.
    pub fn outdate(&mut self, state: &str, before: Epoch) -> Result<()> {
        let name = self.number_of(state)?;
        self.outdated.push((name, before));
        Ok(())
    }

    /// Returns the states with [outdated](Self::outdate) entries, each with the epoch before which
    /// entries are outdated. If a state occurs more than once, its last epoch counts.
    pub fn outdated(&self) -> impl Iterator<Item = (&str, Epoch)> {
        let named = |(number, before): &(u16, Epoch)| {
            let name = self.names.get(usize::from(*number))?;
            Some((&**name, *before))
        };
        self.outdated.iter().filter_map(named)
    }

    /// Returns the index of a state's name; adds the name if it is new.
    fn number_of(&mut self, state: &str) -> Result<u16> {
        let found = self.names.iter().rposition(|name| &**name == state);
        let number = found.unwrap_or(self.names.len());
        if found.is_none() {
            self.names.push(Arc::from(state));
        }
        u16::try_from(number).map_err(|_| {
            let what = format!("a vertex has more than {} kinds of state", u16::MAX);
            Error::new(ErrorCode::LimitReached, what)
        })
    }

    /// Returns the entries in order.
    pub fn entries(&self) -> StateEntries<'_> {
        self.entries_from(0)
    }

    /// Returns the entries from a [position](StateEntries::position) on.
    pub fn entries_from(&self, position: usize) -> StateEntries<'_> {
        StateEntries {
            chunk: self,
            at: position,
        }
    }

    /// Returns the entry at a position, and the position of the next one.
    fn entry_at(&self, at: usize) -> Option<(StateEntry<'_>, usize)> {
        let rest = self.bytes.get(at..)?;
        let head = rest.first_chunk::<HEAD>()?;
        let [n0, n1, p0, p1, k0, k1, k2, k3, v0, v1, v2, v3] = *head;
        let key_length = u32::from_le_bytes([k0, k1, k2, k3]) as usize;
        let value_length = u32::from_le_bytes([v0, v1, v2, v3]);
        let key_end = HEAD + key_length;
        let (value, end) = match value_length {
            REMOVED => (None, key_end),
            length => {
                let end = key_end + length as usize;
                (Some(rest.get(key_end..end)?), end)
            }
        };
        let entry = StateEntry {
            state: self.names.get(usize::from(u16::from_le_bytes([n0, n1])))?,
            partition: PartitionId::from_index(u16::from_le_bytes([p0, p1]).into()),
            key: rest.get(HEAD..key_end)?,
            value,
        };
        Some((entry, at + end))
    }
}

/// Appends key and value after `start`; returns their lengths.
fn lengths_of(
    bytes: &mut Vec<u8>,
    start: usize,
    key: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    value: Option<impl FnOnce(&mut Vec<u8>) -> Result<()>>,
) -> Result<(u32, u32)> {
    key(bytes)?;
    let key_end = bytes.len();
    let key_length = short(key_end - start)?;
    let Some(value) = value else {
        return Ok((key_length, REMOVED));
    };
    value(bytes)?;
    Ok((key_length, short(bytes.len() - key_end)?))
}

/// Checks that a length is less than 4 GB.
fn short(length: usize) -> Result<u32> {
    let short = u32::try_from(length).ok();
    short.filter(|length| *length != REMOVED).ok_or_else(|| {
        let what =
            format!("a key or value of state has {length} bytes, which exceeds the limit of 4 GB");
        Error::new(ErrorCode::LimitReached, what).hint("spread it over several keys")
    })
}

impl fmt::Debug for StateChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entries, bytes) = (self.len(), self.byte_len());
        write!(f, "StateChunk({entries} entries, {bytes} bytes)")
    }
}

impl<'a> IntoIterator for &'a StateChunk {
    type Item = StateEntry<'a>;
    type IntoIter = StateEntries<'a>;

    fn into_iter(self) -> StateEntries<'a> {
        self.entries()
    }
}

/// An iterator over the entries of a chunk.
#[derive(Clone, Debug)]
pub struct StateEntries<'a> {
    chunk: &'a StateChunk,
    at: usize,
}

impl StateEntries<'_> {
    /// Returns the position of the next entry, for [`StateChunk::entries_from`].
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for StateEntries<'a> {
    type Item = StateEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<StateEntry<'a>> {
        let (entry, next) = self.chunk.entry_at(self.at)?;
        self.at = next;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = (String, Option<u32>, Vec<u8>, Option<Vec<u8>>);

    fn entries() -> impl Strategy<Value = Vec<Owned>> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..20);
        let partition = prop::option::of(0u32..crate::PARTITION_COUNT);
        let entry = ("[a-c]{0,2}", partition, bytes(), prop::option::of(bytes()));
        prop::collection::vec(entry, 0..50)
    }

    fn view((state, partition, key, value): &Owned) -> StateEntry<'_> {
        StateEntry {
            state,
            partition: partition.and_then(PartitionId::from_index),
            key,
            value: value.as_deref(),
        }
    }

    proptest! {
        #[test]
        fn entries_come_back_as_they_were_written(owned in entries(), before in entries()) {
            let mut chunk = StateChunk::default();
            before.iter().for_each(|entry| chunk.push(view(entry)).unwrap());
            chunk.clear();
            owned.iter().for_each(|entry| chunk.push(view(entry)).unwrap());
            let expected: Vec<_> = owned.iter().map(view).collect();
            prop_assert_eq!(chunk.entries().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(chunk.len(), owned.len());
            let mut some = chunk.entries();
            let first: Vec<_> = some.by_ref().take(owned.len() / 2).collect();
            let rest: Vec<_> = chunk.entries_from(some.position()).collect();
            prop_assert_eq!([first, rest].concat(), expected);
        }
    }

    #[test]
    fn what_is_outdated_is_told_with_the_chunk_and_forgotten_with_it() {
        let mut chunk = StateChunk::default();
        chunk.outdate("slices", Epoch(7)).unwrap();
        chunk.outdate("told", Epoch(9)).unwrap();
        assert!(chunk.is_empty());
        let outdated: Vec<_> = chunk.outdated().collect();
        assert_eq!(outdated, [("slices", Epoch(7)), ("told", Epoch(9))]);
        chunk.clear();
        assert_eq!(chunk.outdated().count(), 0);
    }

    #[test]
    fn an_entry_that_fails_half_way_leaves_nothing_behind() {
        let mut chunk = StateChunk::default();
        let entry = StateEntry {
            state: "a",
            partition: None,
            key: b"k",
            value: Some(b"v"),
        };
        chunk.push(entry).unwrap();
        let (key, value) = (
            |out: &mut Vec<u8>| {
                out.push(1);
                Ok(())
            },
            |out: &mut Vec<u8>| {
                out.push(2);
                Err(Error::new(ErrorCode::UserError, "no"))
            },
        );
        chunk.write("b", None, key, value).unwrap_err();
        chunk.push(entry).unwrap();
        assert_eq!(chunk.entries().collect::<Vec<_>>(), [entry, entry]);
    }
}
