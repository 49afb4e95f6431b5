//! The entries of a block: written in order, and read by group. A group has the entries of one
//! slot.

use std::ops::Range;
use std::sync::Arc;

use ardea_core::Result;
use bytes::Bytes;

use crate::store::failure::damaged;
use crate::store::file_name::FileName;
use crate::store::partitions::{Space, Span};

/// The maximum size of a key.
pub(crate) const KEY_MOST_BYTES: usize = 64 << 20;
/// The maximum size of a value.
pub(crate) const VALUE_MOST_BYTES: usize = 1 << 30;

/// The size of a group header.
const GROUP_BYTES: usize = 12;

/// The content of a block under construction.
#[derive(Debug)]
pub(crate) struct ContentBuilder {
    of: Space,
    bytes: Vec<u8>,
    entries: u32,
    first: u32,
    group: Option<Group>,
}

/// The group being written.
#[derive(Debug)]
struct Group {
    slot: u32,
    at: usize,
    entries: u32,
}

impl ContentBuilder {
    pub fn new(of: Space) -> Self {
        ContentBuilder {
            of,
            bytes: Vec::new(),
            entries: 0,
            first: 0,
            group: None,
        }
    }

    /// Appends an entry. Entries must be in the order of slots and keys.
    pub fn push(&mut self, slot: u32, key: &[u8], value: Option<&[u8]>) {
        match &mut self.group {
            Some(group) if group.slot == slot => group.entries += 1,
            _ => self.begin_group(slot),
        }
        self.entries += 1;
        write_varint(&mut self.bytes, key.len() as u32);
        self.bytes.extend_from_slice(key);
        match value {
            None => write_varint(&mut self.bytes, 0),
            Some(value) => {
                write_varint(&mut self.bytes, value.len() as u32 + 1);
                self.bytes.extend_from_slice(value);
            }
        }
    }

    fn begin_group(&mut self, slot: u32) {
        self.end_group();
        if self.entries == 0 {
            self.first = slot;
        }
        self.group = Some(Group {
            slot,
            at: self.bytes.len(),
            entries: 1,
        });
        self.bytes.extend_from_slice(&[0; GROUP_BYTES]);
    }

    fn end_group(&mut self) {
        let Some(Group { slot, at, entries }) = &self.group else {
            return;
        };
        let length = (self.bytes.len() - at - GROUP_BYTES) as u32;
        for (number, value) in [*slot, *entries, length].into_iter().enumerate() {
            let at = at + 4 * number;
            self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Ends the content. Nothing may be appended afterwards.
    pub fn finish(&mut self) {
        self.end_group();
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn entries(&self) -> u32 {
        self.entries
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn places(&self) -> Span {
        Span {
            of: self.of,
            first: self.first,
            last: self.group.as_ref().map_or(self.first, |group| group.slot),
        }
    }

    /// Clears the content, but keeps its allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries = 0;
        self.group = None;
    }
}

/// The content of a block that was read.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Bytes,
    /// The groups by ascending slot, with the byte ranges of their entries.
    groups: Vec<(u32, Range<usize>)>,
    file: Option<FileName>,
    place: String,
}

impl Content {
    /// Parses the groups, and checks them against the head.
    pub fn read(bytes: Bytes, places: Span, entries: u32) -> Result<Self, &'static str> {
        let mut groups: Vec<(u32, Range<usize>)> = Vec::new();
        let (mut at, mut counted) = (0, 0u64);
        while at < bytes.len() {
            let number = |nth: usize| -> Option<u32> {
                let bytes = bytes.get(at + 4 * nth..)?.first_chunk()?;
                Some(u32::from_le_bytes(*bytes))
            };
            let head = (number(0), number(1), number(2));
            let (Some(slot), Some(entries), Some(length)) = head else {
                return Err("a group of its entries is cut off");
            };
            let start = at + GROUP_BYTES;
            let end = start + length as usize;
            if end > bytes.len() {
                return Err("a group of its entries is cut off");
            }
            if !places.has(slot) || groups.last().is_some_and(|(last, _)| *last >= slot) {
                return Err("its groups are not in order");
            }
            counted += u64::from(entries);
            groups.push((slot, start..end));
            at = end;
        }
        if counted != u64::from(entries) {
            return Err("it has another number of entries than its head says");
        }
        Ok(Content {
            bytes,
            groups,
            file: None,
            place: String::new(),
        })
    }

    /// Adds the file name and the location of the block, for error messages.
    pub fn of(mut self, file: FileName, place: String) -> Self {
        self.file = Some(file);
        self.place = place;
        self
    }

    /// Returns a cursor at the first entry of a slot; `None` if the slot has no entries. `age`
    /// orders the cursors of several blocks: a lower `age` has newer entries.
    ///
    /// # Errors
    /// `CheckpointDamaged` if the first entry is malformed.
    pub fn cursor(self: &Arc<Self>, slot: u32, age: u32) -> Result<Option<Cursor>> {
        let Ok(found) = self.groups.binary_search_by_key(&slot, |(slot, _)| *slot) else {
            return Ok(None);
        };
        let range = self.groups[found].1.clone();
        let mut cursor = Cursor {
            content: Arc::clone(self),
            at: range.start,
            end: range.end,
            age,
            key: 0..0,
            value: None,
        };
        Ok(cursor.advance(true)?.then_some(cursor))
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// A cursor at an entry of a group.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    content: Arc<Content>,
    /// The offset of the next entry.
    at: usize,
    end: usize,
    age: u32,
    key: Range<usize>,
    value: Option<Range<usize>>,
}

impl Cursor {
    pub fn key(&self) -> &[u8] {
        &self.content.bytes[self.key.clone()]
    }

    /// Returns the value of the current entry; `None` for a tombstone.
    pub fn value(&self) -> Option<&[u8]> {
        let value = self.value.clone()?;
        Some(&self.content.bytes[value])
    }

    /// Advances to the next entry of the group. Returns false if there is none.
    ///
    /// # Errors
    /// `CheckpointDamaged` if the entries are malformed or not in order.
    pub fn next(&mut self) -> Result<bool> {
        self.advance(false)
    }

    fn advance(&mut self, is_first: bool) -> Result<bool> {
        if self.at == self.end {
            return Ok(false);
        }
        let read = self.read_entry().filter(|(key, _, _)| {
            // Merging requires ascending keys in all cursors.
            is_first || self.content.bytes[self.key.clone()] < self.content.bytes[key.clone()]
        });
        let Some((key, value, at)) = read else {
            let content = &self.content;
            let why = "an entry is cut off or not in order";
            return Err(match &content.file {
                Some(file) => damaged(file, &content.place, why),
                None => ardea_core::Error::new(ardea_core::ErrorCode::CheckpointDamaged, why),
            });
        };
        (self.key, self.value, self.at) = (key, value, at);
        Ok(true)
    }

    /// Returns the byte ranges of the next entry's key and value, and the offset behind the entry.
    fn read_entry(&self) -> Option<(Range<usize>, Option<Range<usize>>, usize)> {
        let bytes = &self.content.bytes[..self.end];
        let (length, start) = read_varint(bytes, self.at)?;
        let key = start..start.checked_add(length as usize)?;
        let (length, start) = read_varint(bytes, key.end)?;
        let value = match length.checked_sub(1) {
            None => None,
            Some(length) => Some(start..start.checked_add(length as usize)?),
        };
        let end = value.as_ref().map_or(start, |value| value.end);
        (end <= self.end).then_some((key, value, end))
    }
}

/// Cursors are ordered by their current key; of equal keys, the newer entry comes first.
impl Ord for Cursor {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(other.key()).then(self.age.cmp(&other.age))
    }
}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cursor {}

fn write_varint(to: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Decodes the number at `at`. Returns it with the offset behind it.
fn read_varint(bytes: &[u8], mut at: usize) -> Option<(u32, usize)> {
    let mut value = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let byte = *bytes.get(at)?;
        at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((u32::try_from(value).ok()?, at));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Entries = BTreeMap<(u32, Vec<u8>), Option<Vec<u8>>>;

    fn built(entries: &Entries) -> ContentBuilder {
        let mut builder = ContentBuilder::new(Space::Partitions);
        for ((slot, key), value) in entries {
            builder.push(*slot, key, value.as_deref());
        }
        builder.finish();
        builder
    }

    fn read_all(content: &Arc<Content>) -> Result<Entries> {
        let mut found = Entries::new();
        for (slot, _) in content.groups.clone() {
            let mut cursor = content.cursor(slot, 0)?;
            while let Some(at) = &mut cursor {
                found.insert((slot, at.key().to_vec()), at.value().map(<[u8]>::to_vec));
                if !at.next()? {
                    cursor = None;
                }
            }
        }
        Ok(found)
    }

    fn entries() -> impl Strategy<Value = Entries> {
        let key = proptest::collection::vec(any::<u8>(), 0..200);
        let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200));
        proptest::collection::btree_map((0u32..8, key), value, 1..60)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(entries in entries()) {
            let builder = built(&entries);
            prop_assert_eq!(builder.entries() as usize, entries.len());
            let bytes = Bytes::copy_from_slice(builder.bytes());
            let content = Content::read(bytes, builder.places(), builder.entries());
            prop_assert_eq!(read_all(&Arc::new(content.unwrap())).unwrap(), entries);
        }

        #[test]
        fn any_bytes_give_entries_or_an_error(
            entries in entries(), at in any::<prop::sample::Index>(), to: u8, cut in any::<prop::sample::Index>(),
        ) {
            let builder = built(&entries);
            let mut bytes = builder.bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(cut.index(bytes.len()) + 1);
            if let Ok(content) = Content::read(bytes.into(), builder.places(), builder.entries()) {
                let _ = read_all(&Arc::new(content));
            }
        }

        #[test]
        fn a_number_is_read_as_it_was_written(number: u32) {
            let mut bytes = vec![7];
            write_varint(&mut bytes, number);
            prop_assert_eq!(read_varint(&bytes, 1), Some((number, bytes.len())));
        }
    }

    #[test]
    fn a_number_that_is_too_large_is_none() {
        assert_eq!(read_varint(&[0xff, 0xff, 0xff, 0xff, 0x1f], 0), None);
        assert_eq!(read_varint(&[0x80; 9], 0), None);
        assert_eq!(read_varint(&[0x80], 0), None);
    }
}
