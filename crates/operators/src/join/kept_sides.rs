//! How the records that wait in an interval join are written where they have to survive it.

use std::sync::Arc;

use ardea_core::{
    Error, ErrorCode, Key, PartitionId, RestoredEntry, RestoredState, Result, StateChunk,
    StateCodec, StateShape,
};

use crate::join::sides::{Stamp, Waiting};
use crate::keyed::{Rest, cut_short, put_time};

/// The names of the states.
const LEFT: &str = "left";
const RIGHT: &str = "right";

/// A record of either side.
#[derive(Clone, Copy)]
pub(crate) enum Side<L, R> {
    Left(L),
    Right(R),
}

/// A record that waits, as it lies in its side.
pub(crate) type At<'a, L, R> = Side<&'a Waiting<L>, &'a Waiting<R>>;

/// A record that comes back.
pub(crate) type Restored<L, R> = Side<Waiting<L>, Waiting<R>>;

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

/// How records of both sides are written.
///
/// Each is an entry of its own, so that an increment holds those that came, met another first, or went. Its key is the canonical bytes of
/// its key and then its stamp, in eight bytes; its value its time, whether it has met another, and itself.
pub(crate) struct KeptSides<L, R> {
    pub(super) left: Arc<dyn StateCodec<L>>,
    pub(super) right: Arc<dyn StateCodec<R>>,
}

impl<L, R> Clone for KeptSides<L, R> {
    fn clone(&self) -> Self {
        KeptSides {
            left: Arc::clone(&self.left),
            right: Arc::clone(&self.right),
        }
    }
}

impl<L, R> KeptSides<L, R> {
    /// What both states look like.
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

    /// The record of an entry, and the canonical bytes of its key.
    pub(super) fn read<'a>(&self, entry: &RestoredEntry<'a>) -> Result<(&'a [u8], Restored<L, R>)> {
        let (canonical, stamp) = read_key(entry.key)?;
        let mut rest = Rest::of(entry.value);
        let time = rest.time()?;
        let [has_met] = rest.array()?;
        let matched = if has_met == 0 { 0 } else { stamp.generation };
        let record = rest.bytes();
        let waiting = match entry.state {
            LEFT => Side::Left(Waiting {
                record: self.left.get(record)?,
                time,
                stamp,
                matched,
            }),
            RIGHT => Side::Right(Waiting {
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

/// Checks that a record has the key under which it was kept.
pub(super) fn check_key<K: Key>(key: &K, canonical: &[u8]) -> Result<()> {
    let mut bytes = Vec::with_capacity(canonical.len());
    key.write_to(&mut bytes);
    if bytes == canonical {
        return Ok(());
    }
    let what = "a record that waits for others has another key than when it was kept";
    Err(Error::new(ErrorCode::InvalidJob, what)
        .hint("start the job as it was when the snapshot was taken, or without the snapshot"))
}

/// Appends that a record is not there any more.
pub(super) fn write_gone<K: Key, L, R>(
    chunk: &mut StateChunk,
    key: &K,
    at: &At<'_, L, R>,
) -> Result<()> {
    let partition = Some(PartitionId::of(key));
    chunk.write_removed(at.state(), partition, put_key(key, at.stamp()))
}

/// When the record had come whose entry has this key.
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

/// The canonical bytes of a record's key, and its stamp.
fn read_key(entry_key: &[u8]) -> Result<(&[u8], Stamp)> {
    let (rest, number) = entry_key.split_last_chunk().ok_or_else(cut_short)?;
    let (canonical, generation) = rest.split_last_chunk().ok_or_else(cut_short)?;
    let stamp = Stamp {
        generation: u32::from_be_bytes(*generation),
        number: u32::from_be_bytes(*number),
    };
    Ok((canonical, stamp))
}

fn put_head<T>(out: &mut Vec<u8>, waiting: &Waiting<T>) {
    put_time(out, waiting.time);
    out.push(u8::from(waiting.matched > 0));
}
