//! Reading of an instance's blocks of a compressed file of several members.
//!
//! A member belongs to the block that contains its first byte. The content of a block is that of
//! its members. A line belongs to a block if it begins behind the first line break of the content
//! of the block, or at the end of the content; the first block also has the first line.
//!
//! Members that do not say where they end are [searched for](MemberSearch) from the start of a
//! block. The reader of the members before it makes the same search from the end of its block on,
//! and fails if the results differ. So no byte is left out or read twice.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memchr::{memchr, memchr_iter};

use super::block_reader::{BlockPositions, BlockStart, MAX_SCAN};
use super::blocks::{BlockStride, FileBlocks};
use super::member_finder::MemberFinder;
use crate::decompressed::{Damage, MemberSearch, Members};
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
    fn new(file: &SourceFile, range: Range<u64>) -> io::Result<Self> {
        let mut checked = Checked::new(file.try_clone()?, 0)?;
        checked.jump(range.start);
        Ok(PackedRange {
            checked,
            end: range.end,
        })
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

/// Returns a reader of the content of the members in a range; `None` if it is empty.
fn content(
    file: &SourceFile,
    members: &MemberFinder,
    range: Range<u64>,
) -> io::Result<Option<Members<PackedRange>>> {
    if range.is_empty() {
        return Ok(None);
    }
    Members::new(members.packing(), PackedRange::new(file, range)?).map(Some)
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
    /// The members from the first one of the block on.
    content: Members<PackedRange>,
    first_member: u64,
    /// The number of bytes of the content that were read.
    read: u64,
    skip: Skip,
    /// The end of the block. Members that begin before it belong to the block.
    end: u64,
    /// The offset after the bytes that have no beginning of a later block's content.
    searched: u64,
    /// True once the line at the end of the content is being read.
    is_last_line: bool,
    /// True if the position of the first line was recorded.
    is_begun: bool,
}

/// Reader of the lines of an instance's blocks, one block after the other.
pub(in crate::files) struct PackedBlockReader {
    file: SourceFile,
    members: Arc<MemberFinder>,
    /// The search for a member, if it waits for bytes.
    search: Option<MemberSearch>,
    blocks: FileBlocks,
    current: Option<CurrentBlock>,
    /// The offset in the stream.
    offset: u64,
    positions: Arc<BlockPositions>,
}

impl PackedBlockReader {
    /// # Errors
    /// An I/O error, or [`ErrorKind::InvalidData`] if another file has the name of the shared one.
    pub fn new(file: SourceFile, path: &Path, blocks: FileBlocks) -> io::Result<Self> {
        let members = MemberFinder::of(&file, blocks.end, blocks.block_bytes)?;
        let members = members.ok_or(ErrorKind::InvalidData)?;
        Ok(PackedBlockReader::with_members(file, path, blocks, members))
    }

    /// Creates a reader of a file with these members.
    pub(super) fn with_members(
        file: SourceFile,
        path: &Path,
        blocks: FileBlocks,
        members: MemberFinder,
    ) -> Self {
        let members = Arc::new(members);
        let positions = BlockPositions::packed(path, &blocks, Arc::clone(&members));
        PackedBlockReader {
            file,
            members,
            search: None,
            offset: positions.start(),
            blocks,
            current: None,
            positions: Arc::new(positions),
        }
    }

    /// Returns the positions of the stream in the file.
    pub fn positions(&self) -> Arc<BlockPositions> {
        Arc::clone(&self.positions)
    }

    /// Returns the offset of the first member that begins in a range.
    fn first_in(&mut self, range: Range<u64>) -> io::Result<Option<u64>> {
        let first = self.members.first_in(range, &self.file, &mut self.search)?;
        self.search = None;
        Ok(first)
    }

    /// Moves to the next block with a member. Returns false at the end.
    fn begin_next(&mut self) -> io::Result<bool> {
        let mut scanned = 0;
        while let Some(index) = self.blocks.lowest() {
            let block_bytes = self.blocks.block_bytes;
            let BlockStride { block, inner, .. } = self.blocks.strides[index];
            let start = block.saturating_mul(block_bytes);
            let end = start.saturating_add(block_bytes);
            self.file.will_read(start);
            let first = self.first_in(start..end.min(self.members.end()))?;
            let range = first.map_or(0..0, |first| first..self.members.end());
            let Some(mut content) = content(&self.file, &self.members, range.clone())? else {
                self.end_block(index);
                scanned += block_bytes;
                if scanned >= MAX_SCAN {
                    return Err(ErrorKind::WouldBlock.into());
                }
                continue;
            };
            content.stop_at_members(true);
            if let Some(next) = self.blocks.next_start(index) {
                self.file.will_read(next);
            }
            self.current = Some(CurrentBlock {
                stride: index,
                content,
                first_member: range.start,
                read: 0,
                skip: match inner {
                    0 if range.start > 0 => Skip::Line,
                    0 => Skip::Nothing,
                    inner => Skip::Bytes(inner),
                },
                end,
                searched: end,
                is_last_line: false,
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

    /// Moves to the next member after the end of one: to one of the present block, or to the line
    /// at the end of its content. Returns false if the block has no line left.
    fn continue_block(&mut self) -> io::Result<bool> {
        let Some(current) = &mut self.current else {
            return Ok(false);
        };
        if current.is_last_line {
            return Ok(false);
        }
        let next = match current.content.skip_padding()? {
            None => None,
            Some(taken) => current
                .content
                .stream()
                .map(|range| range.checked.position() - taken as u64),
        };
        if next.is_some_and(|next| next < current.end) {
            return current.content.begin_next();
        }
        let (searched, end) = (
            current.searched,
            next.map_or(self.members.end(), |next| next + 1),
        );
        let found = match &*self.members {
            MemberFinder::Known(_) => next,
            MemberFinder::Searched { .. } if searched >= end => None,
            MemberFinder::Searched { .. } => self.first_in(searched..end)?,
        };
        let Some(current) = &mut self.current else {
            return Ok(false);
        };
        match (found, next) {
            (Some(found), next) if next != Some(found) => return Err(nested(found)),
            (None, None) => return Ok(false),
            // The next block does not begin with a damaged member, which so belongs to this one.
            (None, Some(_)) => {
                current.searched = end;
                return current.content.begin_next();
            }
            (Some(_), _) => {}
        }
        if !matches!(current.skip, Skip::Nothing) {
            // No line begins in the block, or its last line was read by an earlier attempt.
            return Ok(false);
        }
        current.is_last_line = true;
        current.content.stop_at_members(false);
        current.content.begin_next()
    }
}

/// Returns the damage of a file in which another compressed file was found.
fn nested(offset: u64) -> io::Error {
    io::Error::other(Damage::permanent(format!(
        "a compressed member contains another one, at byte {offset}, so that the members cannot be \
         told apart; read the file with one instance: in_order()"
    )))
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
            let read = current.content.read(buffer)?;
            if read == 0 {
                let stride = current.stride;
                if !self.continue_block()? {
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
        let (used, is_last) = match current.is_last_line {
            false => (bytes.len(), false),
            true => match memchr(b'\n', bytes) {
                Some(newline) => (newline + 1, true),
                None => (bytes.len(), false),
            },
        };
        let stride = current.stride;
        if !std::mem::replace(&mut current.is_begun, true) {
            let start = BlockStart {
                from: current.read,
                first_member: current.first_member,
            };
            self.positions
                .begin(stride, self.offset, start, &self.blocks);
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
    members: &MemberFinder,
    block_bytes: u64,
    (block, inner): (u64, u64),
    known: &mut BlockLine,
) -> io::Result<u64> {
    let file = SourceFile::Local(File::open(path)?);
    if block < known.block {
        *known = BlockLine { block: 0, line: 1 };
    }
    let first = |block: u64| members.first_from(&file, block.saturating_mul(block_bytes));
    let start = first(block)?;
    if block > known.block {
        let before = content(&file, members, first(known.block)?..start)?;
        known.line += count_newlines(before, u64::MAX)?;
        known.block = block;
    }
    let content = content(&file, members, start..members.end())?;
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
