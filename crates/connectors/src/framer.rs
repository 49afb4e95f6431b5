//! Cuts a stream of bytes into frames, in bounded memory.

mod fault;
mod quotes;
mod recovery;

use std::io::{self, Read};

use memchr::memchr;

use crate::format::Framing;
use crate::place::{Passed, Place};
use fault::hole;
pub(crate) use fault::{Fault, refuse_hole};
use quotes::QuoteScan;
use recovery::Recovery;

/// The number of bytes of a frame over the limit that are kept for its dead letter.
pub(crate) const KEPT_OF_OVERLONG: usize = 4096;

/// The mark that a text may begin with; it is no part of the text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Room beyond the limit, so that a frame at the limit still leaves some to read into.
const SLACK: usize = 64 << 10;

/// One frame, without its newline.
pub(crate) struct Frame<'a> {
    /// The bytes; of an overlong frame only the first.
    pub bytes: &'a [u8],
    /// The number of lines that it takes up.
    pub lines: u64,
    /// The reason why it can't be decoded, if there is one.
    pub fault: Option<Fault>,
}

/// The bounds of frames, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Of a frame without its newline.
    pub frame: usize,
    /// Of a quoted field that spans lines.
    pub quoted: usize,
}

/// A frame over the limit that is being passed over.
struct Skipping {
    prefix: Vec<u8>,
    bytes: u64,
    /// True if it has held zeros only so far.
    is_zero: bool,
    /// The bytes before it.
    passed: Passed,
}

/// Cuts a stream into frames: bytes go in by [`fill`](Framer::fill), frames come out by [`next`](Framer::next).
///
/// The frames depend on the bytes alone, not on the pieces in which they come.
///
/// **Invariant:** `start <= scanned <= end <= buffer.len()`; no frame ends in `start..scanned`, and `scan` is the
/// state at `scanned`. The buffer grows with the longest frame, up to the limit.
pub(crate) struct Framer {
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
    /// Lines of the frame that end before `scanned`.
    inner_lines: u64,
    /// The scan of the frame for quoted fields, if the format has those.
    scan: Option<QuoteScan>,
    max: usize,
    max_quoted: usize,
    /// The number of fields of each record, once a header has told it.
    expected_fields: Option<usize>,
    /// A record with an open quote that is being set aside.
    recovery: Option<Recovery>,
    skipping: Option<Skipping>,
    /// The overlong frame reported last; kept here so that it can be lent out.
    overlong: Vec<u8>,
    /// True if there may be zeros in the buffer.
    has_zeros: bool,
    ended: bool,
    /// The bytes before the buffer.
    passed: Passed,
}

impl Framer {
    /// Reads `read_size` bytes at a time; a frame over the limits is a fault.
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
            passed: Passed::default(),
        };
        framer.begin();
        framer
    }

    /// A new stream begins; what is left of the last one is forgotten.
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
        self.passed = Passed::default();
    }

    /// A stream goes on that was read up to this place. The number of fields stays the one told before.
    pub fn begin_at(&mut self, place: &Place) {
        let fields = self.expected_fields;
        self.begin();
        if place.offset > 0 {
            self.restart();
        }
        self.expected_fields = fields;
        self.passed = Passed::up_to(place);
    }

    /// A stream begins behind these bytes of another one, of which none counts.
    pub fn begin_behind(&mut self, before: &Passed) {
        self.begin();
        self.restart();
        self.passed = Passed::behind(before);
    }

    /// Tells the number of fields that each record has from now on, if all have the same.
    pub fn expect_fields(&mut self, fields: Option<usize>) {
        self.expected_fields = fields;
    }

    /// The number of bytes before the next frame.
    pub fn offset(&self) -> u64 {
        match &self.skipping {
            Some(skipping) => skipping.passed.count,
            None => self.passed.count + self.start as u64,
        }
    }

    /// The place of the next frame, which is in line `line`. Costs two small allocations.
    pub fn place(&self, line: u64) -> Place {
        match &self.skipping {
            Some(skipping) => skipping.passed.clone().place(line),
            None => self.passed_before(self.start).place(line),
        }
    }

    /// The bytes before this place in the buffer.
    fn passed_before(&self, at: usize) -> Passed {
        let mut passed = self.passed.clone();
        passed.add(&self.buffer[..at]);
        passed
    }

    /// Reads once from `reader`; for when [`next`](Self::next) has nothing. Zero bytes mean the end, as with any reader.
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

    /// The stream has ended: a last frame without newline counts as well.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Returns true if there are bytes behind the last complete frame.
    pub fn has_partial(&self) -> bool {
        self.skipping.is_some() || self.start < self.end
    }

    /// Takes out the bytes behind the last complete frame; a frame being passed over yields its first bytes.
    pub fn take_partial(&mut self) -> Option<Vec<u8>> {
        let partial = match self.skipping.take() {
            Some(skipping) => Some(skipping.prefix),
            None if self.start < self.end => Some(self.buffer[self.start..self.end].to_vec()),
            None => None,
        };
        self.begin();
        partial
    }

    /// The end of the bytes that may belong to a frame that begins at `start`, or end it.
    #[inline]
    fn horizon(&self, start: usize) -> usize {
        self.end
            .min(start.saturating_add(self.max).saturating_add(1))
    }

    /// The next frame, if a whole one is there.
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
                        let fault = Fault::OpenTooLong(self.max_quoted);
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
            return Some(self.cut(newline, newline + 1));
        }
    }

    /// Cuts off the frame that ends at `end`, the next one beginning at `next`.
    #[inline]
    fn cut(&mut self, end: usize, next: usize) -> Frame<'_> {
        let fault = match self.has_zeros {
            true => hole(&self.buffer[self.start..end], &mut 0),
            false => None,
        };
        self.take(end, next, self.inner_lines + 1, fault)
    }

    /// Takes out the frame that ends at `end`, the next one beginning at `next`.
    #[inline]
    fn take(&mut self, end: usize, next: usize, lines: u64, fault: Option<Fault>) -> Frame<'_> {
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

    /// No newline is left before `horizon`: waits for more, or ends the stream, or gives up on an overlong frame.
    fn without_newline(&mut self, horizon: usize) -> Option<Frame<'_>> {
        let from = self.scanned - self.start;
        let mut fault = None;
        let is_overlong = horizon - self.start > self.max;
        let is_last = self.ended && !is_overlong;
        if let Some(scan) = &mut self.scan {
            scan.scan(from, &self.buffer[self.scanned..horizon]);
            let open = match is_overlong {
                true => Fault::OpenTooLong(self.max_quoted),
                false => Fault::Unclosed,
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
            // A file of no lines.
            self.start = horizon;
            return None;
        }
        if self.has_zeros
            && self.buffer[self.start..horizon]
                .iter()
                .all(|&byte| byte == 0)
        {
            // Padding, up to the end of a block for example.
            self.start = horizon;
            return None;
        }
        Some(self.cut(horizon, horizon))
    }

    /// Begins to pass over a frame that has more bytes than the limit before `horizon`.
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

    /// Passes over an overlong frame up to its newline.
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
            fault: Some(Fault::Overlong(skipping.bytes)),
        })
    }
}

#[cfg(test)]
mod tests;
