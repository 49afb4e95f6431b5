//! Serialization of the buffered records of an interval join.

use std::sync::Arc;

use ardea_core::{
    Error, ErrorCode, Key, PartitionId, RestoredEntry, RestoredState, Result, StateChunk,
    StateCodec, StateShape,
};
use ardea_state::{ValueReader, put_time, truncated_entry};

use crate::join::join_buffers::{BufferedRecord, Stamp};

/// The names of the checkpointed states of both sides.
const LEFT: &str = "left";
const RIGHT: &str = "right";

/// A record of either side.
#[derive(Clone, Copy)]
pub(crate) enum Side<L, R> {
    Left(L),
    Right(R),
}

/// A buffered record of either side.
pub(crate) type At<'a, L, R> = Side<&'a BufferedRecord<L>, &'a BufferedRecord<R>>;

/// A restored record of either side.
pub(crate) type Restored<L, R> = Side<BufferedRecord<L>, BufferedRecord<R>>;

impl<L, R> At<'_, L, R> {
    pub(super) fn stamp(&self) -> Stamp {
        match self {
            Side::Left(waiting) => waiting.stamp,
            Side::Right(waiting) => waiting.stamp,
        }
    }

    fn state(&self) -> &'static str {
        match self {
            Side::Left(_) => LEFT,
            Side::Right(_) => RIGHT,
        }
    }
}

/// The serializers of the records of both sides.
///
/// Each record is one entry, so that an increment contains the records that were added, matched for
/// the first time, or removed. The entry's key is the canonical bytes of the record's key, followed
/// by its stamp in eight bytes. The value is the time, the matched flag, and the record.
pub(crate) struct JoinStateCodec<L, R> {
    pub(super) left: Arc<dyn StateCodec<L>>,
    pub(super) right: Arc<dyn StateCodec<R>>,
}

impl<L, R> Clone for JoinStateCodec<L, R> {
    fn clone(&self) -> Self {
        JoinStateCodec {
            left: Arc::clone(&self.left),
            right: Arc::clone(&self.right),
        }
    }
}

impl<L, R> JoinStateCodec<L, R> {
    /// Returns the shapes of both states.
    pub(super) fn shapes(&self) -> [StateShape; 2] {
        [
            StateShape::of_values(LEFT, None, self.left.schema()),
            StateShape::of_values(RIGHT, None, self.right.schema()),
        ]
    }

    /// Appends the entry of a record.
    pub(super) fn write<K: Key>(
        &self,
        chunk: &mut StateChunk,
        key: &K,
        at: At<'_, L, R>,
    ) -> Result<()> {
        let put_key = put_key(key, at.stamp());
        let partition = Some(PartitionId::of(key));
        chunk.write(at.state(), partition, put_key, |out| match at {
            Side::Left(waiting) => {
                put_head(out, waiting);
                self.left.put(&waiting.record, out)
            }
            Side::Right(waiting) => {
                put_head(out, waiting);
                self.right.put(&waiting.record, out)
            }
        })
    }

    /// Returns the record of an entry, and the canonical bytes of its key.
    pub(super) fn read<'a>(&self, entry: &RestoredEntry<'a>) -> Result<(&'a [u8], Restored<L, R>)> {
        let (canonical, stamp) = read_key(entry.key)?;
        let mut rest = ValueReader::of(entry.value);
        let time = rest.time()?;
        let [has_met] = rest.array()?;
        let matched = if has_met == 0 { 0 } else { stamp.generation };
        let record = rest.bytes();
        let waiting = match entry.state {
            LEFT => Side::Left(BufferedRecord {
                record: self.left.get(record)?,
                time,
                stamp,
                matched,
            }),
            RIGHT => Side::Right(BufferedRecord {
                record: self.right.get(record)?,
                time,
                stamp,
                matched,
            }),
            _ => return Err(RestoredState::unknown(entry)),
        };
        Ok((canonical, waiting))
    }
}

/// Checks that a record has the key under which it was stored.
pub(super) fn check_key<K: Key>(key: &K, canonical: &[u8]) -> Result<()> {
    let mut bytes = Vec::with_capacity(canonical.len());
    key.write_to(&mut bytes);
    if bytes == canonical {
        return Ok(());
    }
    let what = "a buffered record of an interval join has another key than in the checkpoint";
    Err(Error::new(ErrorCode::InvalidJob, what)
        .hint("start the job as it was when the checkpoint was taken, or without the checkpoint"))
}

/// Appends the removal of a record.
pub(super) fn write_tombstone<K: Key, L, R>(
    chunk: &mut StateChunk,
    key: &K,
    at: &At<'_, L, R>,
) -> Result<()> {
    let partition = Some(PartitionId::of(key));
    chunk.write_removed(at.state(), partition, put_key(key, at.stamp()))
}

/// Returns the stamp in an entry's key.
pub(super) fn stamp_of(entry_key: &[u8]) -> Option<Stamp> {
    read_key(entry_key).ok().map(|(_, stamp)| stamp)
}

fn put_key<K: Key>(key: &K, stamp: Stamp) -> impl FnOnce(&mut Vec<u8>) -> Result<()> {
    move |out| {
        key.write_to(out);
        out.extend_from_slice(&stamp.generation.to_be_bytes());
        out.extend_from_slice(&stamp.number.to_be_bytes());
        Ok(())
    }
}

/// Returns the canonical bytes of a record's key, and its stamp.
fn read_key(entry_key: &[u8]) -> Result<(&[u8], Stamp)> {
    let (rest, number) = entry_key.split_last_chunk().ok_or_else(truncated_entry)?;
    let (canonical, generation) = rest.split_last_chunk().ok_or_else(truncated_entry)?;
    let stamp = Stamp {
        generation: u32::from_be_bytes(*generation),
        number: u32::from_be_bytes(*number),
    };
    Ok((canonical, stamp))
}

fn put_head<T>(out: &mut Vec<u8>, waiting: &BufferedRecord<T>) {
    put_time(out, waiting.time);
    out.push(u8::from(waiting.matched > 0));
}
