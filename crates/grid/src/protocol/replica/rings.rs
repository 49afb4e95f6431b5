//! Rings: values with consecutive numbers, appended at the end and removed from the front.
//!
//! A ring consists of entries of a separate map, all in one partition: each value under its
//! number, in eight bytes; and under a shorter key the *ends*, the number of the first value and
//! that of the next one. The effect of an operation is a single change, so that no replica ever has
//! a part of it.

use bytes::Bytes;

use super::Replica;
use crate::protocol::operation::{Answer, Change, MapId, WhenFull, own};
use crate::protocol::store::NEVER;

/// Key of the ends.
const ENDS: &[u8] = b"ends";

/// Maximum number of values removed by one append if the ring has more than its capacity; the rest
/// is removed later.
const MOST_GONE: u64 = 64;

/// Bounds of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Ends {
    first: u64,
    next: u64,
}

impl Ends {
    fn read(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        Ends {
            first: number(0),
            next: number(8),
        }
    }

    fn set(self, ring: MapId) -> Change {
        let ends = [self.first.to_le_bytes(), self.next.to_le_bytes()];
        set(
            ring,
            Bytes::from_static(ENDS),
            Bytes::copy_from_slice(ends.as_flattened()),
        )
    }
}

fn key_of(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_le_bytes())
}

fn set(map: MapId, key: Bytes, value: Bytes) -> Change {
    Change::Set {
        map,
        key,
        value,
        expires: NEVER,
    }
}

impl Replica {
    /// Returns the change that appends a value, if there is room, and the answer.
    pub(super) fn appending(
        &self,
        ring: MapId,
        value: Bytes,
        (capacity, full): (u64, WhenFull),
    ) -> (Option<Change>, Answer) {
        let Ends { first, next } = self.latest_ends(ring);
        let excess = (next - first + 1).saturating_sub(capacity);
        if excess > 0 && (full == WhenFull::Refuse || capacity == 0) {
            return (None, Answer::Place(None));
        }
        let (gone, first) = (
            first..first + excess.min(MOST_GONE),
            first + excess.min(MOST_GONE),
        );
        let ends = Ends {
            first,
            next: next + 1,
        };
        let mut parts = vec![set(ring, key_of(next), value), ends.set(ring)];
        parts.extend(gone.map(|number| removed(ring, number)));
        (
            Some(Change::Together(ring, parts)),
            Answer::Place(Some(next)),
        )
    }

    /// Returns the change that removes the first value, and the answer.
    pub(super) fn taking(&self, ring: MapId) -> (Option<Change>, Answer) {
        let Ends { first, next } = self.latest_ends(ring);
        if first == next {
            return (None, Answer::Value(None));
        }
        let value = self.latest_entry(ring, &first.to_le_bytes());
        let ends = Ends {
            first: first + 1,
            next,
        };
        let parts = vec![ends.set(ring), removed(ring, first)];
        (Some(Change::Together(ring, parts)), Answer::Value(value))
    }

    /// Reads settled values from a number on.
    pub(super) fn run(&self, ring: MapId, from: u64, bytes: u32) -> Answer {
        let ends = self.store.get(ring, ENDS);
        let Ends { first, next } = ends.map_or(Ends::default(), |it| Ends::read(it.value));
        let from = from.clamp(first, next);
        let (mut sum, mut values) = (0, Vec::new());
        for number in from..next {
            let Some(entry) = self.store.get(ring, &number.to_le_bytes()) else {
                break;
            };
            sum += entry.value.len();
            if sum > bytes as usize && !values.is_empty() {
                break;
            }
            values.push(entry.to_bytes());
        }
        Answer::Run { from, values, next }
    }

    /// Returns the ends after all changes in the log.
    fn latest_ends(&self, ring: MapId) -> Ends {
        let ends = self.latest_entry(ring, ENDS);
        ends.map_or(Ends::default(), |ends| Ends::read(&ends))
    }

    fn latest_entry(&self, ring: MapId, key: &[u8]) -> Option<Bytes> {
        match self.log.latest(self.applied, ring, key) {
            Some(effect) => effect.map(|(value, _)| own(&value)),
            None => self.store.get(ring, key).map(|entry| entry.to_bytes()),
        }
    }
}

fn removed(map: MapId, number: u64) -> Change {
    let key = key_of(number);
    Change::Remove { map, key }
}
