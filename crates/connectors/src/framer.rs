//! Splitting of a stream of bytes into frames, in bounded memory.

mod framing_error;
mod quotes;
mod recovery;

use std::io::{self, Read};

use memchr::memchr;

use crate::format::Framing;
use crate::stream_position::{StreamPosition, TrailingBytes};
use framing_error::hole;
pub(crate) use framing_error::{FramingError, refuse_hole};
use quotes::QuoteScan;
use recovery::Recovery;

/// The number of bytes of an overlong frame that are retained for its dead letter.
pub(crate) const KEPT_OF_OVERLONG: usize = 4096;

/// The optional byte order mark before a text, which is not part of the text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Buffer space beyond the maximum frame length, so that bytes after a frame of maximum length can
/// be read.
const SLACK: usize = 64 << 10;

/// A frame without its newline.
pub(crate) struct Frame<'a> {
    /// The bytes; only a prefix if the frame is overlong.
    pub bytes: &'a [u8],
    /// The number of lines that it spans.
    pub lines: u64,
    /// The reason why the frame cannot be decoded, if any.
    pub fault: Option<FramingError>,
}

/// The limits of frames, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// The maximum length of a frame without its newline.
    pub frame: usize,
    /// The maximum length of a quoted field that spans lines.
    pub quoted: usize,
}

/// An overlong frame that is being skipped.
struct Skipping {
    prefix: Vec<u8>,
    bytes: u64,
    /// True if the frame has contained only zeros so far.
    is_zero: bool,
    /// The bytes before the frame.
    passed: TrailingBytes,
}

/// Splits a stream into frames: [`fill`](Framer::fill) reads bytes, [`next`](Framer::next) returns
/// frames.
///
/// The frames do not depend on how the bytes are split into reads.
///
/// **Invariant:** `start <= scanned <= end <= buffer.len()`; no frame ends in `start..scanned`, and
/// `scan` is the state at `scanned`. The buffer grows with the longest frame, up to the limit.
pub(crate) struct Framer {
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
    /// The number of lines of the frame that end before `scanned`.
    inner_lines: u64,
    /// The scan of the frame for quoted fields, if the format has them.
    scan: Option<QuoteScan>,
    max: usize,
    max_quoted: usize,
    /// The number of fields of each record, once a header was read.
    expected_fields: Option<usize>,
    /// A record with an unclosed quote that is being set aside.
    recovery: Option<Recovery>,
    skipping: Option<Skipping>,
    /// The bytes of the overlong frame returned last, which that [`Frame`] borrows.
    overlong: Vec<u8>,
    /// True if the buffer may contain zeros.
    has_zeros: bool,
    ended: bool,
    /// The bytes before the buffer.
    passed: TrailingBytes,
}

impl Framer {
    /// Creates a framer that reads `read_size` bytes at a time. A frame over the limits is a fault.
    pub fn new(framing: Framing, limits: Limits, read_size: usize) -> Self {
        let scan = match framing {
            Framing::Lines => None,
            Framing::Quoted { quote, delimiter } => Some(QuoteScan::new(quote, delimiter)),
        };
        let mut framer = Framer {
            buffer: vec![0; read_size.max(1)],
            start: 0,
            scanned: 0,
            end: 0,
            inner_lines: 0,
            scan,
            max: limits.frame,
            max_quoted: limits.quoted.min(limits.frame),
            expected_fields: None,
            recovery: None,
            skipping: None,
            overlong: Vec::new(),
            has_zeros: false,
            ended: false,
            passed: TrailingBytes::default(),
        };
        framer.begin();
        framer
    }

    /// Starts a new stream and drops the rest of the previous stream.
    pub fn begin(&mut self) {
        (self.start, self.scanned, self.end) = (0, 0, 0);
        self.restart();
        if let Some(scan) = &mut self.scan {
            scan.expect_mark();
        }
        self.expected_fields = None;
        self.recovery = None;
        self.skipping = None;
        self.has_zeros = false;
        self.ended = false;
        self.passed = TrailingBytes::default();
    }

    /// Continues a stream at a restored position. The expected number of fields is retained.
    pub fn begin_at(&mut self, place: &StreamPosition) {
        let fields = self.expected_fields;
        self.begin();
        if place.offset > 0 {
            self.restart();
        }
        self.expected_fields = fields;
        self.passed = TrailingBytes::up_to(place);
    }

    /// Starts a stream after the bytes `before`, which do not count towards the offset.
    pub fn begin_behind(&mut self, before: &TrailingBytes) {
        self.begin();
        self.restart();
        self.passed = TrailingBytes::behind(before);
    }

    /// Returns the size of the buffer in bytes.
    #[cfg(test)]
    pub fn room(&self) -> usize {
        self.buffer.len()
    }

    /// Sets the number of fields of each further record; `None` if it is not fixed.
    pub fn expect_fields(&mut self, fields: Option<usize>) {
        self.expected_fields = fields;
    }

    /// Returns the number of bytes before the next frame.
    pub fn offset(&self) -> u64 {
        match &self.skipping {
            Some(skipping) => skipping.passed.count,
            None => self.passed.count + self.start as u64,
        }
    }

    /// Returns the position of the next frame, which is in line `line`. Makes two small
    /// allocations.
    pub fn place(&self, line: u64) -> StreamPosition {
        match &self.skipping {
            Some(skipping) => skipping.passed.clone().place(line),
            None => self.passed_before(self.start).place(line),
        }
    }

    /// Returns the last bytes before the index `at` of the buffer.
    fn passed_before(&self, at: usize) -> TrailingBytes {
        let mut passed = self.passed.clone();
        passed.add(&self.buffer[..at]);
        passed
    }

    /// Reads once from `reader`; called when [`next`](Self::next) returns `None`. Zero bytes mean
    /// the end of the stream.
    pub fn fill(&mut self, reader: &mut (impl Read + ?Sized)) -> io::Result<usize> {
        if self.start > 0 {
            self.passed.add(&self.buffer[..self.start]);
            self.buffer.copy_within(self.start..self.end, 0);
            self.scanned -= self.start;
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == 0 {
            self.has_zeros = false;
        }
        if self.end == self.buffer.len() {
            let set_aside = self.recovery.as_ref().map_or(0, Recovery::set_aside);
            let most = self.max.saturating_add(SLACK).saturating_add(set_aside);
            let grown = self
                .buffer
                .len()
                .saturating_mul(2)
                .clamp(self.end + 1, most.max(self.end + 1));
            self.buffer.resize(grown, 0);
        }
        let read = reader.read(&mut self.buffer[self.end..])?;
        self.has_zeros |= memchr(0, &self.buffer[self.end..self.end + read]).is_some();
        self.end += read;
        Ok(read)
    }

    /// Marks the end of the stream: a last frame without newline is returned as well.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Returns true if there are bytes after the last complete frame.
    pub fn has_partial(&self) -> bool {
        self.skipping.is_some() || self.start < self.end
    }

    /// Takes the bytes after the last complete frame; for a frame that is being skipped, only its
    /// first bytes.
    pub fn take_partial(&mut self) -> Option<Vec<u8>> {
        let partial = match self.skipping.take() {
            Some(skipping) => Some(skipping.prefix),
            None if self.start < self.end => Some(self.buffer[self.start..self.end].to_vec()),
            None => None,
        };
        self.begin();
        partial
    }

    /// Returns the highest buffer index up to which a frame that starts at `start`, or its newline,
    /// may reach.
    #[inline]
    fn horizon(&self, start: usize) -> usize {
        self.end
            .min(start.saturating_add(self.max).saturating_add(1))
    }

    /// Returns the next frame; `None` if more bytes are needed.
    #[inline]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        if self.skipping.is_some() {
            return self.skip();
        }
        if self.recovery.is_some() {
            return self.recover();
        }
        let horizon = self.horizon(self.start);
        loop {
            let Some(offset) = memchr(b'\n', &self.buffer[self.scanned..horizon]) else {
                return self.without_newline(horizon);
            };
            let newline = self.scanned + offset;
            if let Some(scan) = &mut self.scan {
                let from = self.scanned - self.start;
                scan.scan(from, &self.buffer[self.scanned..newline]);
                if let Some(fault) = scan.fault() {
                    let opened = scan.opened();
                    return self.set_aside(fault, opened, Some(newline));
                }
                if scan.is_open() {
                    let opened = scan.opened();
                    if newline - self.start - opened > self.max_quoted {
                        let fault = FramingError::OpenTooLong(self.max_quoted);
                        return self.set_aside(fault, opened, Some(newline));
                    }
                    self.inner_lines += 1;
                    self.scanned = newline + 1;
                    continue;
                }
                if self.inner_lines > 0
                    && let Some(fault) = self.wrong_fields(newline)
                {
                    return self.set_aside(fault, 0, Some(newline));
                }
            }
            return Some(self.checked_frame(newline, newline + 1));
        }
    }

    /// Returns the frame that ends at `end` after checking it for holes. The next frame starts at
    /// `next`.
    #[inline]
    fn checked_frame(&mut self, end: usize, next: usize) -> Frame<'_> {
        let fault = match self.has_zeros {
            true => hole(&self.buffer[self.start..end], &mut 0),
            false => None,
        };
        self.take(end, next, self.inner_lines + 1, fault)
    }

    /// Returns the frame that ends at `end`. The next frame starts at `next`.
    #[inline]
    fn take(
        &mut self,
        end: usize,
        next: usize,
        lines: u64,
        fault: Option<FramingError>,
    ) -> Frame<'_> {
        let start = self.start;
        self.start = next;
        self.scanned = next;
        self.restart();
        Frame {
            bytes: &self.buffer[start..end],
            lines,
            fault,
        }
    }

    fn restart(&mut self) {
        self.inner_lines = 0;
        if let Some(scan) = &mut self.scan {
            scan.restart();
        }
    }

    /// Handles the absence of a newline before `horizon`: waits for more bytes, ends the stream, or
    /// skips an overlong frame.
    fn without_newline(&mut self, horizon: usize) -> Option<Frame<'_>> {
        let from = self.scanned - self.start;
        let mut fault = None;
        let is_overlong = horizon - self.start > self.max;
        let is_last = self.ended && !is_overlong;
        if let Some(scan) = &mut self.scan {
            scan.scan(from, &self.buffer[self.scanned..horizon]);
            let open = match is_overlong {
                true => FramingError::OpenTooLong(self.max_quoted),
                false => FramingError::Unclosed,
            };
            let open = (scan.is_open() && (is_last || is_overlong)).then_some(open);
            let at = scan.opened();
            fault = scan.fault().or(open).map(|fault| (fault, at));
        }
        self.scanned = horizon;
        if horizon == self.start {
            return None;
        }
        if is_last && self.inner_lines > 0 && fault.is_none() {
            fault = self.wrong_fields(horizon).map(|fault| (fault, 0));
        }
        if let Some((fault, opened)) = fault {
            let opening = self.start + opened..horizon;
            if is_last || memchr(b'\n', &self.buffer[opening]).is_some() {
                return self.set_aside(fault, opened, None);
            }
        }
        if is_overlong {
            return self.pass_over(horizon);
        }
        if !is_last {
            return None;
        }
        let is_first = self.passed.count == 0 && self.start == 0;
        if is_first && self.buffer[..horizon] == *BYTE_ORDER_MARK {
            // A file without lines.
            self.start = horizon;
            return None;
        }
        if self.has_zeros
            && self.buffer[self.start..horizon]
                .iter()
                .all(|&byte| byte == 0)
        {
            // Padding, for example to the end of a block.
            self.start = horizon;
            return None;
        }
        Some(self.checked_frame(horizon, horizon))
    }

    /// Starts to skip a frame that reaches `horizon` and exceeds the maximum length.
    fn pass_over(&mut self, horizon: usize) -> Option<Frame<'_>> {
        let bytes = &self.buffer[self.start..horizon];
        self.skipping = Some(Skipping {
            prefix: bytes[..bytes.len().min(KEPT_OF_OVERLONG)].to_vec(),
            bytes: bytes.len() as u64,
            is_zero: self.has_zeros && bytes.iter().all(|&byte| byte == 0),
            passed: self.passed_before(self.start),
        });
        self.start = horizon;
        self.skip()
    }

    /// Skips an overlong frame up to its newline.
    fn skip(&mut self) -> Option<Frame<'_>> {
        let rest = &self.buffer[self.start..self.end];
        let newline = memchr(b'\n', rest);
        let skipped = &rest[..newline.unwrap_or(rest.len())];
        let skipping = self.skipping.as_mut()?;
        skipping.bytes += skipped.len() as u64;
        skipping.is_zero &= skipped.iter().all(|&byte| byte == 0);
        self.start += skipped.len() + usize::from(newline.is_some());
        self.scanned = self.start;
        if newline.is_none() && !self.ended {
            return None;
        }
        let skipping = self.skipping.take()?;
        let lines = self.inner_lines + 1;
        self.restart();
        if skipping.is_zero && newline.is_none() {
            return None;
        }
        self.overlong = skipping.prefix;
        Some(Frame {
            bytes: &self.overlong,
            lines,
            fault: Some(FramingError::Overlong(skipping.bytes)),
        })
    }
}

#[cfg(test)]
mod tests;
