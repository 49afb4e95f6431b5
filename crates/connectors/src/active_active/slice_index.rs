//! The format of the index file: a header, then an entry for each slice in the file, in order.

use xxhash_rust::xxh3::xxh3_64;

use super::slices::Width;

/// The size in bytes of the header and of each entry.
pub(super) const ENTRY: u64 = 40;
/// The magic bytes of an index.
const MAGIC: &[u8; 24] = b"ardea slices,version 1\n\0";
/// The number of bytes covered by the checksum.
const CHECKED: usize = 32;

/// An encoded header or entry.
pub(super) type Bytes = [u8; ENTRY as usize];

/// The index entry of a slice in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub slice: i64,
    /// The end of the slice in the file.
    pub end: u64,
    /// The hash of the slice's content.
    pub hash: u64,
    /// The number of the replica that appended the slice.
    pub copy: u64,
}

impl Entry {
    pub fn to_bytes(self) -> Bytes {
        let mut bytes = [0; ENTRY as usize];
        let slice = self.slice.to_le_bytes();
        let numbers = [self.end, self.hash, self.copy].map(u64::to_le_bytes);
        for (at, number) in (0..).zip([slice].iter().chain(&numbers)) {
            bytes[at * 8..][..8].copy_from_slice(number);
        }
        sealed(bytes)
    }

    /// Decodes an entry; `None` if it is damaged or incomplete.
    pub fn of(bytes: &Bytes) -> Option<Self> {
        let [slice, end, hash, copy] = numbers(bytes)?;
        Some(Entry {
            slice: slice.cast_signed(),
            end,
            hash,
            copy,
        })
    }
}

/// Returns the header of an index of slices with the width `width`.
pub(super) fn head(width: Width) -> Bytes {
    let mut bytes = [0; ENTRY as usize];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[MAGIC.len()..CHECKED].copy_from_slice(&width.micros().to_le_bytes());
    sealed(bytes)
}

/// Returns the slice width in a header; `None` if it is not a valid header.
pub(super) fn width_of(head: &Bytes) -> Option<Width> {
    let [.., width] = numbers(head).filter(|_| head.starts_with(MAGIC))?;
    Width::of_micros(width.cast_signed())
}

fn sealed(mut bytes: Bytes) -> Bytes {
    let check = xxh3_64(&bytes[..CHECKED]);
    bytes[CHECKED..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Returns the numbers covered by the checksum, if it is valid.
fn numbers(bytes: &Bytes) -> Option<[u64; 4]> {
    let mut all = [0; 5];
    for (number, part) in all.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(part.try_into().ok()?);
    }
    let [a, b, c, d, check] = all;
    (xxh3_64(&bytes[..CHECKED]) == check).then_some([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_heads_come_back_and_damaged_ones_do_not() {
        let entry = Entry {
            slice: -7,
            end: 1,
            hash: u64::MAX,
            copy: 3,
        };
        let width = Width::of_micros(10_000).unwrap();
        assert_eq!(Entry::of(&entry.to_bytes()), Some(entry));
        assert_eq!(width_of(&head(width)), Some(width));
        assert_eq!(width_of(&entry.to_bytes()), None);
        for at in 0..ENTRY as usize {
            let (mut bytes, mut head) = (entry.to_bytes(), head(width));
            bytes[at] ^= 1;
            head[at] ^= 1;
            assert_eq!((Entry::of(&bytes), width_of(&head)), (None, None), "{at}");
        }
    }
}
