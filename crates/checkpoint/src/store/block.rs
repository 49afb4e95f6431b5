//! Blocks: the files that contain entries.
//!
//! A block contains entries of one state of one vertex, sorted by slot and key. All numbers are
//! little-endian.
//!
//! | at | bytes | content |
//! |---|---|---|
//! | 0 | 8 | `ARDBLOCK` |
//! | 8 | 2 | version of the format: 1 |
//! | 10 | 1 | compression: 0 none, 1 zstd, in consecutive frames |
//! | 11 | 1 | kind of slots: 0 partitions, 1 instances |
//! | 12 | 4 | first slot |
//! | 16 | 4 | last slot |
//! | 20 | 8 | generation |
//! | 28 | 8 | epoch |
//! | 36 | 4 | entries |
//! | 40 | 4 | bytes of the uncompressed content |
//! | 44 | 4 | bytes of the compressed content |
//! | 48 | 2, 2, 2 | bytes of the names of job, vertex and state |
//! | 54 | | the names, in UTF-8; the compressed content |
//! | end - 8 | 8 | xxh3-64 of all bytes before |
//!
//! The content is a group for each slot, ascending: slot (4), number of entries (4), bytes of the
//! entries (4), then the entries, by ascending keys: bytes of the key (varint), the key, 0 for a
//! tombstone or 1 + the bytes of the value (varint), the value. Varints are LEB128 of at most 5
//! bytes.

mod content;
mod head;

use ardea_core::Result;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::store::failure::{damaged, gone};
use crate::store::file_name::{FileName, StoredName};
use crate::store::partitions::Span;
use crate::store::{CheckpointId, ObjectStore};

pub(crate) use content::{Content, ContentBuilder, Cursor, KEY_MOST_BYTES, VALUE_MOST_BYTES};
pub(crate) use head::{Head, Packing};

/// The size of the checksum at the end.
const CHECKSUM_BYTES: usize = 8;

/// The identity of a block: job, checkpoint, vertex and state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Subject {
    pub job: String,
    pub checkpoint: CheckpointId,
    pub vertex: String,
    pub state: String,
}

/// A reference to a block in a manifest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BlockRef {
    pub file: String,
    /// The range of the slots (partitions or instances) of its entries.
    pub places: Span,
    pub entries: u32,
    pub bytes: u32,
    /// The size of the uncompressed content.
    pub unpacked: u32,
    /// The checksum at the end of the file. In JSON it is hexadecimal text, since JSON numbers are
    /// not exact for 64 bits in all languages.
    pub xxh3: Checksum,
}

impl BlockRef {
    /// Returns the file name of the block; `None` if it is not a valid name.
    pub fn name(&self) -> Option<FileName> {
        let name = FileName::new(self.file.as_str())?;
        matches!(StoredName::parse(&name), Some(StoredName::Block(_))).then_some(name)
    }
}

/// A checksum, serialized as 16 hexadecimal digits.
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

/// The encoded file of a block, with the fields of its [`BlockRef`].
pub(crate) struct Sealed {
    pub file: Vec<u8>,
    pub places: Span,
    pub entries: u32,
    pub unpacked: u32,
    pub checksum: Checksum,
}

/// Encodes the file of a block with this content, which must not be empty. Uses the compressed form
/// `packed` if it is given and small enough.
pub(crate) fn seal(subject: &Subject, content: &ContentBuilder, packed: Option<&[u8]>) -> Sealed {
    let raw = content.bytes();
    // A saving below 1/16 is not worth the time to decompress.
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

/// The expected identity of a block to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub job: &'a str,
    pub vertex: &'a str,
    pub state: &'a str,
}

/// Reads a block and checks everything except its entries. Costs one read of the file, a checksum
/// over it, and decompression.
///
/// # Errors
/// `CheckpointDamaged` with the file name, if the file is missing or differs from the reference
/// `block`; `VersionMismatch`; those of the store.
pub(crate) fn read(
    folder: &dyn ObjectStore,
    block: &BlockRef,
    expected: Expected,
) -> Result<Content> {
    let (name, file) = read_file(folder, block)?;
    let wrong = |why: String| damaged(&name, &folder.place(), why);
    let head = Head::read(&file, &name, &folder.place())?;
    let Subject {
        job,
        vertex,
        state,
        checkpoint,
    } = &head.subject;
    let is_expected = job == expected.job && vertex == expected.vertex && state == expected.state;
    let is_named = matches!(
        StoredName::parse(&name),
        Some(StoredName::Block(block)) if block.checkpoint == *checkpoint
    );
    let is_as_said =
        (head.places, head.entries, head.unpacked) == (block.places, block.entries, block.unpacked);
    if !is_expected || !is_named || !is_as_said {
        return Err(wrong(
            "its contents differ from its entry in the manifest".to_string(),
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

/// Reads a block's file, and checks its size and checksum against the reference.
pub(crate) fn read_file(folder: &dyn ObjectStore, block: &BlockRef) -> Result<(FileName, Bytes)> {
    let name = block.name().ok_or_else(|| {
        ardea_core::Error::new(
            ardea_core::ErrorCode::CheckpointDamaged,
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
