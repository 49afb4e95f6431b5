//! The forms that packs had before: they are read, and written no more.
//!
//! In both each entry has its key. In the second an entry began with one more than the kinds, which stood there with every entry, and a group with a zero. In the first a group was a
//! zero, the slice (8), the number of its table (4), and whether that was pending (1); a key stood behind its length and one, its accumulator behind its length.

use ardea_core::Result;

use super::{Group, KINDS, Read, take_group, take_number, take_part};
use crate::keyed::{KeptPart, Rest, cut_short};

/// What follows in a pack of the second form.
pub(super) fn second<'a>(rest: &mut Rest<'a>, group: Option<Group>) -> Result<Read<'a>> {
    let [head] = rest.array()?;
    let Some(kinds) = head.checked_sub(1) else {
        return take_group(rest, group);
    };
    let key = take_part(rest, kinds % KINDS)?;
    Ok(Read::Entry(key, take_part(rest, kinds / KINDS)?))
}

/// What follows in one of the first.
pub(super) fn first<'a>(rest: &mut Rest<'a>) -> Result<Read<'a>> {
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
