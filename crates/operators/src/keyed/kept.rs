//! How keys and what is remembered of them become bytes.

use std::fmt;
use std::sync::Arc;

use ardea_core::{
    Error, ErrorCode, Integer, Key, PartitionId, RestoredEntry, RestoredState, Result, StateChunk,
    StateCodec, StateShape, Timestamp,
};

use crate::keyed::states::STATE;

/// How a keyed operator writes what it remembers where that has to survive it: its keys, and its states.
///
/// Each key is one entry under its canonical bytes. The value begins with the length of the key in four bytes and the key as its codec
/// writes it, as canonical bytes can't be read back; then, in the same way, the state, and what the operator itself remembers.
pub struct KeptAs<K, S> {
    key: Arc<dyn StateCodec<K>>,
    state: Arc<dyn StateCodec<S>>,
}

impl<K, S> Clone for KeptAs<K, S> {
    fn clone(&self) -> Self {
        KeptAs {
            key: Arc::clone(&self.key),
            state: Arc::clone(&self.state),
        }
    }
}

impl<K, S> fmt::Debug for KeptAs<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptAs")
    }
}

impl<K: Key, S> KeptAs<K, S> {
    /// By these codecs.
    pub fn new(key: Arc<dyn StateCodec<K>>, state: Arc<dyn StateCodec<S>>) -> Self {
        KeptAs { key, state }
    }

    /// What the state of this name looks like that is written so.
    pub(crate) fn shape(&self, name: impl Into<String>) -> StateShape {
        StateShape::of_values(name, Some(self.key.schema()), self.state.schema())
    }

    /// Appends the entry of a key: its state, then what `rest` appends.
    pub(crate) fn write(
        &self,
        chunk: &mut StateChunk,
        key: &K,
        state: &S,
        rest: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        self.write_as((STATE, &[]), chunk, key, |out| {
            self.put_state(state, out)?;
            rest(out);
            Ok(())
        })
    }

    /// Appends an entry of the state of this name, under the bytes of the key and these behind them. Its value is the key, and what
    /// `fill` appends.
    pub(crate) fn write_as(
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

    /// Appends a key, without its length.
    pub(crate) fn put_bare_key(&self, key: &K, out: &mut Vec<u8>) -> Result<()> {
        self.key.put(key, out)
    }

    /// Appends a state, without its length.
    pub(crate) fn put_bare_state(&self, state: &S, out: &mut Vec<u8>) -> Result<()> {
        self.state.put(state, out)
    }

    /// The integer that is all there is to a key, if one is.
    #[inline]
    pub(crate) fn integer_key(&self, key: &K) -> Option<Integer> {
        self.key.integer(key)
    }

    /// The integer that is all there is to a state, if one is.
    #[inline]
    pub(crate) fn integer_state(&self, state: &S) -> Option<Integer> {
        self.state.integer(state)
    }

    /// A key that belongs to this partition, and its state, which were written so.
    pub(crate) fn get(
        &self,
        (key, state): (KeptPart<'_>, KeptPart<'_>),
        partition: Option<PartitionId>,
    ) -> Result<(K, S)> {
        let key = key.get(&*self.key)?;
        check_place(&key, partition)?;
        Ok((key, state.get(&*self.state)?))
    }

    /// Appends a state.
    pub(crate) fn put_state(&self, state: &S, out: &mut Vec<u8>) -> Result<()> {
        put_part(out, |out| self.state.put(state, out))
    }

    /// The key and state of an entry, and what follows.
    pub(crate) fn read<'a>(&self, entry: &RestoredEntry<'a>) -> Result<(K, S, Rest<'a>)> {
        let (key, mut rest) = self.read_as(STATE, entry)?;
        let state = self.take_state(&mut rest)?;
        Ok((key, state, rest))
    }

    /// The key of an entry of the state of this name, and what follows.
    pub(crate) fn read_as<'a>(
        &self,
        name: &str,
        entry: &RestoredEntry<'a>,
    ) -> Result<(K, Rest<'a>)> {
        if entry.state != name {
            return Err(RestoredState::unknown(entry));
        }
        let mut rest = Rest(entry.value);
        let key = self.key.get(rest.part()?)?;
        check_place(&key, entry.partition)?;
        Ok((key, rest))
    }

    /// A state that was written by [`put_state`](Self::put_state).
    pub(crate) fn take_state(&self, rest: &mut Rest<'_>) -> Result<S> {
        self.state.get(rest.part()?)
    }
}

/// What was written of a key, or of a state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeptPart<'a> {
    /// What the codec wrote.
    Bytes(&'a [u8]),
    /// The integer that it is.
    Integer(Integer),
}

impl KeptPart<'_> {
    fn get<T>(self, codec: &dyn StateCodec<T>) -> Result<T> {
        match self {
            KeptPart::Bytes(bytes) => codec.get(bytes),
            KeptPart::Integer(integer) => codec.get_integer(integer),
        }
    }
}

/// Checks that a key still belongs where it was kept: its records would find nothing else.
fn check_place<K: Key>(key: &K, kept: Option<PartitionId>) -> Result<()> {
    let place = PartitionId::of(key);
    if kept.is_none_or(|kept| kept == place) {
        return Ok(());
    }
    let what = "a key has other canonical bytes than when its state was kept";
    Err(Error::new(ErrorCode::InvalidJob, what)
        .hint("have `Key::write` of its type write what it did then, or start the job without the snapshot"))
}

/// Appends that an entry written by [`KeptAs::write_as`] has been removed.
pub(crate) fn write_removed<K: Key>(
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

/// What an operator forgets that nobody has said of how its keys and states are written.
pub(crate) fn unless_kept<C>(kept: Option<&C>) -> Option<&'static str> {
    match kept {
        Some(_) => None,
        None => Some("its keys and states, which nothing here can write"),
    }
}

/// Appends what `put` does, behind its length in four bytes.
pub(crate) fn put_part(
    out: &mut Vec<u8>,
    put: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out)?;
    let length = out.len() - start - 4;
    let length = u32::try_from(length).map_err(|_| {
        let what = format!("a key or a state has {length} bytes, 4 GB are too many");
        Error::new(ErrorCode::LimitReached, what)
    })?;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// What is left of an entry's value.
#[derive(Debug)]
pub(crate) struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// All of a value.
    pub(crate) fn of(value: &'a [u8]) -> Self {
        Rest(value)
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is left.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The next so many bytes, of a length that was read.
    pub(crate) fn bytes_of(&mut self, length: usize) -> Result<&'a [u8]> {
        self.0.split_off(..length).ok_or_else(cut_short)
    }

    /// What was written by [`put_part`].
    pub(crate) fn part(&mut self) -> Result<&'a [u8]> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        self.bytes_of(length)
    }

    /// The next so many bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(*array)
    }

    /// A time that was written by [`put_time`].
    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        Ok(Timestamp::from_micros(i64::from_le_bytes(self.array()?)))
    }

    /// Times that were written by [`put_times`].
    pub(crate) fn times(&mut self) -> Result<impl Iterator<Item = Result<Timestamp>> + use<'a>> {
        let count = u32::from_le_bytes(self.array()?) as usize;
        let bytes = count.checked_mul(8).and_then(|n| self.0.split_off(..n));
        let mut times = Rest(bytes.ok_or_else(cut_short)?);
        Ok((0..count).map(move |_| times.time()))
    }
}

/// Appends a time.
pub(crate) fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(&time.as_micros().to_le_bytes());
}

/// Appends times behind their number.
pub(crate) fn put_times(out: &mut Vec<u8>, times: impl Iterator<Item = Timestamp>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count: u32 = 0;
    for time in times {
        put_time(out, time);
        count += 1;
    }
    out[start..start + 4].copy_from_slice(&count.to_le_bytes());
}

/// The error for an entry that has come already.
pub(crate) fn twice() -> Error {
    Error::new(ErrorCode::BadRecord, "the state of a key comes back twice")
        .hint("start from another snapshot")
}

/// The error for an entry that is too short.
pub(crate) fn cut_short() -> Error {
    Error::new(ErrorCode::BadRecord, "an entry of state breaks off")
        .hint("start from another snapshot")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::test_codecs::EightBytes;

    #[test]
    fn a_key_that_belongs_elsewhere_than_it_was_kept_is_refused() {
        let kept = KeptAs::new(Arc::new(EightBytes), Arc::new(EightBytes));
        let mut chunk = StateChunk::default();
        kept.write(&mut chunk, &7, &70, |_| {}).unwrap();
        let written = chunk.entries().next().unwrap();
        let entry = |partition| RestoredEntry {
            state: written.state,
            partition: Some(partition),
            key: written.key,
            value: written.value.unwrap(),
        };
        let own = PartitionId::of(&7u64);
        let (key, state, _) = kept.read(&entry(own)).unwrap();
        assert_eq!((key, state), (7, 70));
        let other = PartitionId::from_index(own.index() ^ 1).unwrap();
        let error = kept.read(&entry(other)).err().unwrap();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(error.to_string().contains("canonical bytes"), "{error}");
    }
}
