//! How keys lie on disk, so that each question is one look-up or one range.
//!
//! | kind | key | value |
//! |---|---|---|
//! | a key | `k`, its canonical bytes | what is [said](Head) of it, its value in an entry of a cut |
//! | something due | `d`, the kind, the time, the key's bytes | nothing |
//! | a change | `g`, the generation, the key's bytes | whether it was a removal, the partition |
//!
//! Numbers are big-endian, so that their order is that of the bytes; a time's sign is turned round for that.

use ardea_core::{Error, ErrorCode, PartitionId, Result};

const KEY: u8 = b'k';
const DUE: u8 = b'd';
const CHANGE: u8 = b'g';

/// What can fall due for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// A timer of event time, in microseconds.
    Event,
    /// A timer of the machine's clock, in nanoseconds of that.
    Processing,
    /// The end of the time for which it is remembered, in microseconds of event time.
    Expiry,
}

impl Due {
    pub(super) const ALL: [Due; 3] = [Due::Event, Due::Processing, Due::Expiry];

    /// The time in the key of something due.
    pub(super) fn time_in(key: &[u8]) -> Result<i64> {
        let time = key.get(2..).and_then(|rest| rest.first_chunk::<8>());
        time.map(|time| from_ordered(*time)).ok_or_else(broken)
    }

    /// The canonical bytes in the key of something due.
    pub(super) fn key_in(key: &[u8]) -> Result<&[u8]> {
        key.get(10..).ok_or_else(broken)
    }
}

/// Of each kind when the first falls due, if something does.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Dues([Option<i64>; 3]);

impl Dues {
    /// These.
    pub(crate) fn of(event: Option<i64>, processing: Option<i64>, expiry: Option<i64>) -> Self {
        Dues([event, processing, expiry])
    }

    pub(super) fn get(&self, kind: Due) -> Option<i64> {
        self.0[kind as usize]
    }

    fn set(&mut self, kind: Due, time: Option<i64>) {
        self.0[kind as usize] = time;
    }
}

/// Of each kind what falls due first, if something does: nothing lies before that, but that itself may be gone.
#[derive(Default, Debug)]
pub(super) struct Firsts([Option<(i64, Vec<u8>)>; 3]);

impl Firsts {
    /// The time, and the key's canonical bytes.
    pub(super) fn get(&self, kind: Due) -> Option<(i64, &[u8])> {
        let first = self.0[kind as usize].as_ref();
        first.map(|(time, key)| (*time, &key[..]))
    }

    /// It is the one with this key.
    pub(super) fn set(&mut self, kind: Due, first: Option<&[u8]>) -> Result<()> {
        self.0[kind as usize] = match first {
            Some(first) => Some((Due::time_in(first)?, Due::key_in(first)?.to_vec())),
            None => None,
        };
        Ok(())
    }

    /// It is this one, if that is not later.
    pub(super) fn lower(&mut self, kind: Due, time: i64, key: &[u8]) {
        if self.get(kind).is_none_or(|first| (time, key) < first) {
            self.0[kind as usize] = Some((time, key.to_vec()));
        }
    }
}

/// What is said of a key, before its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// The generation in which it was changed last.
    pub(super) changed: u32,
    /// The generation in which it came.
    pub(super) born: u32,
    pub(super) partition: PartitionId,
    /// It has been removed, which has to be told of.
    pub(super) is_removed: bool,
    /// It is listed among the changes.
    pub(super) is_listed: bool,
    pub(super) dues: Dues,
}

const REMOVED: u8 = 1;
const LISTED: u8 = 2;
/// Of the first kind of what can fall due; those of the others follow.
const HAS_DUE: u8 = 4;
const FIXED: usize = 11;

impl Head {
    /// Behind all keys.
    pub(super) const END_OF_KEYS: [u8; 1] = [KEY + 1];

    /// How many bytes it takes.
    pub(super) fn len(&self) -> usize {
        FIXED + 8 * self.dues.0.iter().flatten().count()
    }

    /// It, and the value behind it.
    pub(super) fn with(&self, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len() + value.len());
        let mut flags = 0;
        if self.is_removed {
            flags |= REMOVED;
        }
        if self.is_listed {
            flags |= LISTED;
        }
        for kind in Due::ALL {
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

    /// What an entry begins with.
    pub(super) fn read(entry: &[u8]) -> Result<Head> {
        let fixed = entry.first_chunk::<FIXED>().ok_or_else(broken)?;
        let [flags, p0, p1, c0, c1, c2, c3, b0, b1, b2, b3] = *fixed;
        let mut dues = Dues::default();
        let mut rest = &entry[FIXED..];
        for kind in Due::ALL {
            if flags & (HAS_DUE << kind as u8) != 0 {
                let (due, behind) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
                dues.set(kind, Some(i64::from_be_bytes(*due)));
                rest = behind;
            }
        }
        Ok(Head {
            changed: u32::from_be_bytes([c0, c1, c2, c3]),
            born: u32::from_be_bytes([b0, b1, b2, b3]),
            partition: partition([p0, p1])?,
            is_removed: flags & REMOVED != 0,
            is_listed: flags & LISTED != 0,
            dues,
        })
    }

    /// The value of its entry in the list of changes.
    pub(super) fn in_list(&self) -> Vec<u8> {
        let [p0, p1] = partition_bytes(self.partition);
        vec![u8::from(self.is_removed), p0, p1]
    }

    /// Of an entry in the list of changes whether it was a removal, and the partition.
    pub(super) fn from_list(value: &[u8]) -> Result<(bool, PartitionId)> {
        match *value {
            [is_removed, p0, p1] => Ok((is_removed != 0, partition([p0, p1])?)),
            _ => Err(broken()),
        }
    }

    /// The canonical bytes in the key of a change.
    pub(super) fn listed_key(key: &[u8]) -> Result<&[u8]> {
        key.get(5..).ok_or_else(broken)
    }
}

fn partition_bytes(partition: PartitionId) -> [u8; 2] {
    (partition.index() as u16).to_be_bytes()
}

fn partition(bytes: [u8; 2]) -> Result<PartitionId> {
    PartitionId::from_index(u16::from_be_bytes(bytes).into()).ok_or_else(broken)
}

/// Where a key lies.
pub(super) fn key_of(key: &[u8]) -> Vec<u8> {
    [&[KEY][..], key].concat()
}

/// Where it lies that a key has something due.
pub(super) fn due_key(kind: Due, time: i64, key: &[u8]) -> Vec<u8> {
    [&[DUE, kind as u8][..], &ordered(time)[..], key].concat()
}

/// Behind everything of a kind that is due until a time, or behind all of it.
pub(super) fn due_end(kind: Due, until: Option<i64>) -> Vec<u8> {
    match until.and_then(|until| until.checked_add(1)) {
        Some(next) => due_key(kind, next, b""),
        None => vec![DUE, kind as u8 + 1],
    }
}

/// Where it lies that a key has changed.
pub(super) fn change_key(generation: u32, key: &[u8]) -> Vec<u8> {
    [&[CHANGE][..], &generation.to_be_bytes()[..], key].concat()
}

/// Behind all changes up to a generation.
pub(super) fn changes_until(generation: u32) -> Vec<u8> {
    match generation.checked_add(1) {
        Some(next) => change_key(next, b""),
        None => vec![CHANGE + 1],
    }
}

/// A time as bytes that are in order of time.
fn ordered(time: i64) -> [u8; 8] {
    (time as u64 ^ (1 << 63)).to_be_bytes()
}

fn from_ordered(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

fn broken() -> Error {
    let what = "what lies in the folder of the job's state is not what was put there";
    Error::new(ErrorCode::ReadFailed, what)
        .hint("look whether something else writes to state.folder")
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
            let head = Head {
                changed: numbers.0,
                born: numbers.1,
                partition: PartitionId::from_index(index).unwrap(),
                is_removed: flags.0,
                is_listed: flags.1,
                dues: Dues(dues),
            };
            let entry = head.with(&value);
            prop_assert_eq!(&Head::read(&entry).unwrap(), &head);
            prop_assert_eq!(&entry[head.len()..], &value);
            prop_assert_eq!(Head::from_list(&head.in_list()).unwrap(), (flags.0, head.partition));
        }

        #[test]
        fn what_is_due_lies_in_order_of_time_and_within_its_range(
            a in any::<i64>(), b in any::<i64>(), key in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let (of_a, of_b) = (due_key(Due::Event, a, &key), due_key(Due::Event, b, &key));
            prop_assert_eq!(a.cmp(&b), of_a.cmp(&of_b));
            prop_assert_eq!(a <= b, of_a < due_end(Due::Event, Some(b)));
            prop_assert!(due_key(Due::Event, a, b"") <= of_a && of_a < due_end(Due::Event, None));
            prop_assert_eq!(Due::time_in(&of_a).unwrap(), a);
            prop_assert_eq!(Due::key_in(&of_a).unwrap(), &key[..]);
        }

        #[test]
        fn changes_lie_in_order_of_generations(a in any::<u32>(), b in any::<u32>(), key in any::<[u8; 3]>()) {
            prop_assert_eq!(a <= b, change_key(a, &key) < changes_until(b));
        }
    }
}
