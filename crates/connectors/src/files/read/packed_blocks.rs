//! Reading of an instance's blocks of a compressed file whose members say where they end.
//!
//! A member belongs to the block that contains its first byte. The content of a block is that of
//! its members. A line belongs to a block if it begins behind the first line break of the content
//! of the block, or at the end of the content; the first block also has the first line.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memchr::{memchr, memchr_iter};

use super::block_reader::{BlockPositions, MAX_SCAN};
use super::blocks::FileBlocks;
use crate::decompressed::{MemberIndex, Members};
use crate::files::checked::Checked;
use crate::files::location::SourceFile;

/// The size of a read while lines are counted.
const SKIP_SIZE: usize = 64 << 10;

/// A reader of the compressed bytes of a range of a file.
struct PackedRange {
    checked: Checked,
    end: u64,
}

impl PackedRange {
    fn new(file: &File, start: u64, end: u64) -> io::Result<Self> {
        let mut checked = Checked::new(SourceFile::Local(file.try_clone()?), 0)?;
        checked.jump(start);
        Ok(PackedRange { checked, end })
    }
}

impl Read for PackedRange {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_sub(self.checked.position());
        let size = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        match size {
            0 => Ok(0),
            size => self.checked.read(&mut buffer[..size]),
        }
    }
}

/// Returns a reader of the content of the members from `start` to `end`; `None` if there are none.
fn content(
    file: &File,
    members: &MemberIndex,
    start: u64,
    end: u64,
) -> io::Result<Option<Members<PackedRange>>> {
    if start >= end {
        return Ok(None);
    }
    Members::new(members.packing, PackedRange::new(file, start, end)?).map(Some)
}

/// The bytes to leave out before the first line of a block.
enum Skip {
    /// The line that belongs to an earlier block.
    Line,
    /// The content up to a restored position; contains the number of bytes.
    Bytes(u64),
    Nothing,
}

impl Skip {
    /// Returns the number of bytes at the beginning of `bytes` to leave out.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        match self {
            Skip::Nothing => 0,
            Skip::Line => match memchr(b'\n', bytes) {
                Some(newline) => {
                    *self = Skip::Nothing;
                    newline + 1
                }
                None => bytes.len(),
            },
            Skip::Bytes(left) => {
                let count = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                *left -= count as u64;
                if *left == 0 {
                    *self = Skip::Nothing;
                }
                count
            }
        }
    }
}

/// The block that is being read.
struct CurrentBlock {
    stride: usize,
    content: Option<Members<PackedRange>>,
    /// The number of bytes of the content that were read.
    read: u64,
    skip: Skip,
    /// The offset of the member after the block; `None` once the line at the end of the content is
    /// being read.
    next: Option<u64>,
    /// True if the position of the first line was recorded.
    is_begun: bool,
}

/// Reader of the lines of an instance's blocks, one block after the other.
pub(in crate::files) struct PackedBlockReader {
    file: File,
    members: Arc<MemberIndex>,
    blocks: FileBlocks,
    current: Option<CurrentBlock>,
    /// The offset in the stream.
    offset: u64,
    positions: Arc<BlockPositions>,
}

impl PackedBlockReader {
    /// # Errors
    /// An I/O error, or [`ErrorKind::InvalidData`] if the members of the file do not say where they
    /// end: another file has its name.
    pub fn new(file: File, path: &Path, blocks: FileBlocks) -> io::Result<Self> {
        let read_at =
            |buffer: &mut [u8], offset| std::os::unix::fs::FileExt::read_at(&file, buffer, offset);
        let found = MemberIndex::find(read_at, blocks.end, blocks.block_bytes)?;
        let members = Arc::new(found.ok_or(ErrorKind::InvalidData)?);
        let positions = BlockPositions::packed(path, &blocks, Arc::clone(&members));
        Ok(PackedBlockReader {
            file,
            members,
            offset: positions.start(),
            blocks,
            current: None,
            positions: Arc::new(positions),
        })
    }

    /// Returns the positions of the stream in the file.
    pub fn positions(&self) -> Arc<BlockPositions> {
        Arc::clone(&self.positions)
    }

    /// Moves to the next block with a member. Returns false at the end.
    fn begin_next(&mut self) -> io::Result<bool> {
        while let Some(index) = self.blocks.lowest() {
            let stride = &self.blocks.strides[index];
            let start = stride.block.saturating_mul(self.blocks.block_bytes);
            let end = start.saturating_add(self.blocks.block_bytes);
            let first = self.members.first_from(start);
            let next = self.members.first_from(end);
            let Some(content) = content(&self.file, &self.members, first, next)? else {
                self.end_block(index);
                continue;
            };
            self.current = Some(CurrentBlock {
                stride: index,
                content: Some(content),
                read: 0,
                skip: match stride.inner {
                    0 if first > 0 => Skip::Line,
                    0 => Skip::Nothing,
                    inner => Skip::Bytes(inner),
                },
                next: Some(next),
                is_begun: false,
            });
            return Ok(true);
        }
        Ok(false)
    }

    fn end_block(&mut self, stride: usize) {
        let stride = &mut self.blocks.strides[stride];
        *stride = stride.next(self.blocks.block_bytes);
    }

    /// Moves to the line at the end of the content of the present block, which may begin in the
    /// next member. Returns false if the block has no line left.
    fn begin_last_line(&mut self) -> io::Result<bool> {
        let Some(current) = &mut self.current else {
            return Ok(false);
        };
        let Some(next) = current.next.take() else {
            return Ok(false);
        };
        if !matches!(current.skip, Skip::Nothing) {
            // No line begins in the block, or its last line was read by an earlier attempt.
            return Ok(false);
        }
        current.content = content(&self.file, &self.members, next, self.members.end)?;
        Ok(current.content.is_some())
    }
}

impl Read for PackedBlockReader {
    /// # Errors
    /// An I/O error, damage of the compressed data, or [`ErrorKind::WouldBlock`] after a long scan
    /// without a line.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut scanned = 0;
        while !buffer.is_empty() {
            if self.current.is_none() && !self.begin_next()? {
                return Ok(0);
            }
            let Some(current) = &mut self.current else {
                return Ok(0);
            };
            let read = match &mut current.content {
                Some(content) => content.read(buffer)?,
                None => 0,
            };
            if read == 0 {
                let stride = current.stride;
                if !self.begin_last_line()? {
                    self.current = None;
                    self.end_block(stride);
                }
                continue;
            }
            let skipped = current.skip.advance(&buffer[..read]);
            current.read += skipped as u64;
            scanned += skipped as u64;
            if skipped < read {
                return Ok(self.emit(buffer, skipped..read));
            }
            if scanned >= MAX_SCAN {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
        Ok(0)
    }
}

impl PackedBlockReader {
    /// Moves the bytes of a range, which belong to the present block, to the beginning of the
    /// buffer, up to the end of its last line. Returns their number.
    fn emit(&mut self, buffer: &mut [u8], range: Range<usize>) -> usize {
        let Some(current) = &mut self.current else {
            return 0;
        };
        let bytes = &buffer[range.clone()];
        let (used, is_last) = match current.next {
            Some(_) => (bytes.len(), false),
            None => match memchr(b'\n', bytes) {
                Some(newline) => (newline + 1, true),
                None => (bytes.len(), false),
            },
        };
        let stride = current.stride;
        if !std::mem::replace(&mut current.is_begun, true) {
            self.positions
                .begin(stride, self.offset, current.read, &self.blocks);
        }
        current.read += used as u64;
        self.offset += used as u64;
        buffer.copy_within(range.start..range.start + used, 0);
        if is_last {
            self.current = None;
            self.end_block(stride);
        }
        used
    }
}

/// The number of a line at the beginning of the content of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockLine {
    pub block: u64,
    pub line: u64,
}

/// Counts the lines of a compressed file up to a byte of the content of a block. `known` is a line
/// counted before; it is set to the line at the beginning of the block.
pub(super) fn count_lines(
    path: &Path,
    members: &MemberIndex,
    block_bytes: u64,
    (block, inner): (u64, u64),
    known: &mut BlockLine,
) -> io::Result<u64> {
    let file = File::open(path)?;
    if block < known.block {
        *known = BlockLine { block: 0, line: 1 };
    }
    let first = |block: u64| members.first_from(block.saturating_mul(block_bytes));
    if block > known.block {
        let before = content(&file, members, first(known.block), first(block))?;
        known.line += count_newlines(before, u64::MAX)?;
        known.block = block;
    }
    let content = content(&file, members, first(block), members.end)?;
    Ok(known.line + count_newlines(content, inner)?)
}

/// Returns the number of line breaks in the first `most` bytes of a content.
fn count_newlines(content: Option<impl Read>, most: u64) -> io::Result<u64> {
    let Some(content) = content else {
        return Ok(0);
    };
    let mut content = content.take(most);
    let (mut buffer, mut count) = (vec![0; SKIP_SIZE], 0);
    loop {
        match content.read(&mut buffer)? {
            0 => return Ok(count),
            read => count += memchr_iter(b'\n', &buffer[..read]).count() as u64,
        }
    }
}
