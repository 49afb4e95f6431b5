//! Decompression of a stream: of a file, a pipe or standard input.

mod member_index;
mod member_search;
mod members;

use std::fmt;
use std::io::{self, Cursor, ErrorKind, Read};

use crate::files::Compression;
pub(crate) use member_index::MemberIndex;
pub(crate) use member_search::{MemberSearch, has_several_members};
pub(crate) use members::Members;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The magic bytes of a skippable zstd frame, after a first byte in [`SKIPPABLE`]. Some programs
/// write such a frame first.
const SKIPPABLE_MAGIC: &[u8] = &[0x2a, 0x4d, 0x18];
const SKIPPABLE: std::ops::RangeInclusive<u8> = 0x50..=0x5f;

/// The supported compression formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    /// Returns the format of a stream that begins with `head`; `None` if no format matches.
    pub fn of(head: &[u8]) -> Option<Packing> {
        if head.starts_with(GZIP_MAGIC) {
            return Some(Packing::Gzip);
        }
        let skips = |(first, rest): (&u8, &[u8])| {
            SKIPPABLE.contains(first) && rest.starts_with(SKIPPABLE_MAGIC)
        };
        let is_zstd = head.starts_with(ZSTD_MAGIC) || head.split_first().is_some_and(skips);
        is_zstd.then_some(Packing::Zstd)
    }

    /// Returns true if more bytes after `head` could match one of the formats.
    fn is_open(head: &[u8]) -> bool {
        let may_become = |magic: &[u8]| head.len() < magic.len() && magic.starts_with(head);
        let may_skip = head.split_first().is_none_or(|(first, rest)| {
            let is_short = rest.len() < SKIPPABLE_MAGIC.len();
            SKIPPABLE.contains(first) && is_short && SKIPPABLE_MAGIC.starts_with(rest)
        });
        may_become(GZIP_MAGIC) || may_become(ZSTD_MAGIC) || may_skip
    }

    /// Returns true if a gzip member or zstd frame can begin with `byte`.
    fn may_begin_with(self, byte: u8) -> bool {
        match self {
            Packing::Gzip => byte == GZIP_MAGIC[0],
            Packing::Zstd => byte == ZSTD_MAGIC[0] || SKIPPABLE.contains(&byte),
        }
    }

    fn promised(compression: Compression) -> Option<Packing> {
        match compression {
            Compression::None => None,
            Compression::Gzip => Some(Packing::Gzip),
            Compression::Zstd => Some(Packing::Zstd),
        }
    }
}

/// Returns true if a stream that begins with `head`, of at least four bytes, is compressed.
pub(crate) fn is_compressed(head: &[u8]) -> bool {
    Packing::of(head).is_some()
}

/// A reader that decompresses gzip and zstd, detected by the first bytes.
///
/// A compressed stream that ends early, has a wrong checksum, or has data other than padding after
/// a member is an error. If the underlying stream returns [`ErrorKind::WouldBlock`], so does this
/// reader, and the next read continues.
pub(crate) struct Decompressed<R: Read> {
    way: Decoder<R>,
    /// The format assumed if the first bytes match none.
    otherwise: Compression,
}

enum Decoder<R: Read> {
    /// Too few bytes were read to detect the format.
    Unknown(HaltableStream<R>),
    Plain(HaltableStream<R>),
    Packed(Box<Members<HaltableStream<R>>>),
    /// Creating the decoder has failed.
    Failed,
}

impl<R: Read> Decoder<R> {
    fn of(stream: HaltableStream<R>, packing: Option<Packing>) -> io::Result<Self> {
        Ok(match packing {
            None => Decoder::Plain(stream),
            Some(packing) => Decoder::Packed(Box::new(Members::new(packing, stream)?)),
        })
    }
}

impl<R: Read> Decompressed<R> {
    pub fn new(reader: R) -> Self {
        Decompressed {
            way: Decoder::Unknown(HaltableStream {
                head: Cursor::default(),
                reader,
                is_halted: false,
            }),
            otherwise: Compression::None,
        }
    }

    /// Returns a reader of a stream that is known to be uncompressed, for example from its middle.
    pub fn plain(reader: R) -> Self {
        let Decompressed { way, otherwise } = Decompressed::new(reader);
        let way = match way {
            Decoder::Unknown(stream) => Decoder::Plain(stream),
            way => way,
        };
        Decompressed { way, otherwise }
    }

    /// Returns true if the stream is known to be compressed.
    pub fn is_packed(&self) -> bool {
        matches!(self.way, Decoder::Packed(_))
    }

    /// Sets the format promised by the file name. A stream that matches no format is then damaged.
    pub fn promised(mut self, compression: Compression) -> Self {
        self.otherwise = compression;
        self
    }

    /// Stops reading from the stream. The bytes read so far are decompressed as far as possible;
    /// then the reader reports the end, without an error for the truncation.
    pub fn halt(&mut self) {
        if let Some(stream) = self.stream() {
            stream.is_halted = true;
        }
    }

    /// Returns the underlying stream, unless decompression has failed.
    pub fn raw(&mut self) -> Option<&mut R> {
        self.stream().map(|stream| &mut stream.reader)
    }

    fn stream(&mut self) -> Option<&mut HaltableStream<R>> {
        match &mut self.way {
            Decoder::Unknown(stream) | Decoder::Plain(stream) => Some(stream),
            Decoder::Packed(members) => members.stream(),
            Decoder::Failed => None,
        }
    }

    /// Reads the beginning of the stream until the format is detected.
    fn recognise(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Decoder::Unknown(stream) = &mut self.way else {
                return self.read_on(buffer);
            };
            // The head is stored aside, since it cannot be read again.
            let read = stream.read_below(buffer)?;
            let is_all = read == 0;
            let head = stream.head.get_mut();
            head.extend_from_slice(&buffer[..read]);
            if !is_all && Packing::of(head).is_none() && Packing::is_open(head) {
                continue;
            }
            let packing = Packing::of(head).or(Packing::promised(self.otherwise));
            if let Decoder::Unknown(stream) = std::mem::replace(&mut self.way, Decoder::Failed) {
                self.way = Decoder::of(stream, packing)?;
            }
        }
    }

    fn read_on(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.way {
            Decoder::Plain(stream) => return stream.read(buffer),
            Decoder::Packed(members) => members.read(buffer),
            Decoder::Unknown(_) | Decoder::Failed => Ok(0),
        };
        match read {
            Err(error)
                if error.kind() == ErrorKind::UnexpectedEof
                    && self.stream().is_some_and(|stream| stream.is_halted) =>
            {
                Ok(0)
            }
            read => read,
        }
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.way {
            Decoder::Unknown(_) if !buffer.is_empty() => self.recognise(buffer),
            _ => self.read_on(buffer),
        }
    }
}

/// A stream that returns its first bytes again after detection, and can be made to end early.
struct HaltableStream<R> {
    /// The bytes read for detection, which are returned first.
    head: Cursor<Vec<u8>>,
    reader: R,
    is_halted: bool,
}

impl<R: Read> HaltableStream<R> {
    fn read_below(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_halted {
            return Ok(0);
        }
        self.reader.read(buffer)
    }
}

impl<R: Read> Read for HaltableStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.head.get_ref().is_empty() {
            let read = self.head.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.head = Cursor::default();
        }
        self.read_below(buffer)
    }
}

/// The reason why a stream cannot be read any further.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub reason: String,
    /// True if another attempt would fail in the same way.
    pub is_permanent: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Damage {}

impl Damage {
    /// Creates damage that may not occur again in another attempt.
    pub fn transient(told: impl Into<String>) -> Self {
        Damage {
            reason: told.into(),
            is_permanent: false,
        }
    }

    pub fn permanent(told: impl Into<String>) -> Self {
        Damage {
            reason: told.into(),
            is_permanent: true,
        }
    }

    /// Returns the damage contained in a read error, if any.
    pub fn of(error: &io::Error) -> Option<&Damage> {
        error.get_ref()?.downcast_ref::<Damage>()
    }
}

/// Converts a read error into damage, of the content or of the underlying system.
pub(crate) fn damage(error: &io::Error) -> Damage {
    if let Some(damage) = Damage::of(error) {
        return damage.clone();
    }
    match error.kind() {
        _ if error.raw_os_error().is_some() => {
            Damage::transient(format!("it can't be read any further: {error}"))
        }
        ErrorKind::UnexpectedEof => {
            Damage::permanent("the compressed data is cut off: it ends early")
        }
        _ => Damage::permanent(format!("the compressed data is damaged: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{gzip, zstd};
    use proptest::prelude::*;

    fn is_damage(error: &io::Error) -> bool {
        error.raw_os_error().is_none()
    }

    /// Returns a few bytes at a time, and `WouldBlock` between two reads.
    struct Hesitating<'a> {
        bytes: &'a [u8],
        piece: usize,
        is_ready: bool,
    }

    impl Read for Hesitating<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.is_ready = !self.is_ready;
            if !self.is_ready {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = self.piece.min(buffer.len());
            self.bytes.read(&mut buffer[..count])
        }
    }

    /// Returns the bytes read, and the result at the end.
    fn drain(reader: &mut impl Read, size: usize) -> (Vec<u8>, io::Result<()>) {
        let (mut all, mut buffer) = (Vec::new(), vec![0; size]);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return (all, Ok(())),
                Ok(read) => all.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return (all, Err(error)),
            }
        }
    }

    fn text() -> Vec<u8> {
        let lines = (0..30_000u64).map(|n| format!("line {n} {}\n", n * n % 7919));
        lines.collect::<String>().into_bytes()
    }

    proptest! {
        #[test]
        fn any_pieces_of_a_stream_that_hesitates_give_the_same_bytes(
            content in prop::collection::vec(any::<u8>(), 0..600),
            piece in 1usize..40,
            size in 1usize..40,
        ) {
            let twice = [gzip(&content), gzip(&content)].concat();
            let zstds = [zstd(&content), zstd(&content)].concat();
            for packed in [twice, zstds] {
                let below = Hesitating { bytes: &packed, piece, is_ready: false };
                let (all, end) = drain(&mut Decompressed::new(below), size);
                prop_assert!(end.is_ok(), "{end:?}");
                prop_assert_eq!(all, content.repeat(2));
            }
        }
    }

    #[test]
    fn the_beginning_of_a_magic_is_plain_and_a_whole_one_without_more_is_damage() {
        let whole = [GZIP_MAGIC, ZSTD_MAGIC];
        for plain in [
            b"".as_slice(),
            b"a",
            b"ab",
            &[0x1f],
            &ZSTD_MAGIC[..3],
            b"\x1f\n",
        ] {
            let (all, end) = drain(&mut Decompressed::new(plain), 2);
            assert!(end.is_ok() && all == plain, "{plain:?}");
        }
        for magic in whole {
            let (all, end) = drain(&mut Decompressed::new(magic), 2);
            assert!(all.is_empty() && is_damage(&end.unwrap_err()));
        }
        for compression in [Compression::Gzip, Compression::Zstd] {
            let mut promised = Decompressed::new(&b"text"[..]).promised(compression);
            assert!(is_damage(&drain(&mut promised, 9).1.unwrap_err()));
        }
    }

    #[test]
    fn halted_it_gives_what_was_read_and_ends_in_good_order() {
        let text = text();
        for packed in [gzip(&text), zstd(&text), text.clone()] {
            let mut whole = Decompressed::new(&packed[..]);
            let mut first = [0; 10];
            let read = whole.read(&mut first).unwrap();
            whole.halt();
            let (rest, end) = drain(&mut whole, 100);
            assert!(end.is_ok(), "{end:?}");
            let got = [&first[..read], &rest].concat();
            assert_eq!(got, text[..got.len()]);
            assert!(got.len() < text.len());
        }
    }

    #[test]
    fn what_is_broken_and_not_only_missing_is_damage_also_when_halted() {
        let mut packed = gzip(b"some text");
        let checksum = packed.len() - 8;
        packed[checksum] ^= 1;
        let mut broken = Decompressed::new(&packed[..]);
        assert!(broken.read(&mut [0; 1]).is_ok());
        broken.halt();
        assert!(is_damage(&drain(&mut broken, 100).1.unwrap_err()));
    }

    #[test]
    fn zeros_behind_a_member_are_padding_and_members_may_follow_them() {
        for pack in [gzip, zstd] {
            let (one, two) = (pack(b"one\n"), pack(b"two\n"));
            for zeros in [1, 511, COMPRESSED_BLOCKS] {
                let padding = vec![0; zeros];
                let packed = [&one[..], &padding, &two, &padding].concat();
                for piece in [1, 7, 100_000] {
                    let below = Hesitating {
                        bytes: &packed,
                        piece,
                        is_ready: false,
                    };
                    let (all, end) = drain(&mut Decompressed::new(below), 100);
                    assert!(end.is_ok(), "{end:?}");
                    assert_eq!(all, b"one\ntwo\n");
                }
            }
        }
    }

    /// More than one read of compressed data.
    const COMPRESSED_BLOCKS: usize = 200_000;

    #[test]
    fn whatever_else_is_behind_a_member_is_damage_and_so_is_a_member_that_ends_early() {
        for pack in [gzip, zstd] {
            let (one, two) = (pack(b"one\n"), pack(b"two, which is longer\n"));
            let mut broken = two.clone();
            let at = broken.len() / 2;
            broken[at] ^= 0x55;
            let behind: [&[u8]; 7] = [
                b"x",
                b"text behind it",
                b"\0\0\0x",
                &two[..1],
                &two[..two.len() / 2],
                &two[..two.len() - 1],
                &broken,
            ];
            for behind in behind {
                let packed = [&one[..], behind].concat();
                let (all, end) = drain(&mut Decompressed::new(&packed[..]), 3);
                assert!(all.starts_with(b"one\n"), "{behind:?}");
                assert!(is_damage(&end.unwrap_err()), "{behind:?}");
            }
        }
    }

    #[test]
    fn a_frame_without_data_may_come_first() {
        let mut packed = vec![0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        packed.extend(zstd(b"text\n"));
        for piece in 1..9 {
            let below = Hesitating {
                bytes: &packed,
                piece,
                is_ready: false,
            };
            let (all, end) = drain(&mut Decompressed::new(below), 100);
            assert!(end.is_ok() && all == b"text\n", "{end:?}");
        }
        let (all, end) = drain(&mut Decompressed::new(&b"PS: text"[..]), 3);
        assert!(end.is_ok() && all == b"PS: text");
    }
}
