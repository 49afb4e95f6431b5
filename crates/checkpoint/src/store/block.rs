//! Blocks: the files that hold entries.
//!
//! A block holds entries of one state of one vertex, sorted by place and key. All numbers are little-endian.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `ARDBLOCK` |
//! | 8 | 2 | version of the format: 1 |
//! | 10 | 1 | packing: 0 none, 1 zstd, in frames that follow each other |
//! | 11 | 1 | places: 0 partitions, 1 instances |
//! | 12 | 4 | first place |
//! | 16 | 4 | last place |
//! | 20 | 8 | generation |
//! | 28 | 8 | epoch |
//! | 36 | 4 | entries |
//! | 40 | 4 | bytes of the unpacked content |
//! | 44 | 4 | bytes of the packed content |
//! | 48 | 2, 2, 2 | bytes of the names of job, vertex and state |
//! | 54 | | the names, in UTF-8; the packed content |
//! | end - 8 | 8 | xxh3-64 of all bytes before |
//!
//! The content is a group for each place, ascending: place (4), number of entries (4), bytes of the entries (4), then the entries, by
//! ascending keys: bytes of the key (varint), the key, 0 for a removed key or 1 + the bytes of the value (varint), the value. Varints
//! are LEB128 of at most 5 bytes.

mod content;
mod head;

use ardea_core::Result;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::store::failure::{damaged, gone};
use crate::store::file_name::{FileName, StoredName};
use crate::store::partitions::Span;
use crate::store::{Folder, SnapshotId};

pub(crate) use content::{Content, ContentBuilder, Cursor, KEY_MOST_BYTES, VALUE_MOST_BYTES};
pub(crate) use head::{Head, Packing};

/// The bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 8;

/// What a block is about, but for its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Subject {
    pub job: String,
    pub snapshot: SnapshotId,
    pub vertex: String,
    pub state: String,
}

/// What a manifest says of a block.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BlockRef {
    /// The file.
    pub file: String,
    /// The places of its entries.
    pub places: Span,
    /// How many entries it has.
    pub entries: u32,
    /// The size of the file.
    pub bytes: u32,
    /// The size of its unpacked content.
    pub unpacked: u32,
    /// The checksum at its end, in hexadecimal: not all languages read a number of 64 bits from JSON.
    pub xxh3: Checksum,
}

impl BlockRef {
    /// The name of the file, if it is one of a block.
    pub fn name(&self) -> Option<FileName> {
        let name = FileName::new(self.file.as_str())?;
        matches!(StoredName::parse(&name), Some(StoredName::Block(_))).then_some(name)
    }
}

/// A checksum, written as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Checksum(pub u64);

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        format!("{:016x}", checksum.0)
    }
}

impl TryFrom<String> for Checksum {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16)
            .map(Checksum)
            .map_err(|_| "this is no checksum")
    }
}

/// A block's file, with what a manifest says of it but its name.
pub(crate) struct Sealed {
    pub file: Vec<u8>,
    pub places: Span,
    pub entries: u32,
    pub unpacked: u32,
    pub checksum: Checksum,
}

/// The file of a block with this content, which is not empty, and may have been packed.
pub(crate) fn seal(subject: &Subject, content: &ContentBuilder, packed: Option<&[u8]>) -> Sealed {
    let raw = content.bytes();
    // What is hardly smaller isn't worth the time to unpack it.
    let packed = packed.filter(|packed| packed.len() < raw.len() - raw.len() / 16);
    let (packing, body) = match packed {
        Some(packed) => (Packing::Zstd, packed),
        None => (Packing::None, raw),
    };
    let head = Head {
        subject: subject.clone(),
        packing,
        places: content.places(),
        entries: content.entries(),
        unpacked: raw.len() as u32,
        packed: body.len() as u32,
    };
    let mut file = Vec::with_capacity(body.len() + 256);
    head.write(&mut file);
    file.extend_from_slice(body);
    let checksum = xxh3_64(&file);
    file.extend_from_slice(&checksum.to_le_bytes());
    Sealed {
        file,
        places: head.places,
        entries: head.entries,
        unpacked: head.unpacked,
        checksum: Checksum(checksum),
    }
}

/// Whose block is expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub job: &'a str,
    pub vertex: &'a str,
    pub state: &'a str,
}

/// Reads a block and checks all that can be checked without looking at its entries. Costs reading the file once, a checksum over it,
/// and unpacking it.
///
/// # Errors
/// `SnapshotDamaged`, which names the file, if it is missing or not what the manifest says; `VersionMismatch`; the folder's errors.
pub(crate) fn read(folder: &dyn Folder, block: &BlockRef, expected: Expected) -> Result<Content> {
    let (name, file) = read_file(folder, block)?;
    let wrong = |why: String| damaged(&name, &folder.place(), why);
    let head = Head::read(&file, &name, &folder.place())?;
    let Subject {
        job,
        vertex,
        state,
        snapshot,
    } = &head.subject;
    let is_expected = job == expected.job && vertex == expected.vertex && state == expected.state;
    let is_named = matches!(
        StoredName::parse(&name),
        Some(StoredName::Block(block)) if block.snapshot == *snapshot
    );
    let is_as_said =
        (head.places, head.entries, head.unpacked) == (block.places, block.entries, block.unpacked);
    if !is_expected || !is_named || !is_as_said {
        return Err(wrong(
            "it holds something else than its manifest says".to_string(),
        ));
    }
    let start = head.bytes();
    let end = file.len() - CHECKSUM_BYTES;
    if start + head.packed as usize != end {
        return Err(wrong("its length is not what its head says".to_string()));
    }
    let body = file.slice(start..end);
    let unpacked = head.unpacked as usize;
    let raw = match head.packing {
        Packing::None => body,
        Packing::Zstd => zstd::bulk::decompress(&body, unpacked)
            .map(Bytes::from)
            .map_err(|error| wrong(format!("it can't be unpacked: {error}")))?,
    };
    if raw.len() != unpacked {
        return Err(wrong(
            "its content has another length than its head says".to_string(),
        ));
    }
    Content::read(raw, head.places, head.entries)
        .map_err(|why| wrong(why.to_string()))
        .map(|content| content.of(name.clone(), folder.place()))
}

/// Reads a block's file, and checks that it is the one that the manifest means, byte by byte.
pub(crate) fn read_file(folder: &dyn Folder, block: &BlockRef) -> Result<(FileName, Bytes)> {
    let name = block.name().ok_or_else(|| {
        ardea_core::Error::new(
            ardea_core::ErrorCode::SnapshotDamaged,
            format!(
                "a manifest in {} names {:?} as a block",
                folder.place(),
                block.file
            ),
        )
    })?;
    let place = || folder.place();
    let file = folder.read(&name)?.ok_or_else(|| gone(&name, &place()))?;
    if file.len() != block.bytes as usize {
        let why = format!("it has {} bytes of {}", file.len(), block.bytes);
        return Err(damaged(&name, &place(), why));
    }
    let (before, checksum) = file
        .split_last_chunk::<CHECKSUM_BYTES>()
        .ok_or_else(|| damaged(&name, &place(), "it is too short"))?;
    let checksum = u64::from_le_bytes(*checksum);
    if checksum != block.xxh3.0 || xxh3_64(before) != checksum {
        return Err(damaged(&name, &place(), "its checksum is wrong"));
    }
    Ok((name, file))
}
