//! Serialization of keys and their states.

use std::fmt;
use std::sync::Arc;

use ardea_core::{
    Error, ErrorCode, Integer, Key, PartitionId, RestoredEntry, RestoredState, Result, StateChunk,
    StateCodec, StateShape, Timestamp,
};

/// The serializers of a keyed operator: of its keys, and of its states.
///
/// Each key is one entry under its canonical bytes. As canonical bytes cannot be decoded, the value
/// begins with the serialized key, preceded by its length in four bytes. The state follows in the
/// same way, then further data of the operator.
pub struct StateCodecs<K, S> {
    key: Arc<dyn StateCodec<K>>,
    state: Arc<dyn StateCodec<S>>,
}

impl<K, S> Clone for StateCodecs<K, S> {
    fn clone(&self) -> Self {
        StateCodecs {
            key: Arc::clone(&self.key),
            state: Arc::clone(&self.state),
        }
    }
}

impl<K, S> fmt::Debug for StateCodecs<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateCodecs")
    }
}

impl<K: Key, S> StateCodecs<K, S> {
    /// Creates serializers from these codecs.
    pub fn new(key: Arc<dyn StateCodec<K>>, state: Arc<dyn StateCodec<S>>) -> Self {
        StateCodecs { key, state }
    }

    /// Returns serializers with another codec of values, made from the present one.
    pub fn map_state<T, C: StateCodec<T> + 'static>(
        self,
        map: impl FnOnce(Arc<dyn StateCodec<S>>) -> C,
    ) -> StateCodecs<K, T> {
        StateCodecs {
            key: self.key,
            state: Arc::new(map(self.state)),
        }
    }

    /// Returns the shape of a state with this name.
    pub fn shape(&self, name: impl Into<String>) -> StateShape {
        StateShape::of_values(name, Some(self.key.schema()), self.state.schema())
    }

    /// Appends the entry of a key in the state `name`: its state, then the output of `rest`.
    pub fn write(
        &self,
        name: &str,
        chunk: &mut StateChunk,
        key: &K,
        state: &S,
        rest: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        self.write_as((name, &[]), chunk, key, |out| {
            self.put_state(state, out)?;
            rest(out);
            Ok(())
        })
    }

    /// Appends an entry of the state `name`, under the bytes of the key followed by `behind`. Its
    /// value is the key, followed by the output of `fill`.
    pub fn write_as(
        &self,
        (name, behind): (&str, &[u8]),
        chunk: &mut StateChunk,
        key: &K,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let partition = Some(PartitionId::of(key));
        chunk.write(
            name,
            partition,
            |out| put_key(key, behind, out),
            |out| {
                put_part(out, |out| self.key.put(key, out))?;
                fill(out)
            },
        )
    }

    /// Appends a key without its length.
    pub fn put_bare_key(&self, key: &K, out: &mut Vec<u8>) -> Result<()> {
        self.key.put(key, out)
    }

    /// Appends a state without its length.
    pub fn put_bare_state(&self, state: &S, out: &mut Vec<u8>) -> Result<()> {
        self.state.put(state, out)
    }

    /// Returns the integer that represents a key, if the codec maps the key to one.
    #[inline]
    pub fn integer_key(&self, key: &K) -> Option<Integer> {
        self.key.integer(key)
    }

    /// Returns the integer that represents a state, if the codec maps the state to one.
    #[inline]
    pub fn integer_state(&self, state: &S) -> Option<Integer> {
        self.state.integer(state)
    }

    /// Decodes a key of this partition, and its state.
    pub fn get(
        &self,
        (key, state): (SerializedPart<'_>, SerializedPart<'_>),
        partition: Option<PartitionId>,
    ) -> Result<(K, S)> {
        let key = key.get(&*self.key)?;
        check_place(&key, partition)?;
        Ok((key, state.get(&*self.state)?))
    }

    /// Appends a state with its length.
    pub fn put_state(&self, state: &S, out: &mut Vec<u8>) -> Result<()> {
        put_part(out, |out| self.state.put(state, out))
    }

    /// Returns the key and state of an entry of the state `name`, and the unread rest of its value.
    pub fn read<'a>(
        &self,
        name: &str,
        entry: &RestoredEntry<'a>,
    ) -> Result<(K, S, ValueReader<'a>)> {
        let (key, mut rest) = self.read_as(name, entry)?;
        let state = self.take_state(&mut rest)?;
        Ok((key, state, rest))
    }

    /// Returns the key of an entry of the state `name`, and the unread rest of its value.
    pub fn read_as<'a>(
        &self,
        name: &str,
        entry: &RestoredEntry<'a>,
    ) -> Result<(K, ValueReader<'a>)> {
        if entry.state != name {
            return Err(RestoredState::unknown(entry));
        }
        let mut rest = ValueReader(entry.value);
        let key = self.key.get(rest.part()?)?;
        check_place(&key, entry.partition)?;
        Ok((key, rest))
    }

    /// Decodes a state written by [`put_state`](Self::put_state).
    pub fn take_state(&self, rest: &mut ValueReader<'_>) -> Result<S> {
        self.state.get(rest.part()?)
    }
}

/// A serialized key or state.
#[derive(Clone, Copy, Debug)]
pub enum SerializedPart<'a> {
    /// The bytes written by the codec.
    Bytes(&'a [u8]),
    /// The integer that represents the key or state.
    Integer(Integer),
}

impl SerializedPart<'_> {
    fn get<T>(self, codec: &dyn StateCodec<T>) -> Result<T> {
        match self {
            SerializedPart::Bytes(bytes) => codec.get(bytes),
            SerializedPart::Integer(integer) => codec.get_integer(integer),
        }
    }
}

/// Checks that a key still belongs to the partition where it was stored. In another partition,
/// records with the key would not find its state.
fn check_place<K: Key>(key: &K, kept: Option<PartitionId>) -> Result<()> {
    let place = PartitionId::of(key);
    if kept.is_none_or(|kept| kept == place) {
        return Ok(());
    }
    let what = "a key has other canonical bytes than in the checkpoint";
    Err(Error::new(ErrorCode::InvalidJob, what)
        .hint("let `Key::write` of its type write the same bytes as then, or start the job without the checkpoint"))
}

/// Appends the removal of an entry written by [`StateCodecs::write_as`].
pub fn write_removed<K: Key>(
    (name, behind): (&str, &[u8]),
    chunk: &mut StateChunk,
    key: &K,
) -> Result<()> {
    let partition = Some(PartitionId::of(key));
    chunk.write_removed(name, partition, |out| put_key(key, behind, out))
}

fn put_key<K: Key>(key: &K, behind: &[u8], out: &mut Vec<u8>) -> Result<()> {
    key.write_to(out);
    out.extend_from_slice(behind);
    Ok(())
}

/// Returns a description of the state that is not checkpointed; `None` if there are serializers.
pub fn unsaved_without<C>(kept: Option<&C>) -> Option<&'static str> {
    match kept {
        Some(_) => None,
        None => Some("its keys and states, which have no serializer"),
    }
}

/// Appends the output of `put`, preceded by its length in four bytes.
pub fn put_part(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out)?;
    let length = out.len() - start - 4;
    let length = u32::try_from(length).map_err(|_| {
        let what = format!("a serialized key or state has {length} bytes; the limit is 4 GB");
        Error::new(ErrorCode::LimitReached, what)
    })?;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// The remaining bytes of an entry's value.
#[derive(Debug)]
pub struct ValueReader<'a>(&'a [u8]);

impl<'a> ValueReader<'a> {
    /// Creates a reader over a whole value.
    pub fn of(value: &'a [u8]) -> Self {
        ValueReader(value)
    }

    /// Returns true if no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all remaining bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Reads the next `length` bytes. The caller has read `length` from the value.
    pub fn bytes_of(&mut self, length: usize) -> Result<&'a [u8]> {
        self.0.split_off(..length).ok_or_else(truncated_entry)
    }

    /// Reads a part written by [`put_part`].
    pub fn part(&mut self) -> Result<&'a [u8]> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        self.bytes_of(length)
    }

    /// Reads the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(truncated_entry)?;
        self.0 = rest;
        Ok(*array)
    }

    /// Reads a time written by [`put_time`].
    pub fn time(&mut self) -> Result<Timestamp> {
        Ok(Timestamp::from_micros(i64::from_le_bytes(self.array()?)))
    }

    /// Reads times written by [`put_times`].
    pub fn times(&mut self) -> Result<impl Iterator<Item = Result<Timestamp>> + use<'a>> {
        let count = u32::from_le_bytes(self.array()?) as usize;
        let bytes = count.checked_mul(8).and_then(|n| self.0.split_off(..n));
        let mut times = ValueReader(bytes.ok_or_else(truncated_entry)?);
        Ok((0..count).map(move |_| times.time()))
    }
}

/// Appends a time.
pub fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(&time.as_micros().to_le_bytes());
}

/// Appends times, preceded by their number.
pub fn put_times(out: &mut Vec<u8>, times: impl Iterator<Item = Timestamp>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count: u32 = 0;
    for time in times {
        put_time(out, time);
        count += 1;
    }
    out[start..start + 4].copy_from_slice(&count.to_le_bytes());
}

/// Returns the error for a duplicate entry.
pub fn duplicate_entry() -> Error {
    Error::new(ErrorCode::BadRecord, "the state of a key occurs twice")
        .hint("start from another checkpoint")
}

/// Returns the error for a truncated entry.
pub fn truncated_entry() -> Error {
    Error::new(ErrorCode::BadRecord, "an entry of the state is truncated")
        .hint("start from another checkpoint")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::EightBytes;

    #[test]
    fn a_key_that_belongs_elsewhere_than_it_was_kept_is_refused() {
        let kept = StateCodecs::new(Arc::new(EightBytes), Arc::new(EightBytes));
        let mut chunk = StateChunk::default();
        kept.write("keys", &mut chunk, &7, &70, |_| {}).unwrap();
        let written = chunk.entries().next().unwrap();
        let entry = |partition| RestoredEntry {
            state: written.state,
            partition: Some(partition),
            key: written.key,
            value: written.value.unwrap(),
        };
        let own = PartitionId::of(&7u64);
        let (key, state, _) = kept.read("keys", &entry(own)).unwrap();
        assert_eq!((key, state), (7, 70));
        let other = PartitionId::from_index(own.index() ^ 1).unwrap();
        let error = kept.read("keys", &entry(other)).err().unwrap();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(error.to_string().contains("canonical bytes"), "{error}");
    }
}
