//! The places at which the members of a compressed file begin, found without decompression.

use std::io::{self, ErrorKind};

use super::{Packing, SKIPPABLE, SKIPPABLE_MAGIC, ZSTD_MAGIC};

/// The number of bytes that are read of a member to find its end. The size of a member of `bgzip`
/// is in the first of its extra fields.
const HEAD_BYTES: usize = 18;

/// The places at which decompression of a file can start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MemberIndex {
    pub packing: Packing,
    /// The offset of the first member of each block that has one, in order.
    pub starts: Vec<u64>,
    /// The length of the file.
    pub end: u64,
}

impl MemberIndex {
    /// Finds the members of a file of `end` bytes, in blocks of `block_bytes`. Reads the header of
    /// each member, and those of the blocks of a zstd frame. Returns `None` if a member does not
    /// say where it ends, as those of `gzip`, or if the file is not compressed.
    pub fn find(
        read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>,
        end: u64,
        block_bytes: u64,
    ) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD_BYTES];
        let count = filled(&read_at, &mut head, 0)?;
        let Some(packing) = Packing::of(&head[..count]) else {
            return Ok(None);
        };
        let mut index = MemberIndex {
            packing,
            starts: Vec::new(),
            end,
        };
        let mut start = 0;
        while start < end {
            let last = index.starts.last();
            if last.is_none_or(|last| last / block_bytes < start / block_bytes) {
                index.starts.push(start);
            }
            let next = match packing {
                Packing::Gzip => end_of_bgzip_member(&read_at, start)?,
                Packing::Zstd => end_of_zstd_frame(&read_at, start)?,
            };
            match next {
                Some(next) if next > start && next <= end => start = next,
                _ => return Ok(None),
            }
        }
        Ok(Some(index))
    }

    /// Returns true if the first member of a file of `end` bytes says where it ends, and is
    /// followed by another one.
    pub fn has_several(
        read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>,
        end: u64,
    ) -> io::Result<bool> {
        let mut head = [0; HEAD_BYTES];
        let count = filled(&read_at, &mut head, 0)?;
        let first = match Packing::of(&head[..count]) {
            Some(Packing::Gzip) => end_of_bgzip_member(&read_at, 0)?,
            Some(Packing::Zstd) => end_of_zstd_frame(&read_at, 0)?,
            None => None,
        };
        Ok(first.is_some_and(|first| first < end))
    }

    /// Returns the offset of the first member that begins at or after an offset, among those that
    /// are the first ones of their blocks. Returns the end of the file if there is none.
    pub fn first_from(&self, offset: u64) -> u64 {
        let index = self.starts.partition_point(|start| *start < offset);
        self.starts.get(index).copied().unwrap_or(self.end)
    }
}

/// Fills the buffer as far as the file has bytes; returns their number.
fn filled(
    read_at: &impl Fn(&mut [u8], u64) -> io::Result<usize>,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match read_at(&mut buffer[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Returns the end of a gzip member with the extra field of `bgzip`; `None` for another member.
fn end_of_bgzip_member(
    read_at: &impl Fn(&mut [u8], u64) -> io::Result<usize>,
    start: u64,
) -> io::Result<Option<u64>> {
    let mut head = [0; HEAD_BYTES];
    if filled(read_at, &mut head, start)? < HEAD_BYTES {
        return Ok(None);
    }
    // Magic, deflate, extra field; the extra field BC of two bytes.
    let is_bgzip = head[..4] == [0x1f, 0x8b, 8, 4] && head[12..16] == *b"BC\x02\0";
    let size = u64::from(u16::from_le_bytes([head[16], head[17]])) + 1;
    Ok(is_bgzip.then_some(start + size))
}

/// Returns the end of a zstd frame; `None` if it is malformed.
fn end_of_zstd_frame(
    read_at: &impl Fn(&mut [u8], u64) -> io::Result<usize>,
    start: u64,
) -> io::Result<Option<u64>> {
    let mut head = [0; HEAD_BYTES];
    let count = filled(read_at, &mut head, start)?;
    if count >= 8 && SKIPPABLE.contains(&head[0]) && head[1..4] == *SKIPPABLE_MAGIC {
        let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        return Ok(Some(start + 8 + u64::from(size)));
    }
    if count < 6 || head[..4] != *ZSTD_MAGIC {
        return Ok(None);
    }
    let descriptor = head[4];
    let is_single = descriptor & 0x20 != 0;
    let content_size = match (descriptor >> 6, is_single) {
        (0, false) => 0,
        (0, true) => 1,
        (flag, _) => 1 << flag,
    };
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let mut at = start + 5 + u64::from(!is_single) + dictionary + content_size;
    loop {
        let mut block = [0; 3];
        if filled(read_at, &mut block, at)? < block.len() {
            return Ok(None);
        }
        let header = u32::from_le_bytes([block[0], block[1], block[2], 0]);
        let size = match (header >> 1) & 3 {
            0 | 2 => u64::from(header >> 3),
            1 => 1,
            _ => return Ok(None),
        };
        at += 3 + size;
        if header & 1 == 1 {
            let checksum = if descriptor & 4 == 0 { 0 } else { 4 };
            return Ok(Some(at + checksum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bgzip_member, gzip, zstd};
    use proptest::prelude::*;

    fn find(bytes: &[u8], block_bytes: u64) -> Option<MemberIndex> {
        let read_at = |buffer: &mut [u8], offset: u64| {
            let rest = bytes
                .get(usize::try_from(offset).unwrap()..)
                .unwrap_or_default();
            // At most a few bytes at a time.
            let count = rest.len().min(buffer.len()).min(5);
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        };
        MemberIndex::find(read_at, bytes.len() as u64, block_bytes).unwrap()
    }

    #[test]
    fn members_are_found_if_they_say_where_they_end() {
        let large = (0..100_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes());
        let large: Vec<u8> = large.collect();
        let skippable = [&[0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let zstds = [
            zstd(b"one"),
            skippable,
            zstd(&large),
            zstd(b""),
            zstd(&[7; 500_000]),
        ];
        let bgzips = [b"one".as_slice(), &large[..60_000], b""].map(bgzip_member);
        for members in [&zstds[..], &bgzips] {
            let all = members.concat();
            let mut starts = vec![0];
            for member in &members[1..] {
                let before = starts.len() - 1;
                starts.push(starts[before] + members[before].len() as u64);
                let _ = member;
            }
            let found = find(&all, 1).expect("known");
            assert_eq!(found.starts, starts);
            assert_eq!(found.first_from(1), starts[1]);
            assert_eq!(found.first_from(all.len() as u64), all.len() as u64);
            assert_eq!(find(&all, 1 << 30).expect("known").starts, [0]);
            assert_eq!(find(&all[..all.len() - 1], 1), None, "cut off");
        }
        assert_eq!(find(&[gzip(b"one"), gzip(b"two")].concat(), 1), None);
        assert_eq!(find(b"plain", 1), None);
        assert_eq!(
            find(&[zstd(b"one"), vec![0; 10]].concat(), 1),
            None,
            "padding"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_have_borders_or_not(bytes in prop::collection::vec(any::<u8>(), 0..100), is_zstd: bool) {
            let magic = if is_zstd { ZSTD_MAGIC } else { &[0x1f, 0x8b, 8, 4] };
            let _ = find(&[magic, &bytes].concat(), 10);
        }
    }
}
