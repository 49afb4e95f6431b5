//! Earlier formats of packs, which are only read.
//!
//! In both, each entry has an explicit key. In version 2, an entry begins with its kinds plus one,
//! and a group with a zero. In version 1, a group is a zero, the slice (8), the table number (4)
//! and the pending flag (1). A key is preceded by its length plus one, an accumulator by its
//! length.

use ardea_core::Result;

use super::{Group, KINDS, Read, take_group, take_number, take_part};
use ardea_state::{SerializedPart, ValueReader, truncated_entry};

/// Reads the next item of a pack of version 2.
pub(super) fn second<'a>(rest: &mut ValueReader<'a>, group: Option<Group>) -> Result<Read<'a>> {
    let [head] = rest.array()?;
    let Some(kinds) = head.checked_sub(1) else {
        return take_group(rest, group);
    };
    let key = take_part(rest, kinds % KINDS)?;
    Ok(Read::Entry(key, take_part(rest, kinds / KINDS)?))
}

/// Reads the next item of a pack of version 1.
pub(super) fn first<'a>(rest: &mut ValueReader<'a>) -> Result<Read<'a>> {
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

fn bytes_of<'a>(rest: &mut ValueReader<'a>, length: u64) -> Result<SerializedPart<'a>> {
    let length = usize::try_from(length).map_err(|_| truncated_entry())?;
    rest.bytes_of(length).map(SerializedPart::Bytes)
}
