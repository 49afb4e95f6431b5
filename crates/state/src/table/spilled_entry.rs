//! The layout of spilled keys on disk: each query is one lookup or one range scan.
//!
//! | kind | key | value |
//! |---|---|---|
//! | a key | `k`, its canonical bytes | its [header](EntryHeader), its value in a snapshot entry |
//! | a due time | `d`, the kind, the time, the key's bytes | nothing |
//! | a change | `g`, the generation, the key's bytes | a removal flag, the partition |
//!
//! Numbers are big-endian, so that byte order is numeric order. The sign bit of a time is inverted,
//! so that negative times come first.

use ardea_core::{Error, ErrorCode, PartitionId, Result};

const KEY: u8 = b'k';
const DUE: u8 = b'd';
const CHANGE: u8 = b'g';

/// The kinds of due times of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DueKind {
    /// An event timer, in microseconds.
    Event,
    /// A processing timer, in nanoseconds of the monotonic clock.
    Processing,
    /// The end of the time-to-live, in microseconds of event time.
    Expiry,
}

impl DueKind {
    pub(crate) const ALL: [DueKind; 3] = [DueKind::Event, DueKind::Processing, DueKind::Expiry];

    /// Returns the time in the disk key of a due time.
    pub(crate) fn time_in(key: &[u8]) -> Result<i64> {
        let time = key.get(2..).and_then(|rest| rest.first_chunk::<8>());
        time.map(|time| from_ordered(*time)).ok_or_else(broken)
    }

    /// Returns the canonical bytes in the disk key of a due time.
    pub(crate) fn key_in(key: &[u8]) -> Result<&[u8]> {
        key.get(10..).ok_or_else(broken)
    }
}

/// The first due time of each kind, if any.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DueTimes([Option<i64>; 3]);

impl DueTimes {
    /// Creates due times from the first due time of each kind.
    pub fn of(event: Option<i64>, processing: Option<i64>, expiry: Option<i64>) -> Self {
        DueTimes([event, processing, expiry])
    }

    pub(crate) fn get(&self, kind: DueKind) -> Option<i64> {
        self.0[kind as usize]
    }

    fn set(&mut self, kind: DueKind, time: Option<i64>) {
        self.0[kind as usize] = time;
    }
}

/// A lower bound of the due times of each kind, if there are any. Its entry may have been removed
/// from disk.
#[derive(Default, Debug)]
pub(crate) struct DueTimeBounds([Option<(i64, Vec<u8>)>; 3]);

impl DueTimeBounds {
    /// Returns the time, and the key's canonical bytes.
    pub(crate) fn get(&self, kind: DueKind) -> Option<(i64, &[u8])> {
        let first = self.0[kind as usize].as_ref();
        first.map(|(time, key)| (*time, &key[..]))
    }

    /// Sets the first due time of a kind from its disk key.
    pub(crate) fn set(&mut self, kind: DueKind, first: Option<&[u8]>) -> Result<()> {
        self.0[kind as usize] = match first {
            Some(first) => Some((DueKind::time_in(first)?, DueKind::key_in(first)?.to_vec())),
            None => None,
        };
        Ok(())
    }

    /// Lowers the first due time of `kind` to `time`, if `time` is earlier.
    pub(crate) fn lower(&mut self, kind: DueKind, time: i64, key: &[u8]) {
        if self.get(kind).is_none_or(|first| (time, key) < first) {
            self.0[kind as usize] = Some((time, key.to_vec()));
        }
    }
}

/// The header of a key, before its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryHeader {
    /// The generation of the last change.
    pub(crate) changed: u32,
    /// The generation in which the key was created.
    pub(crate) born: u32,
    pub(crate) partition: PartitionId,
    /// True if the key was removed and needs a tombstone.
    pub(crate) is_removed: bool,
    /// True if the key is in the list of changes.
    pub(crate) is_listed: bool,
    pub(crate) dues: DueTimes,
}

const REMOVED: u8 = 1;
const LISTED: u8 = 2;
/// The flag of the first kind of due time. The flags of the other kinds follow.
const HAS_DUE: u8 = 4;
const FIXED: usize = 11;

impl EntryHeader {
    /// The end of the range of keys.
    pub(crate) const END_OF_KEYS: [u8; 1] = [KEY + 1];

    /// Returns the serialized length in bytes.
    pub(crate) fn len(&self) -> usize {
        FIXED + 8 * self.dues.0.iter().flatten().count()
    }

    /// Serializes the header, followed by `value`.
    pub(crate) fn with(&self, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len() + value.len());
        let mut flags = 0;
        if self.is_removed {
            flags |= REMOVED;
        }
        if self.is_listed {
            flags |= LISTED;
        }
        for kind in DueKind::ALL {
            if self.dues.get(kind).is_some() {
                flags |= HAS_DUE << kind as u8;
            }
        }
        out.push(flags);
        out.extend_from_slice(&partition_bytes(self.partition));
        out.extend_from_slice(&self.changed.to_be_bytes());
        out.extend_from_slice(&self.born.to_be_bytes());
        for due in self.dues.0.iter().flatten() {
            out.extend_from_slice(&due.to_be_bytes());
        }
        out.extend_from_slice(value);
        out
    }

    /// Reads the header of an entry.
    pub(crate) fn read(entry: &[u8]) -> Result<EntryHeader> {
        let fixed = entry.first_chunk::<FIXED>().ok_or_else(broken)?;
        let [flags, p0, p1, c0, c1, c2, c3, b0, b1, b2, b3] = *fixed;
        let mut dues = DueTimes::default();
        let mut rest = &entry[FIXED..];
        for kind in DueKind::ALL {
            if flags & (HAS_DUE << kind as u8) != 0 {
                let (due, behind) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
                dues.set(kind, Some(i64::from_be_bytes(*due)));
                rest = behind;
            }
        }
        Ok(EntryHeader {
            changed: u32::from_be_bytes([c0, c1, c2, c3]),
            born: u32::from_be_bytes([b0, b1, b2, b3]),
            partition: partition([p0, p1])?,
            is_removed: flags & REMOVED != 0,
            is_listed: flags & LISTED != 0,
            dues,
        })
    }

    /// Returns the value of the key's entry in the list of changes.
    pub(crate) fn in_list(&self) -> Vec<u8> {
        let [p0, p1] = partition_bytes(self.partition);
        vec![u8::from(self.is_removed), p0, p1]
    }

    /// Returns the removal flag and the partition of an entry in the list of changes.
    pub(crate) fn from_list(value: &[u8]) -> Result<(bool, PartitionId)> {
        match *value {
            [is_removed, p0, p1] => Ok((is_removed != 0, partition([p0, p1])?)),
            _ => Err(broken()),
        }
    }

    /// Returns the canonical bytes in the disk key of a change.
    pub(crate) fn listed_key(key: &[u8]) -> Result<&[u8]> {
        key.get(5..).ok_or_else(broken)
    }
}

fn partition_bytes(partition: PartitionId) -> [u8; 2] {
    (partition.index() as u16).to_be_bytes()
}

fn partition(bytes: [u8; 2]) -> Result<PartitionId> {
    PartitionId::from_index(u16::from_be_bytes(bytes).into()).ok_or_else(broken)
}

/// Returns the disk key of a key.
pub(crate) fn key_of(key: &[u8]) -> Vec<u8> {
    [&[KEY][..], key].concat()
}

/// Returns the disk key of a due time.
pub(crate) fn due_key(kind: DueKind, time: i64, key: &[u8]) -> Vec<u8> {
    [&[DUE, kind as u8][..], &ordered(time)[..], key].concat()
}

/// Returns the end of the range of a kind's due times up to `until`; of all due times of the kind
/// without `until`.
pub(crate) fn due_end(kind: DueKind, until: Option<i64>) -> Vec<u8> {
    match until.and_then(|until| until.checked_add(1)) {
        Some(next) => due_key(kind, next, b""),
        None => vec![DUE, kind as u8 + 1],
    }
}

/// Returns the disk key of a change.
pub(crate) fn change_key(generation: u32, key: &[u8]) -> Vec<u8> {
    [&[CHANGE][..], &generation.to_be_bytes()[..], key].concat()
}

/// Returns the end of the range of changes up to a generation.
pub(crate) fn changes_until(generation: u32) -> Vec<u8> {
    match generation.checked_add(1) {
        Some(next) => change_key(next, b""),
        None => vec![CHANGE + 1],
    }
}

/// Encodes a time so that byte order is time order.
fn ordered(time: i64) -> [u8; 8] {
    (time as u64 ^ (1 << 63)).to_be_bytes()
}

fn from_ordered(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

fn broken() -> Error {
    let what = "the files in the folder of the job's state are not as Ardea wrote them";
    Error::new(ErrorCode::ReadFailed, what)
        .hint("check whether another program writes to state.folder")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_said_of_a_key_comes_back(
            numbers in any::<(u32, u32)>(),
            index in 0u32..ardea_core::PARTITION_COUNT,
            flags in any::<(bool, bool)>(),
            dues in any::<[Option<i64>; 3]>(),
            value in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let head = EntryHeader {
                changed: numbers.0,
                born: numbers.1,
                partition: PartitionId::from_index(index).unwrap(),
                is_removed: flags.0,
                is_listed: flags.1,
                dues: DueTimes(dues),
            };
            let entry = head.with(&value);
            prop_assert_eq!(&EntryHeader::read(&entry).unwrap(), &head);
            prop_assert_eq!(&entry[head.len()..], &value);
            prop_assert_eq!(EntryHeader::from_list(&head.in_list()).unwrap(), (flags.0, head.partition));
        }

        #[test]
        fn what_is_due_lies_in_order_of_time_and_within_its_range(
            a in any::<i64>(), b in any::<i64>(), key in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let (of_a, of_b) = (due_key(DueKind::Event, a, &key), due_key(DueKind::Event, b, &key));
            prop_assert_eq!(a.cmp(&b), of_a.cmp(&of_b));
            prop_assert_eq!(a <= b, of_a < due_end(DueKind::Event, Some(b)));
            prop_assert!(due_key(DueKind::Event, a, b"") <= of_a && of_a < due_end(DueKind::Event, None));
            prop_assert_eq!(DueKind::time_in(&of_a).unwrap(), a);
            prop_assert_eq!(DueKind::key_in(&of_a).unwrap(), &key[..]);
        }

        #[test]
        fn changes_lie_in_order_of_generations(a in any::<u32>(), b in any::<u32>(), key in any::<[u8; 3]>()) {
            prop_assert_eq!(a <= b, change_key(a, &key) < changes_until(b));
        }
    }
}
