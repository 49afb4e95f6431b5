//! The format of packs: one snapshot entry with the accumulators of many keys of a partition.
//!
//! The key of an entry is the *sequence* of its snapshot (eight bytes) and the number of the pack
//! within the partition and snapshot (four bytes), both big-endian. The state of a partition is the
//! union of its packs in order of their sequences; later ones override earlier ones.
//!
//! The value begins with [`MARK`] and the version. Then come groups, one per table of a slice: a
//! zero, the distance of the slice from that of the previous group, and twice the table number,
//! plus one if the table is pending. Keys with their accumulators follow.
//!
//! An explicit key is preceded by a one and by the kind of the key plus nine times the kind of the
//! accumulator. An integer kind is followed by its magnitude. Kind zero is followed by the length
//! and the bytes written by the codec. Entries with explicit keys are numbered from zero. A later
//! entry of the same key refers to such an entry by its number plus two. The accumulator then has
//! the same kind. An integer is written as the difference of its magnitude from the last one under
//! that number, modulo 2⁶⁴. A key may occur several times in a pack under several numbers. Numbers
//! are LEB128.

mod earlier;

use ardea_core::{Error, ErrorCode, Integer, IntegerType, Key, RestoredEntry, Result};

use super::SliceId;
use ardea_state::{SerializedPart, StateCodecs, ValueReader, truncated_entry};

/// The marker at the start of a pack. Entries of single keys, as written before there were packs,
/// begin with a length, which never has this value.
const MARK: [u8; 4] = [u8::MAX; 4];
/// The version of the format.
const VERSION: u8 = 3;
/// Earlier versions.
const FIRST_VERSION: u8 = 1;
const SECOND_VERSION: u8 = 2;
/// The number of kinds of keys and accumulators: codec bytes, and each integer type.
const KINDS: u8 = 1 + IntegerType::ALL.len() as u8;
/// The length of an entry's key in bytes.
const PLACE_BYTES: usize = 12;

/// The prefixes of entries: the start of a group, an explicit key, and the lowest reference to an
/// earlier key.
const GROUP: u64 = 0;
const FIRST: u64 = 1;
const REFERENCE: u64 = 2;

/// The slice and table of an entry, and whether the table is pending: emitted windows do not
/// contain its records yet.
pub(super) type Group = (SliceId, bool);

/// Appends an entry with an explicit key, preceded by the header if it is the first of its pack,
/// and by a group start if its table differs. Returns the kind of the accumulator, and its integer,
/// if it is one.
pub(super) fn put_entry<K: Key, A>(
    out: &mut Vec<u8>,
    (is_first, group): (bool, Option<Group>),
    kept: &StateCodecs<K, A>,
    (of, key, acc): (Group, &K, &A),
) -> Result<(u8, Option<Integer>)> {
    put_before(out, (is_first, group), of);
    put_number(out, FIRST);
    let kinds = out.len();
    out.push(0);
    let key_kind = match kept.integer_key(key) {
        Some(integer) => put_integer(out, integer),
        None => put_measured(out, |out| kept.put_bare_key(key, out))?,
    };
    let integer = kept.integer_state(acc);
    let acc_kind = match integer {
        Some(integer) => put_integer(out, integer),
        None => put_measured(out, |out| kept.put_bare_state(acc, out))?,
    };
    out[kinds] = key_kind + KINDS * acc_kind;
    Ok((acc_kind, integer))
}

/// Appends an entry that refers to the key with this number, with an accumulator written by the
/// codec.
pub(super) fn put_reference<K: Key, A>(
    out: &mut Vec<u8>,
    group: Option<Group>,
    kept: &StateCodecs<K, A>,
    (of, number, acc): (Group, u32, &A),
) -> Result<()> {
    put_before(out, (false, group), of);
    put_number(out, REFERENCE + u64::from(number));
    put_measured(out, |out| kept.put_bare_state(acc, out)).map(drop)
}

/// The maximum size of a small entry in bytes.
pub(super) const SMALL_BYTES: usize = 2 * 10;

/// Writes an entry of the current group to the front of `out`: a reference to the key with this
/// number, with an integer accumulator of the same type whose last magnitude was `before`. Returns
/// the length.
#[inline]
pub(super) fn put_small(
    out: &mut [u8; SMALL_BYTES],
    number: u32,
    (before, now): (u64, u64),
) -> usize {
    let distance = Integer::from(now.wrapping_sub(before) as i64).magnitude();
    let mut at = 0;
    for mut left in [REFERENCE + u64::from(number), distance] {
        while left >= 0x80 {
            out[at] = left as u8 | 0x80;
            left >>= 7;
            at += 1;
        }
        out[at] = left as u8;
        at += 1;
    }
    at
}

/// Appends the header of a pack before its first entry, and the start of a new group.
pub(super) fn put_before(out: &mut Vec<u8>, (is_first, group): (bool, Option<Group>), of: Group) {
    if is_first {
        out.extend_from_slice(&MARK);
        out.push(VERSION);
    }
    if group != Some(of) {
        let ((slice, number), is_pending) = of;
        let before = group.map_or(0, |((slice, _), _)| slice);
        put_number(out, GROUP);
        put_number(out, Integer::from(slice.wrapping_sub(before)).magnitude());
        put_number(out, u64::from(number) << 1 | u64::from(is_pending));
    }
}

/// Returns the sequence and number of a pack; `None` for an entry of a single key in the oldest
/// format.
pub(crate) fn place_of(entry: &RestoredEntry<'_>) -> Result<Option<(u64, u32)>> {
    if !entry.value.starts_with(&MARK) {
        return Ok(None);
    }
    let place = <[u8; PLACE_BYTES]>::try_from(entry.key).map_err(|_| truncated_entry())?;
    let mut rest = ValueReader::of(&place);
    let sequence = u64::from_be_bytes(rest.array()?);
    Ok(Some((sequence, u32::from_be_bytes(rest.array()?))))
}

/// Passes the entries of a pack to `take`: the slice, table number and pending flag, the key and
/// the accumulator.
///
/// # Errors
/// Those of `take`; the pack is truncated or of a later version.
pub(crate) fn unpack<K: Key, A>(
    kept: &StateCodecs<K, A>,
    entry: &RestoredEntry<'_>,
    mut take: impl FnMut(Group, K, A) -> Result<()>,
) -> Result<()> {
    let mut rest = ValueReader::of(entry.value);
    let [_, _, _, _, version] = rest.array()?;
    if ![FIRST_VERSION, SECOND_VERSION, VERSION].contains(&version) {
        let what = format!("slices are in format version {version}, which is not supported here");
        return Err(Error::new(ErrorCode::BadRecord, what)
            .hint("a later version of Ardea wrote them: use that version"));
    }
    let (mut group, mut known) = (None, Vec::new());
    while !rest.is_empty() {
        let read = match version {
            FIRST_VERSION => earlier::first(&mut rest)?,
            SECOND_VERSION => earlier::second(&mut rest, group)?,
            _ => read(&mut rest, group, &mut known)?,
        };
        match read {
            Read::Group(of) => group = Some(of),
            Read::Entry(key, acc) => {
                let (key, acc) = kept.get((key, acc), entry.partition)?;
                take(group.ok_or_else(truncated_entry)?, key, acc)?;
            }
        }
    }
    Ok(())
}

/// The next item of a pack.
enum Read<'a> {
    /// The start of a group.
    Group(Group),
    /// A key and its accumulator.
    Entry(SerializedPart<'a>, SerializedPart<'a>),
}

/// Reads the next item. `known` has the keys of the pack so far, with their last accumulators.
fn read<'a>(
    rest: &mut ValueReader<'a>,
    group: Option<Group>,
    known: &mut Vec<(SerializedPart<'a>, SerializedPart<'a>)>,
) -> Result<Read<'a>> {
    match take_number(rest)? {
        GROUP => take_group(rest, group),
        FIRST => {
            let [kinds] = rest.array()?;
            let key = take_part(rest, kinds % KINDS)?;
            let entry = (key, take_part(rest, kinds / KINDS)?);
            known.push(entry);
            Ok(Read::Entry(entry.0, entry.1))
        }
        again => {
            let number = usize::try_from(again - REFERENCE).map_err(|_| truncated_entry())?;
            let (key, acc) = known.get_mut(number).ok_or_else(truncated_entry)?;
            *acc = match *acc {
                SerializedPart::Bytes(_) => take_part(rest, 0)?,
                SerializedPart::Integer(before) => {
                    let distance = take_integer(rest, IntegerType::I64)?.value();
                    let magnitude = before.magnitude().wrapping_add(distance);
                    let now = Integer::new(before.of(), magnitude);
                    SerializedPart::Integer(now.ok_or_else(truncated_entry)?)
                }
            };
            Ok(Read::Entry(*key, *acc))
        }
    }
}

fn take_group<'a>(rest: &mut ValueReader<'a>, group: Option<Group>) -> Result<Read<'a>> {
    let before = group.map_or(0, |((slice, _), _)| slice);
    let distance = take_integer(rest, IntegerType::I64)?.value() as i64;
    let table = take_number(rest)?;
    let number = u32::try_from(table >> 1).map_err(|_| truncated_entry())?;
    let slice = before.wrapping_add(distance);
    Ok(Read::Group(((slice, number), table & 1 == 1)))
}

fn take_part<'a>(rest: &mut ValueReader<'a>, kind: u8) -> Result<SerializedPart<'a>> {
    if kind == 0 {
        let length = usize::try_from(take_number(rest)?).map_err(|_| truncated_entry())?;
        return rest.bytes_of(length).map(SerializedPart::Bytes);
    }
    let of = IntegerType::from_number(kind).ok_or_else(truncated_entry)?;
    take_integer(rest, of).map(SerializedPart::Integer)
}

/// Returns the key of a pack's entry.
pub(crate) fn place(sequence: u64, number: u32) -> [u8; PLACE_BYTES] {
    let mut place = [0; PLACE_BYTES];
    place[..8].copy_from_slice(&sequence.to_be_bytes());
    place[8..].copy_from_slice(&number.to_be_bytes());
    place
}

/// Appends an integer, and returns its kind.
#[inline]
fn put_integer(out: &mut Vec<u8>, integer: Integer) -> u8 {
    put_number(out, integer.magnitude());
    integer.of() as u8
}

/// Appends the output of `put`, preceded by its length, and returns its kind.
fn put_measured(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<u8> {
    let start = out.len();
    put(out)?;
    let end = out.len();
    put_number(out, (end - start) as u64);
    let by = out.len() - end;
    out[start..].rotate_right(by);
    Ok(0)
}

#[inline]
fn put_number(out: &mut Vec<u8>, mut left: u64) {
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

fn take_integer(rest: &mut ValueReader<'_>, of: IntegerType) -> Result<Integer> {
    Integer::new(of, take_number(rest)?).ok_or_else(truncated_entry)
}

fn take_number(rest: &mut ValueReader<'_>) -> Result<u64> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let [byte] = rest.array()?;
        let bits = u64::from(byte & 0x7f);
        if shift > 63 || (bits << shift) >> shift != bits {
            return Err(truncated_entry());
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Ok(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_state::testing::EvenIntegers;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn kept() -> StateCodecs<i64, i64> {
        StateCodecs::new(Arc::new(EvenIntegers), Arc::new(EvenIntegers))
    }

    fn entry(value: &[u8]) -> RestoredEntry<'_> {
        RestoredEntry {
            state: "s",
            partition: None,
            key: &[0; PLACE_BYTES],
            value,
        }
    }

    proptest! {
        #[test]
        fn accumulators_of_a_key_that_stands_there_come_back(
            first in any::<i64>(), accs in prop::collection::vec(any::<i64>(), 0..9), before in 0i64..9,
        ) {
            let (of, first) = (((7, 0), false), first & !1);
            let mut value = Vec::new();
            let mut group = None;
            for key in 0..=before {
                let entry = (of, &(2 * key), &first);
                put_entry(&mut value, (group.is_none(), group), &kept(), entry).unwrap();
                group = Some(of);
            }
            let mut last = Integer::from(first).magnitude();
            let accs: Vec<i64> = accs.into_iter().map(|acc| acc & !1).collect();
            for acc in &accs {
                let (now, mut small) = (Integer::from(*acc).magnitude(), [0; SMALL_BYTES]);
                let bytes = put_small(&mut small, before as u32, (last, now));
                value.extend_from_slice(&small[..bytes]);
                last = now;
            }
            let mut read = Vec::new();
            let take = |_, key, acc| {
                read.push((key, acc));
                Ok(())
            };
            unpack(&kept(), &entry(&value), take).unwrap();
            let all = (0..=before).map(|key| (2 * key, first)).chain(accs.into_iter().map(|acc| (2 * before, acc)));
            prop_assert_eq!(read, all.collect::<Vec<_>>());
        }

        #[test]
        fn keys_and_accumulators_come_back_in_order_with_their_slices(
            entries in prop::collection::vec(
                ((any::<i64>(), any::<u32>()), any::<bool>(), any::<i64>(), -3i64..3), 0..40
            ),
        ) {
            let (mut value, mut group) = (Vec::new(), None);
            for (id, is_pending, key, acc) in &entries {
                let of = (*id, *is_pending);
                let is_first = value.is_empty();
                put_entry(&mut value, (is_first, group), &kept(), (of, key, acc)).unwrap();
                group = Some(of);
            }
            let mut read = Vec::new();
            if !value.is_empty() {
                let take = |(id, is_pending), key, acc| {
                    read.push((id, is_pending, key, acc));
                    Ok(())
                };
                unpack(&kept(), &entry(&value), take).unwrap();
            }
            prop_assert_eq!(read, entries);
        }

        #[test]
        fn any_bytes_are_a_pack_or_an_error(
            version in 1..=VERSION, bytes in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let value = [&MARK[..], &[version], &bytes].concat();
            let _ = unpack(&kept(), &entry(&value), |_, _, _| Ok(()));
        }
    }

    #[test]
    fn small_numbers_take_few_bytes() {
        let (mut value, of) = (Vec::new(), ((1_000, 0), false));
        put_entry(&mut value, (true, None), &kept(), (of, &100_000, &2)).unwrap();
        let before = value.len();
        put_entry(&mut value, (false, Some(of)), &kept(), (of, &100_002, &4)).unwrap();
        assert_eq!(value.len() - before, 6);
        let mut small = [0; SMALL_BYTES];
        assert_eq!(put_small(&mut small, 100, (1 << 40, (1 << 40) - 50)), 2);
    }

    fn read(value: &[u8]) -> Vec<(Group, i64, i64)> {
        let mut read = Vec::new();
        let take = |of, key, acc| {
            read.push((of, key, acc));
            Ok(())
        };
        unpack(&kept(), &entry(value), take).unwrap();
        read
    }

    #[test]
    fn a_pack_of_the_first_form_is_read() {
        let (slice, number) = (-7i64, 3u32);
        let mut value = [&MARK[..], &[1, 0], &slice.to_le_bytes()].concat();
        value.extend_from_slice(&number.to_le_bytes());
        value.push(1);
        for (key, acc) in [(5i64, 6i64), (8, 9)] {
            value.push(9);
            value.extend_from_slice(&key.to_le_bytes());
            value.push(8);
            value.extend_from_slice(&acc.to_le_bytes());
        }
        let of = ((slice, number), true);
        assert_eq!(read(&value), [(of, 5, 6), (of, 8, 9)]);
    }

    #[test]
    fn a_pack_of_the_second_form_is_read() {
        let mut value = [&MARK[..], &[2, 0, 14, 7]].concat();
        // Two integers, and two values written by the codec.
        value.extend_from_slice(&[1 + 8 + 9 * 8, 20, 3]);
        value.extend_from_slice(&[1, 8]);
        value.extend_from_slice(&5i64.to_le_bytes());
        value.push(8);
        value.extend_from_slice(&6i64.to_le_bytes());
        let of = ((7, 3), true);
        assert_eq!(read(&value), [(of, 10, -2), (of, 5, 6)]);
    }

    #[test]
    fn a_pack_of_a_later_form_is_refused() {
        let value = [&MARK[..], &[VERSION + 1]].concat();
        let error = unpack(&kept(), &entry(&value), |_, _, _| Ok(())).unwrap_err();
        assert!(error.to_string().contains("version 4"), "{error}");
    }
}
