//! Search for a member from the middle of a compressed file whose members do not say where they
//! end.
//!
//! The bytes of a member's beginning also occur by chance, and a member may contain another
//! compressed file. So a place counts as the beginning of a member only if the bytes from there on
//! decompress as a series of whole members, with right checksums, for [`PROOF_BYTES`]. Bytes of
//! another file are at most 64 KiB long within a gzip member, and 128 KiB within a zstd frame,
//! before a header interrupts them.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

use super::{Members, Packing, ZSTD_MAGIC};

/// The number of bytes from the beginning of a member that must decompress.
const PROOF_BYTES: u64 = 160 << 10;

/// The number of decompressed bytes after which a member counts as proven.
const PROVEN_CONTENT: usize = 4 << 20;

/// The number of bytes that are searched at once.
const SCAN_BYTES: u64 = 64 << 10;

/// The number of bytes after which a search returns, so that the job can be cancelled.
const MAX_SCAN: u64 = 4 << 20;

/// The number of bytes that are compared at each place.
const HEAD_BYTES: usize = 5;

/// The number of bytes in which the end of the first member is looked for first.
const FIRST_HEAD_BYTES: u64 = 256 << 10;

/// The first bytes of a gzip member with the only compression method.
const GZIP_HEAD: &[u8] = &[0x1f, 0x8b, 8];

/// The flags of a gzip member that must be zero.
const GZIP_RESERVED: u8 = 0xe0;

/// The bit of a zstd frame's descriptor that must be zero.
const ZSTD_RESERVED: u8 = 0x08;

/// Returns true if a member with content may begin with `head`, of [`HEAD_BYTES`] bytes. A
/// skippable frame does not count: its length could be that of any bytes.
fn may_begin(packing: Packing, head: &[u8]) -> bool {
    match packing {
        Packing::Gzip => head.starts_with(GZIP_HEAD) && head[3] & GZIP_RESERVED == 0,
        Packing::Zstd => head.starts_with(ZSTD_MAGIC) && head[4] & ZSTD_RESERVED == 0,
    }
}

/// The search for the first member that begins in a range of a file.
///
/// All searches that pass a place decide in the same way whether a member begins there.
#[derive(Debug)]
pub(crate) struct MemberSearch {
    packing: Packing,
    /// The offset of the next place.
    at: u64,
    /// The end of the range.
    to: u64,
    /// The length of the file.
    end: u64,
    /// Bytes of the file from `window_start` on, which is at most `at`.
    window: Vec<u8>,
    window_start: u64,
}

impl MemberSearch {
    /// Creates the search in a range of a file of `end` bytes.
    pub fn new(packing: Packing, range: Range<u64>, end: u64) -> Self {
        MemberSearch {
            packing,
            at: range.start,
            to: range.end.min(end),
            end,
            window: Vec::new(),
            window_start: range.start,
        }
    }

    /// Returns the offset of the first member; `None` if no member begins in the range.
    ///
    /// # Errors
    /// Those of `read_at`; [`ErrorKind::WouldBlock`] after a long search;
    /// [`ErrorKind::UnexpectedEof`] if the file is shorter. The next call continues.
    pub fn find(
        &mut self,
        read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<Option<u64>> {
        // A head may end after the range.
        let last = self.to.saturating_add(HEAD_BYTES as u64 - 1).min(self.end);
        let begun = self.at;
        while self.at < self.to {
            if self.at - begun >= MAX_SCAN {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.fill(self.at.saturating_add(SCAN_BYTES).min(last), &read_at)?;
            let mut heads = self.rest().windows(HEAD_BYTES);
            let Some(index) = heads.position(|head| may_begin(self.packing, head)) else {
                match self.window_end() {
                    filled if filled >= last => self.at = self.to,
                    filled => self.at = filled - (HEAD_BYTES as u64 - 1),
                }
                continue;
            };
            self.at += index as u64;
            if self.at >= self.to {
                break;
            }
            let proof_end = self.at.saturating_add(PROOF_BYTES).min(self.end);
            self.fill(proof_end, &read_at)?;
            let proof = &self.rest()[..(proof_end - self.at) as usize];
            if are_members(self.packing, proof, proof_end == self.end) {
                return Ok(Some(self.at));
            }
            self.at += 1;
        }
        Ok(None)
    }

    fn window_end(&self) -> u64 {
        self.window_start + self.window.len() as u64
    }

    /// Returns the bytes of the window from the next place on.
    fn rest(&self) -> &[u8] {
        let passed = (self.at - self.window_start) as usize;
        self.window.get(passed..).unwrap_or_default()
    }

    /// Reads the file up to `target` into the window.
    fn fill(
        &mut self,
        target: u64,
        read_at: &impl Fn(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<()> {
        let passed = self.at - self.window_start;
        if passed >= SCAN_BYTES {
            self.window.drain(..passed as usize);
            self.window_start = self.at;
        }
        while self.window_end() < target {
            let (offset, filled) = (self.window_end(), self.window.len());
            self.window.resize(filled + (target - offset) as usize, 0);
            let read = read_at(&mut self.window[filled..], offset);
            self.window
                .truncate(filled + read.as_ref().map_or(0, |read| *read));
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The first bytes of a stream; the rest has not arrived.
struct StreamHead<'a> {
    bytes: &'a [u8],
    /// True if the stream ends after the bytes.
    is_all: bool,
}

impl Read for StreamHead<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.bytes.read(buffer)? {
            0 if !self.is_all && !buffer.is_empty() => Err(ErrorKind::WouldBlock.into()),
            read => Ok(read),
        }
    }
}

/// Returns true if bytes decompress as a series of members. The stream ends after them if `is_all`,
/// otherwise the last member may be incomplete.
fn are_members(packing: Packing, bytes: &[u8], is_all: bool) -> bool {
    let Ok(mut members) = Members::new(packing, StreamHead { bytes, is_all }) else {
        return false;
    };
    let (mut buffer, mut content) = ([0; 16 << 10], 0);
    while content < PROVEN_CONTENT {
        match members.read(&mut buffer) {
            Ok(0) => return true,
            Ok(read) => content += read,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}

/// Returns true if a compressed file of `length` bytes has several members, of which the first one
/// with content ends within its first `limit` bytes. `head` returns the first bytes of the file.
pub(crate) fn has_several_members<B: AsRef<[u8]>, E>(
    head: impl Fn(u64) -> Result<B, E>,
    length: u64,
    limit: u64,
) -> Result<bool, E> {
    let limit = limit.max(PROOF_BYTES).min(length);
    let first = FIRST_HEAD_BYTES.min(limit);
    for count in [first, limit] {
        let bytes = head(count)?;
        let bytes = bytes.as_ref();
        let is_all = bytes.len() as u64 >= length;
        match Packing::of(bytes).map(|packing| follows_first(packing, bytes, is_all)) {
            Some(None) if count < limit => {}
            found => return Ok(found.flatten().unwrap_or(false)),
        }
    }
    Ok(false)
}

/// Returns true if the first member with content is followed by another member; `None` if the bytes
/// are not enough to determine it.
fn follows_first(packing: Packing, bytes: &[u8], is_all: bool) -> Option<bool> {
    let mut members = Members::new(packing, StreamHead { bytes, is_all }).ok()?;
    members.stop_at_members(true);
    let (mut buffer, mut has_content) = ([0; 16 << 10], false);
    loop {
        let next = match members.read(&mut buffer) {
            Ok(0) => members.skip_padding(),
            Ok(_) => {
                has_content = true;
                continue;
            }
            Err(error) => Err(error),
        };
        match next {
            Ok(Some(_)) if has_content => return Some(true),
            Ok(Some(_)) => drop(members.begin_next()),
            Ok(None) => return Some(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(_) => return Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::Write;

    use super::*;
    use crate::testing::{bgzip_member, gzip, zstd};
    use proptest::prelude::*;

    /// Searches a range of a file, a few bytes at a time and with interruptions.
    fn search(packing: Packing, bytes: &[u8], range: Range<u64>) -> Option<u64> {
        let reads = std::cell::Cell::new(0usize);
        let read_at = |buffer: &mut [u8], offset: u64| {
            reads.set(reads.get() + 1);
            if reads.get().is_multiple_of(3) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let rest = &bytes[usize::try_from(offset).unwrap()..];
            let count = rest.len().min(buffer.len()).min(50_000);
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        };
        let mut search = MemberSearch::new(packing, range, bytes.len() as u64);
        loop {
            match search.find(read_at) {
                Ok(found) => return found,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
    }

    /// Returns bytes that cannot be compressed.
    fn noise(seed: u64, count: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..count).map(|_| next()).collect()
    }

    fn packed(packing: Packing, content: &[u8]) -> Vec<u8> {
        match packing {
            Packing::Gzip => gzip(content),
            Packing::Zstd => zstd(content),
        }
    }

    /// Returns a member that contains its content as it is, in blocks of up to 60,000 bytes.
    fn stored(packing: Packing, content: &[u8]) -> Vec<u8> {
        if packing == Packing::Gzip {
            let level = flate2::Compression::none();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(content).unwrap();
            return encoder.finish().unwrap();
        }
        // No checksum, and a window of 2 MiB.
        let mut frame = [ZSTD_MAGIC, &[0, 0x58]].concat();
        let mut blocks = content.chunks(60_000).peekable();
        while let Some(block) = blocks.next() {
            let is_last = u32::from(blocks.peek().is_none());
            let head = (u32::try_from(block.len()).unwrap() << 3) | is_last;
            frame.extend_from_slice(&head.to_le_bytes()[..3]);
            frame.extend_from_slice(block);
        }
        frame
    }

    fn packings() -> impl Strategy<Value = Packing> {
        prop_oneof![Just(Packing::Gzip), Just(Packing::Zstd)]
    }

    proptest! {
        #[test]
        fn the_first_member_of_a_range_is_found_from_any_place(
            packing in packings(),
            members in prop::collection::vec((any::<bool>(), 0usize..9_000, 0usize..3), 1..12),
            from in 0usize..1_000, length in 0usize..1_000,
        ) {
            let (mut all, mut starts) = (Vec::new(), Vec::new());
            for (number, (is_noise, size, padding)) in members.into_iter().enumerate() {
                let content = match is_noise {
                    true => noise(number as u64 * 77 + 5, size),
                    false => vec![b'x'; size],
                };
                starts.push(all.len() as u64);
                all.extend(packed(packing, &content));
                all.extend(vec![0; padding]);
            }
            let from = (all.len() * from / 1_000) as u64;
            let to = from + (all.len() * length / 1_000) as u64;
            let first = starts.into_iter().find(|start| (from..to).contains(start));
            prop_assert_eq!(search(packing, &all, from..to), first);
        }

        #[test]
        fn any_bytes_have_members_or_not(
            packing in packings(), bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let magic = match packing {
                Packing::Gzip => GZIP_HEAD,
                Packing::Zstd => ZSTD_MAGIC,
            };
            let all = [magic, &bytes].concat();
            let _ = search(packing, &all, 0..all.len() as u64);
        }
    }

    #[test]
    fn a_file_within_a_member_and_bytes_like_a_head_are_no_members() {
        for packing in [Packing::Gzip, Packing::Zstd] {
            let file = packed(packing, &noise(7, 3_000));
            for inside in [&file[..], &file[..50]] {
                let inner = [&noise(1, 40_000)[..], inside, &noise(2, 250_000)].concat();
                let (outer, next) = (stored(packing, &inner), packed(packing, b"next"));
                assert!(
                    memchr::memmem::find(&outer, &inside[..30]).is_some(),
                    "stored"
                );
                let all = [&outer[..], &next].concat();
                let range = 1..all.len() as u64;
                assert_eq!(search(packing, &all, range), Some(outer.len() as u64));
            }
        }
    }

    #[test]
    fn a_damaged_member_is_passed_and_a_large_one_is_found() {
        for packing in [Packing::Gzip, Packing::Zstd] {
            let large = packed(packing, &noise(3, 700_000));
            let mut damaged = packed(packing, &noise(4, 2_000));
            damaged[1_000] ^= 1;
            let first = packed(packing, b"first");
            let all = [&first[..], &damaged, &large, &first].concat();
            let at = (first.len() + damaged.len()) as u64;
            assert_eq!(search(packing, &all, 1..all.len() as u64), Some(at));
            let last = (all.len() - first.len()) as u64;
            assert_eq!(search(packing, &all, at + 1..all.len() as u64), Some(last));
            assert_eq!(search(packing, &all, at + 1..last), None);
        }
    }

    #[test]
    fn a_file_has_several_members_if_the_first_one_ends_early() {
        let several = |bytes: &[u8], limit: u64| {
            let head = |count: u64| {
                let count = usize::try_from(count).unwrap().min(bytes.len());
                Ok::<_, Infallible>(&bytes[..count])
            };
            has_several_members(head, bytes.len() as u64, limit).unwrap()
        };
        let skippable = [&[0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        for packing in [Packing::Gzip, Packing::Zstd] {
            let (small, large) = (packed(packing, b"s"), packed(packing, &noise(9, 900_000)));
            assert!(several(&[&small[..], &small].concat(), 1));
            assert!(several(&[&large[..], &small].concat(), 1 << 20));
            assert!(!several(&[&large[..], &small].concat(), 300_000));
            assert!(!several(&large, 1 << 20) && !several(&small, 1 << 20));
            assert!(!several(&[&small[..], &[0; 99]].concat(), 1 << 20));
        }
        assert!(!several(&[&skippable[..], &zstd(b"one")].concat(), 1 << 20));
        assert!(several(&[bgzip_member(b"one"), gzip(b"two")].concat(), 1));
        assert!(!several(b"plain text", 1));
    }
}
