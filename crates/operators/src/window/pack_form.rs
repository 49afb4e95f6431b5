//! How packs are written: one entry of a cut with what many keys of a partition have in slices.
//!
//! An entry lies under the *sequence* of its cut, eight bytes, and its number among those of its partition in that cut, four bytes, both
//! with the highest byte first. A partition's state is what its packs say in order of their sequences: later ones override earlier ones.
//! The value begins with [`MARK`] and the version of the form. Then come groups, one for each slice that follows another: a zero, how far
//! the slice is from that of the group before, and twice the number of its table, and one if that is pending; behind it each key with its
//! accumulator. They begin with a byte, one and the kind of the key and nine times the kind of the accumulator: an integer, of the type of
//! that number, as its magnitude; else, of kind zero, the length and the bytes that the codec wrote. Numbers are LEB128.

use ardea_core::{Error, ErrorCode, Integer, IntegerType, Key, RestoredEntry, Result};

use super::open_slices::SliceId;
use crate::keyed::{KeptAs, KeptPart, Rest, cut_short};

/// How a pack begins. Entries of a key each, as they were written before there were packs, begin with its length, which is never this.
const MARK: [u8; 4] = [u8::MAX; 4];
/// The version of the form.
const VERSION: u8 = 2;
/// Before it, slices and lengths were written otherwise.
const FIRST_VERSION: u8 = 1;
/// How many kinds of keys, and of accumulators, there are: what a codec wrote, and each type of integers.
const KINDS: u8 = 1 + IntegerType::ALL.len() as u8;
/// The bytes of a key of an entry.
const PLACE_BYTES: usize = 12;

/// Appends an entry of this table, behind what it needs before it if it is the first of its pack or follows one of another table.
#[inline]
pub(crate) fn put_entry<K: Key, A>(
    out: &mut Vec<u8>,
    (is_first, group): (bool, Option<(SliceId, bool)>),
    kept: &KeptAs<K, A>,
    (of, key, acc): ((SliceId, bool), &K, &A),
) -> Result<()> {
    if is_first {
        out.extend_from_slice(&MARK);
        out.push(VERSION);
    }
    if group != Some(of) {
        let ((slice, number), is_pending) = of;
        let before = group.map_or(0, |((slice, _), _)| slice);
        out.push(0);
        put_number(out, Integer::from(slice.wrapping_sub(before)).magnitude());
        put_number(out, u64::from(number) << 1 | u64::from(is_pending));
    }
    let head = out.len();
    out.push(0);
    let key_kind = match kept.integer_key(key) {
        Some(integer) => put_integer(out, integer),
        None => put_measured(out, |out| kept.put_bare_key(key, out))?,
    };
    let acc_kind = match kept.integer_state(acc) {
        Some(integer) => put_integer(out, integer),
        None => put_measured(out, |out| kept.put_bare_state(acc, out))?,
    };
    out[head] = 1 + key_kind + KINDS * acc_kind;
    Ok(())
}

/// The most bytes that a small entry takes.
pub(crate) const SMALL_BYTES: usize = 1 + 2 * 10;

/// Writes an entry that is integers, of the table that the one before it is of, to the front of `out`; its length.
#[inline]
pub(crate) fn put_small(out: &mut [u8; SMALL_BYTES], key: Integer, acc: Integer) -> usize {
    out[0] = 1 + key.of() as u8 + KINDS * acc.of() as u8;
    let mut at = 1;
    for mut left in [key.magnitude(), acc.magnitude()] {
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

/// The sequence of a pack, and its number; none if the entry is older than packs are.
pub(crate) fn place_of(entry: &RestoredEntry<'_>) -> Result<Option<(u64, u32)>> {
    if !entry.value.starts_with(&MARK) {
        return Ok(None);
    }
    let place = <[u8; PLACE_BYTES]>::try_from(entry.key).map_err(|_| cut_short())?;
    let mut rest = Rest::of(&place);
    let sequence = u64::from_be_bytes(rest.array()?);
    Ok(Some((sequence, u32::from_be_bytes(rest.array()?))))
}

/// Hands what a pack holds to `take`: the slice and number of the table, whether it was pending, the key and the accumulator.
///
/// # Errors
/// Those of `take`, and if the pack breaks off or is of a later version.
pub(crate) fn unpack<K: Key, A>(
    kept: &KeptAs<K, A>,
    entry: &RestoredEntry<'_>,
    mut take: impl FnMut((SliceId, bool), K, A) -> Result<()>,
) -> Result<()> {
    let mut rest = Rest::of(entry.value);
    let [_, _, _, _, version] = rest.array()?;
    let read = match version {
        FIRST_VERSION => first_version::read,
        VERSION => read,
        _ => {
            let what = format!("slices are kept in the form {version}, which is not known here");
            return Err(Error::new(ErrorCode::BadRecord, what)
                .hint("a later version of Ardea has written them: go on with that"));
        }
    };
    let mut group = None;
    while !rest.is_empty() {
        match read(&mut rest, group)? {
            Read::Group(of) => group = Some(of),
            Read::Entry(key, acc) => {
                let (key, acc) = kept.get((key, acc), entry.partition)?;
                take(group.ok_or_else(cut_short)?, key, acc)?;
            }
        }
    }
    Ok(())
}

/// What follows in a pack.
enum Read<'a> {
    /// A group begins.
    Group((SliceId, bool)),
    /// A key and its accumulator.
    Entry(KeptPart<'a>, KeptPart<'a>),
}

fn read<'a>(rest: &mut Rest<'a>, group: Option<(SliceId, bool)>) -> Result<Read<'a>> {
    let [head] = rest.array()?;
    let Some(kinds) = head.checked_sub(1) else {
        let before = group.map_or(0, |((slice, _), _)| slice);
        let distance = take_integer(rest, IntegerType::I64)?.value() as i64;
        let table = take_number(rest)?;
        let number = u32::try_from(table >> 1).map_err(|_| cut_short())?;
        let slice = before.wrapping_add(distance);
        return Ok(Read::Group(((slice, number), table & 1 == 1)));
    };
    let key = take_part(rest, kinds % KINDS)?;
    Ok(Read::Entry(key, take_part(rest, kinds / KINDS)?))
}

fn take_part<'a>(rest: &mut Rest<'a>, kind: u8) -> Result<KeptPart<'a>> {
    if kind == 0 {
        let length = usize::try_from(take_number(rest)?).map_err(|_| cut_short())?;
        return rest.bytes_of(length).map(KeptPart::Bytes);
    }
    let of = IntegerType::from_number(kind).ok_or_else(cut_short)?;
    take_integer(rest, of).map(KeptPart::Integer)
}

/// The form before: a group was a zero, the slice (8), the number of its table (4), and whether that was pending (1); a key stood behind
/// its length and one, its accumulator behind its length.
mod first_version {
    use super::*;

    pub(super) fn read<'a>(rest: &mut Rest<'a>, _: Option<(SliceId, bool)>) -> Result<Read<'a>> {
        let length = take_number(rest)?;
        let Some(length) = length.checked_sub(1) else {
            let slice = i64::from_le_bytes(rest.array()?);
            let number = u32::from_le_bytes(rest.array()?);
            let [is_pending] = rest.array()?;
            return Ok(Read::Group(((slice, number), is_pending != 0)));
        };
        let key = bytes_of(rest, length)?;
        let length = take_number(rest)?;
        Ok(Read::Entry(key, bytes_of(rest, length)?))
    }

    fn bytes_of<'a>(rest: &mut Rest<'a>, length: u64) -> Result<KeptPart<'a>> {
        let length = usize::try_from(length).map_err(|_| cut_short())?;
        rest.bytes_of(length).map(KeptPart::Bytes)
    }
}

/// What a pack lies under.
pub(crate) fn place(sequence: u64, number: u32) -> [u8; PLACE_BYTES] {
    let mut place = [0; PLACE_BYTES];
    place[..8].copy_from_slice(&sequence.to_be_bytes());
    place[8..].copy_from_slice(&number.to_be_bytes());
    place
}

/// Appends an integer; its kind.
#[inline]
fn put_integer(out: &mut Vec<u8>, integer: Integer) -> u8 {
    put_number(out, integer.magnitude());
    integer.of() as u8
}

/// Appends what `put` does, behind its length; its kind.
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

fn take_integer(rest: &mut Rest<'_>, of: IntegerType) -> Result<Integer> {
    Integer::new(of, take_number(rest)?).ok_or_else(cut_short)
}

fn take_number(rest: &mut Rest<'_>) -> Result<u64> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let [byte] = rest.array()?;
        let bits = u64::from(byte & 0x7f);
        if shift > 63 || (bits << shift) >> shift != bits {
            return Err(cut_short());
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
    use crate::keyed::test_codecs::EvenIntegers;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn kept() -> KeptAs<i64, i64> {
        KeptAs::new(Arc::new(EvenIntegers), Arc::new(EvenIntegers))
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
        fn a_small_entry_is_written_like_any_other(key in any::<i64>(), acc in any::<i64>(), slice in any::<i64>()) {
            let (key, acc) = (key & !1, acc & !1);
            let of = ((slice, 0), false);
            let mut general = Vec::new();
            put_entry(&mut general, (false, Some(of)), &kept(), (of, &key, &acc)).unwrap();
            let mut small = [0; SMALL_BYTES];
            let bytes = put_small(&mut small, Integer::from(key), Integer::from(acc));
            prop_assert_eq!(&small[..bytes], general.as_slice());
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
            version in FIRST_VERSION..=VERSION, bytes in prop::collection::vec(any::<u8>(), 0..60),
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
        assert_eq!(value.len() - before, 5);
    }

    #[test]
    fn a_pack_of_the_first_form_is_read() {
        let (slice, number) = (-7i64, 3u32);
        let mut value = [&MARK[..], &[FIRST_VERSION, 0], &slice.to_le_bytes()].concat();
        value.extend_from_slice(&number.to_le_bytes());
        value.push(1);
        for (key, acc) in [(5i64, 6i64), (8, 9)] {
            value.push(9);
            value.extend_from_slice(&key.to_le_bytes());
            value.push(8);
            value.extend_from_slice(&acc.to_le_bytes());
        }
        let mut read = Vec::new();
        let take = |of, key, acc| {
            read.push((of, key, acc));
            Ok(())
        };
        unpack(&kept(), &entry(&value), take).unwrap();
        let of = ((slice, number), true);
        assert_eq!(read, [(of, 5, 6), (of, 8, 9)]);
    }

    #[test]
    fn a_pack_of_a_later_form_is_refused() {
        let value = [&MARK[..], &[VERSION + 1]].concat();
        let error = unpack(&kept(), &entry(&value), |_, _, _| Ok(())).unwrap_err();
        assert!(error.to_string().contains("form 3"), "{error}");
    }
}
