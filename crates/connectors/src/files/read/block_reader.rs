//! Reading of an instance's blocks of a file, as a stream of whole lines.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::OriginLine;
use memchr::{memchr, memchr_iter};

use super::blocks::FileBlocks;
use super::member_finder::MemberFinder;
use super::packed_blocks::{self, BlockLine};
use crate::files::checked::Checked;
use crate::files::location::{SourceFile, is_bucket};
use crate::files::open::open_at_once;

/// The number of bytes read after the end of a block to complete its last line.
pub(in crate::files) const TAIL: usize = 4 << 10;

/// The number of bytes without a line's beginning after which a read returns, so that the job can
/// be cancelled.
pub(super) const MAX_SCAN: u64 = 4 << 20;

/// The size of a read while lines are counted.
const COUNT_SIZE: usize = 64 << 10;

/// Reader of the lines of an instance's blocks, one block after the other. The stream contains
/// complete lines only, except for a last line of the file without newline.
pub(in crate::files) struct BlockReader {
    checked: Checked,
    blocks: FileBlocks,
    /// The stride and the end of the block that is being read.
    current: Option<(usize, u64)>,
    /// The offset in the stream.
    offset: u64,
    positions: Arc<BlockPositions>,
}

impl BlockReader {
    pub fn new(file: SourceFile, path: &Path, mut blocks: FileBlocks) -> io::Result<Self> {
        blocks.skip_finished();
        let positions = BlockPositions::new(path, &blocks, None);
        Ok(BlockReader {
            checked: Checked::new(file, 0)?.at_least(blocks.end),
            offset: positions.start,
            blocks,
            current: None,
            positions: Arc::new(positions),
        })
    }

    /// Returns the positions of the stream in the file.
    pub fn positions(&self) -> Arc<BlockPositions> {
        Arc::clone(&self.positions)
    }

    /// Moves to the next block with a line. Returns false at the end.
    fn begin_next(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        let mut scanned = 0;
        while let Some(index) = self.blocks.lowest() {
            let (block_bytes, end) = (self.blocks.block_bytes, self.blocks.end);
            let stride = &self.blocks.strides[index];
            let start = stride.block.saturating_mul(block_bytes);
            let block_end = start.saturating_add(block_bytes).min(end);
            let first = match stride.from {
                0 => Some(0),
                from if from > start => Some(from),
                _ => self.first_line(start, block_end, scratch)?,
            };
            if let Some(from) = first {
                self.checked.jump(from);
                let start = BlockStart {
                    from,
                    first_member: 0,
                };
                self.positions
                    .begin(index, self.offset, start, &self.blocks);
                self.current = Some((index, block_end));
                self.announce_next(index);
                return Ok(true);
            }
            self.end_block(index);
            scanned += block_bytes;
            if scanned >= MAX_SCAN {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
        Ok(false)
    }

    /// Returns the offset of the first line that begins in the block from `start` to `end`.
    fn first_line(&mut self, start: u64, end: u64, scratch: &mut [u8]) -> io::Result<Option<u64>> {
        // A line begins after each newline before it.
        let (mut at, last) = (start - 1, end - 1);
        let mut size = TAIL;
        while at < last {
            let size_now = scratch.len().min(size).min(usize_of(last - at));
            let read = self.checked.file().read_at(&mut scratch[..size_now], at)?;
            if read == 0 {
                self.checked.refuse_change()?;
                break;
            }
            if let Some(newline) = memchr(b'\n', &scratch[..read]) {
                return Ok(Some(at + newline as u64 + 1));
            }
            at += read as u64;
            size = usize::MAX;
        }
        Ok(None)
    }

    /// Announces the block after the present one, of the stride `current`.
    fn announce_next(&self, current: usize) {
        if let Some(start) = self.blocks.next_start(current) {
            self.checked.file().will_read(start.saturating_sub(1));
        }
    }

    fn end_block(&mut self, stride: usize) {
        let stride = &mut self.blocks.strides[stride];
        *stride = stride.next(self.blocks.block_bytes);
    }
}

impl Read for BlockReader {
    /// # Errors
    /// An I/O error, [`Damage`](crate::decompressed::Damage) if the file has changed, or
    /// [`ErrorKind::WouldBlock`] after a long scan without a line.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some((stride, end)) = self.current else {
                if buffer.is_empty() || !self.begin_next(buffer)? {
                    return Ok(0);
                }
                continue;
            };
            let position = self.checked.position();
            let left = usize_of(end.saturating_sub(position));
            let size = buffer.len().min(left.saturating_add(TAIL));
            let read = self.checked.read_on(&mut buffer[..size])?;
            self.checked.refuse_change()?;
            // The last line contains the last byte of the block.
            let last = left.saturating_sub(1).min(read);
            let newline = memchr(b'\n', &buffer[last..read]);
            let used = newline.map_or(read, |newline| last + newline + 1);
            self.checked.advance(&buffer[..used]);
            self.offset += used as u64;
            if newline.is_some() || read == 0 {
                self.current = None;
                self.end_block(stride);
            }
            if used > 0 {
                return Ok(used);
            }
        }
    }
}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The positions of a [`BlockReader`]'s stream in the file.
#[derive(Debug)]
pub(crate) struct BlockPositions {
    /// The path of the file, which is opened again to count lines.
    path: PathBuf,
    /// The offset with which the stream begins.
    start: u64,
    /// The members of a compressed file.
    members: Option<Arc<MemberFinder>>,
    state: Mutex<Positions>,
}

#[derive(Debug)]
struct Positions {
    /// The blocks in the stream whose records have not all been emitted.
    segments: VecDeque<StreamBlock>,
    /// The blocks without the segments before these.
    unread: FileBlocks,
    /// An offset in the file, and the number of the line that contains it.
    counted: (u64, u64),
    /// The line counted last in a compressed file.
    counted_block: BlockLine,
}

/// The place of a line.
#[derive(Clone, Copy, Debug)]
struct LinePosition {
    block: u64,
    first_member: u64,
    /// The offset in the file; in a compressed file, in the content of the block.
    offset: u64,
}

/// The place of the first line of a block in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockStart {
    /// The offset of the line in the file; in a compressed file, in the content of the block.
    pub from: u64,
    /// The offset of the block's first member, in a compressed file.
    pub first_member: u64,
}

/// A block in the stream.
#[derive(Clone, Copy, Debug)]
struct StreamBlock {
    /// The offset of its first line in the stream.
    at: u64,
    start: BlockStart,
    /// The index of its stride.
    stride: usize,
    block: u64,
}

impl BlockPositions {
    fn new(path: &Path, blocks: &FileBlocks, members: Option<Arc<MemberFinder>>) -> Self {
        BlockPositions {
            path: path.to_path_buf(),
            start: blocks.start(),
            members,
            state: Mutex::new(Positions {
                segments: VecDeque::new(),
                unread: blocks.clone(),
                counted: (0, 1),
                counted_block: BlockLine { block: 0, line: 1 },
            }),
        }
    }

    /// Creates the positions in a compressed file.
    pub(super) fn packed(path: &Path, blocks: &FileBlocks, members: Arc<MemberFinder>) -> Self {
        BlockPositions::new(path, blocks, Some(members))
    }

    /// Returns the offset with which the stream begins.
    pub fn start(&self) -> u64 {
        self.start
    }

    fn lock(&self) -> MutexGuard<'_, Positions> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a block that begins at the end of the stream.
    pub(super) fn begin(&self, stride: usize, at: u64, start: BlockStart, blocks: &FileBlocks) {
        let block = blocks.strides[stride].block;
        self.lock().segments.push_back(StreamBlock {
            at,
            start,
            stride,
            block,
        });
    }

    /// Returns the number of blocks in the stream whose records have not all been emitted.
    #[cfg(test)]
    pub fn in_flight(&self) -> usize {
        self.lock().segments.len()
    }

    /// Drops the blocks before an offset of the stream, up to which all records were emitted.
    pub fn advance(&self, offset: u64) {
        let mut state = self.lock();
        while let Some(second) = state.segments.get(1)
            && second.at <= offset
            && let Some(first) = state.segments.pop_front()
        {
            state.unread.finish(&first);
        }
    }

    /// Returns the blocks after an offset of the stream, which follows the bytes `before`.
    pub fn unread(&self, offset: u64, before: &[u8]) -> FileBlocks {
        let state = self.lock();
        let mut unread = state.unread.clone();
        let begun = state.segments.partition_point(|it| it.at <= offset);
        let passed = begun.saturating_sub(1);
        let finished = state.segments.iter().take(passed);
        finished.for_each(|segment| unread.finish(segment));
        if let Some(segment) = state.segments.get(passed) {
            let read = offset.saturating_sub(segment.at);
            let block_start = segment.block.saturating_mul(unread.block_bytes);
            let is_packed = unread.is_packed;
            let stride = &mut unread.strides[segment.stride];
            stride.block = segment.block;
            (stride.from, stride.inner) = match is_packed {
                true => (block_start, segment.start.from + read),
                false => (segment.start.from + read, 0),
            };
            let kept = before.len().min(usize_of(read));
            stride.before = before[before.len() - kept..].to_vec();
        }
        unread
    }

    /// Returns the offset in the file of an offset in the stream. In a compressed file it is the
    /// start of the block's first member.
    pub fn file_offset(&self, offset: u64) -> u64 {
        let place = self.line_position(offset);
        match self.members {
            Some(_) => place.first_member,
            None => place.offset,
        }
    }

    /// Returns the place of a line at an offset of the stream.
    fn line_position(&self, offset: u64) -> LinePosition {
        let state = self.lock();
        let begun = state.segments.partition_point(|it| it.at <= offset);
        match state.segments.get(begun.saturating_sub(1)) {
            Some(segment) => LinePosition {
                block: segment.block,
                first_member: segment.start.first_member,
                offset: segment.start.from + offset.saturating_sub(segment.at),
            },
            None => LinePosition {
                block: 0,
                first_member: 0,
                offset,
            },
        }
    }

    /// Returns the number of the line at an offset of the stream, to be counted on request.
    pub fn origin_line(self: &Arc<Self>, offset: u64) -> OriginLine {
        let (blocks, place) = (Arc::clone(self), self.line_position(offset));
        OriginLine::Deferred(Arc::new(move || blocks.count_lines(place).ok()))
    }

    /// Returns the location of the line at an offset of the stream: its number, or its offset if
    /// the lines before it cannot be counted.
    pub fn location(&self, origin: &str, offset: u64) -> String {
        let place = self.line_position(offset);
        match (self.count_lines(place), &self.members) {
            (Ok(line), _) => format!("{origin}:{line}"),
            (Err(_), None) => format!("{origin} at byte {}", place.offset),
            (Err(_), Some(_)) => format!(
                "{origin} at byte {} of the content from byte {}",
                place.offset, place.first_member
            ),
        }
    }

    /// Returns the number of the line at a place, from one. Counts the lines from the last line
    /// that was requested; in a compressed file, from the beginning of its block.
    fn count_lines(&self, place: LinePosition) -> io::Result<u64> {
        if is_bucket(&self.path) {
            // All objects would be read twice.
            return Err(ErrorKind::Unsupported.into());
        }
        let offset = place.offset;
        if let Some(members) = &self.members {
            let (mut known, block_bytes) = {
                let state = self.lock();
                (state.counted_block, state.unread.block_bytes)
            };
            let place = (place.block, offset);
            let line =
                packed_blocks::count_lines(&self.path, members, block_bytes, place, &mut known)?;
            self.lock().counted_block = known;
            return Ok(line);
        }
        let (mut at, mut line) = self.lock().counted;
        if offset < at {
            (at, line) = (0, 1);
        }
        let file = open_at_once(&self.path)?;
        let mut buffer = vec![0; COUNT_SIZE.min(usize_of(offset - at))];
        while at < offset {
            let size = buffer.len().min(usize_of(offset - at));
            let read = file.read_at(&mut buffer[..size], at)?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            line += memchr_iter(b'\n', &buffer[..read]).count() as u64;
            at += read as u64;
        }
        self.lock().counted = (at, line);
        Ok(line)
    }
}

impl FileBlocks {
    /// Marks the block of a segment as read.
    fn finish(&mut self, segment: &StreamBlock) {
        let stride = &mut self.strides[segment.stride];
        stride.block = segment.block;
        *stride = stride.next(self.block_bytes);
    }
}
