//! Cuts a stream of bytes into frames, in bounded memory.

use std::io::{self, Read};

use memchr::memchr;

use crate::format::Framing;
use crate::place::{Passed, Place};

/// How much of a frame over the limit is kept for its dead letter.
pub(crate) const KEPT_OF_OVERLONG: usize = 4096;

/// Room beyond the limit, so that a frame at the limit still leaves some to read into.
const SLACK: usize = 64 << 10;

/// One frame, without its newline.
pub(crate) struct Frame<'a> {
    /// The bytes; of an overlong frame only the first.
    pub bytes: &'a [u8],
    /// How many lines it takes up.
    pub lines: u64,
    /// Why it can't be decoded, if it can't.
    pub fault: Option<Fault>,
}

/// What is wrong with a frame as such.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It has that many bytes, more than the limit.
    Overlong(u64),
    /// A quoted field opens in this line and is closed nowhere.
    Unclosed,
}

/// Where in a CSV record the scan is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quoting {
    /// At the start of a field.
    FieldStart,
    /// In a field without quotes; quotes in it are plain bytes.
    Bare,
    /// In a quoted field; newlines in it are plain bytes.
    Quoted,
    /// Behind a quote in a quoted field: its end, or the first of a doubled pair.
    AfterQuote,
}

/// A frame over the limit that is being passed over.
struct Skipping {
    prefix: Vec<u8>,
    bytes: u64,
    /// What came before it.
    passed: Passed,
}

/// Cuts a stream into frames: bytes go in by [`fill`](Framer::fill), frames come out by [`next`](Framer::next).
///
/// **Invariant:** `start <= scanned <= end <= buffer.len()`; no frame ends in `start..scanned`, and `quoting` is the
/// state at `scanned`. The buffer grows with the longest frame, up to the limit.
pub(crate) struct Framer {
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
    /// Lines of the frame that end before `scanned`.
    inner_lines: u64,
    quoting: Quoting,
    framing: Framing,
    max: usize,
    skipping: Option<Skipping>,
    /// The overlong frame reported last; kept here so that it can be lent out.
    overlong: Vec<u8>,
    ended: bool,
    /// What came before the buffer.
    passed: Passed,
}

impl Framer {
    /// Reads `read_size` bytes at a time; a frame of more than `max` bytes is a fault.
    pub fn new(framing: Framing, max: usize, read_size: usize) -> Self {
        Framer {
            buffer: vec![0; read_size.max(1)],
            start: 0,
            scanned: 0,
            end: 0,
            inner_lines: 0,
            quoting: Quoting::FieldStart,
            framing,
            max,
            skipping: None,
            overlong: Vec::new(),
            ended: false,
            passed: Passed::default(),
        }
    }

    /// A new stream begins; what is left of the last one is forgotten.
    pub fn begin(&mut self) {
        (self.start, self.scanned, self.end) = (0, 0, 0);
        self.restart();
        self.skipping = None;
        self.ended = false;
        self.passed = Passed::default();
    }

    /// A stream goes on that was read up to this place.
    pub fn begin_at(&mut self, place: &Place) {
        self.begin();
        self.passed = Passed::up_to(place);
    }

    /// How many bytes come before the next frame.
    pub fn offset(&self) -> u64 {
        match &self.skipping {
            Some(skipping) => skipping.passed.count,
            None => self.passed.count + self.start as u64,
        }
    }

    /// Where the next frame begins, which is in line `line`. Costs two small allocations.
    pub fn place(&self, line: u64) -> Place {
        match &self.skipping {
            Some(skipping) => skipping.passed.clone().place(line),
            None => self.passed_before(self.start).place(line),
        }
    }

    /// What came before this place in the buffer.
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
        if self.end == self.buffer.len() {
            let most = self.max.saturating_add(SLACK);
            let grown = self
                .buffer
                .len()
                .saturating_mul(2)
                .clamp(self.end + 1, most.max(self.end + 1));
            self.buffer.resize(grown, 0);
        }
        let read = reader.read(&mut self.buffer[self.end..])?;
        self.end += read;
        Ok(read)
    }

    /// The stream has ended: a last frame without newline counts as well.
    pub fn end(&mut self) {
        self.ended = true;
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

    /// The next frame, if a whole one is there.
    #[inline]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        if self.skipping.is_some() {
            return self.skip();
        }
        loop {
            let Some(offset) = memchr(b'\n', &self.buffer[self.scanned..self.end]) else {
                return self.without_newline();
            };
            let newline = self.scanned + offset;
            if self.ends_frame(newline) {
                return Some(self.cut(newline, newline + 1, 1));
            }
            self.inner_lines += 1;
            self.scanned = newline + 1;
        }
    }

    /// Whether the newline at `newline` ends the frame; brings `quoting` there.
    #[inline]
    fn ends_frame(&mut self, newline: usize) -> bool {
        self.scan_quotes(newline);
        self.quoting != Quoting::Quoted
    }

    /// Brings `quoting` from `scanned` to `until`.
    #[inline]
    fn scan_quotes(&mut self, until: usize) {
        let Framing::Quoted { quote, delimiter } = self.framing else {
            return;
        };
        let bytes = &self.buffer[self.scanned..until];
        let at_frame_start = self.quoting == Quoting::FieldStart && self.scanned == self.start;
        if at_frame_start && memchr(quote, bytes).is_none() {
            // No quote in the line: what state it leaves is asked only at a newline, where these two are alike.
            self.quoting = if bytes.last().is_none_or(|&last| last == delimiter) {
                Quoting::FieldStart
            } else {
                Quoting::Bare
            };
            return;
        }
        for &byte in bytes {
            self.quoting = match self.quoting {
                Quoting::FieldStart | Quoting::AfterQuote if byte == quote => Quoting::Quoted,
                Quoting::Quoted if byte == quote => Quoting::AfterQuote,
                Quoting::Quoted => Quoting::Quoted,
                _ if byte == delimiter => Quoting::FieldStart,
                _ => Quoting::Bare,
            };
        }
    }

    /// Cuts off the frame that ends at `end`, the next one beginning at `next`.
    #[inline]
    fn cut(&mut self, end: usize, next: usize, own_lines: u64) -> Frame<'_> {
        let (start, lines) = (self.start, self.inner_lines + own_lines);
        self.start = next;
        self.scanned = next;
        self.restart();
        let length = end - start;
        if length > self.max {
            let bytes = &self.buffer[start..start + length.min(KEPT_OF_OVERLONG)];
            return Frame {
                bytes,
                lines,
                fault: Some(Fault::Overlong(length as u64)),
            };
        }
        Frame {
            bytes: &self.buffer[start..end],
            lines,
            fault: None,
        }
    }

    fn restart(&mut self) {
        self.inner_lines = 0;
        self.quoting = Quoting::FieldStart;
    }

    /// No newline is left: waits for more, or ends the stream, or gives up on an overlong frame.
    fn without_newline(&mut self) -> Option<Frame<'_>> {
        self.scan_quotes(self.end);
        self.scanned = self.end;
        let length = self.end - self.start;
        let too_long = length > self.max;
        if length == 0 || !(self.ended || too_long) {
            return None;
        }
        if self.quoting == Quoting::Quoted {
            if let Some(offset) = memchr(b'\n', &self.buffer[self.start..self.end]) {
                // The quote that opened in the first line is closed nowhere: only that line is given up.
                return Some(self.unclosed(self.start + offset));
            }
            if self.ended && !too_long {
                let frame = self.cut(self.end, self.end, 1);
                return Some(Frame {
                    fault: Some(Fault::Unclosed),
                    ..frame
                });
            }
        }
        if self.ended {
            return Some(self.cut(self.end, self.end, 1));
        }
        let prefix = self.buffer[self.start..self.start + length.min(KEPT_OF_OVERLONG)].to_vec();
        self.skipping = Some(Skipping {
            prefix,
            bytes: length as u64,
            passed: self.passed_before(self.start),
        });
        self.passed.add(&self.buffer[..self.end]);
        (self.start, self.scanned, self.end) = (0, 0, 0);
        self.quoting = Quoting::FieldStart;
        None
    }

    fn unclosed(&mut self, newline: usize) -> Frame<'_> {
        let start = self.start;
        self.start = newline + 1;
        self.scanned = newline + 1;
        self.restart();
        Frame {
            bytes: &self.buffer[start..newline],
            lines: 1,
            fault: Some(Fault::Unclosed),
        }
    }

    /// Passes over an overlong frame up to its newline.
    fn skip(&mut self) -> Option<Frame<'_>> {
        let newline = memchr(b'\n', &self.buffer[self.start..self.end]);
        let passed = newline.unwrap_or(self.end - self.start);
        let skipping = self.skipping.as_mut()?;
        skipping.bytes += passed as u64;
        self.start += passed + usize::from(newline.is_some());
        self.scanned = self.start;
        if newline.is_none() && !self.ended {
            return None;
        }
        let Skipping { prefix, bytes, .. } = self.skipping.take()?;
        let lines = self.inner_lines + 1;
        self.restart();
        self.overlong = prefix;
        Some(Frame {
            bytes: &self.overlong,
            lines,
            fault: Some(Fault::Overlong(bytes)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CSV: Framing = Framing::Quoted {
        quote: b'"',
        delimiter: b',',
    };

    /// All frames of `input`, given in pieces of `piece` bytes.
    fn frames(
        framing: Framing,
        max: usize,
        input: &[u8],
        piece: usize,
    ) -> Vec<(String, u64, Option<Fault>)> {
        let mut framer = Framer::new(framing, max, 4);
        let mut all = Vec::new();
        let mut pieces = input.chunks(piece);
        loop {
            while let Some(frame) = framer.next() {
                let text = String::from_utf8_lossy(frame.bytes).into_owned();
                all.push((text, frame.lines, frame.fault));
            }
            if framer.ended {
                return all;
            }
            match pieces.next() {
                None => framer.end(),
                Some(mut piece) => {
                    while !piece.is_empty() {
                        framer.fill(&mut piece).unwrap();
                        if !piece.is_empty() {
                            // As a reader that has more: the frames there are come first.
                            while let Some(frame) = framer.next() {
                                let text = String::from_utf8_lossy(frame.bytes).into_owned();
                                all.push((text, frame.lines, frame.fault));
                            }
                        }
                    }
                }
            }
        }
    }

    fn texts(framing: Framing, input: &str) -> Vec<String> {
        frames(framing, 1 << 20, input.as_bytes(), 7)
            .into_iter()
            .map(|(text, ..)| text)
            .collect()
    }

    #[test]
    fn a_last_line_without_newline_is_a_frame() {
        assert_eq!(texts(Framing::Lines, "a\n\nbc"), ["a", "", "bc"]);
        assert_eq!(texts(Framing::Lines, "a\n"), ["a"]);
        assert!(texts(Framing::Lines, "").is_empty());
    }

    #[test]
    fn newlines_in_quotes_do_not_end_a_record() {
        let all = frames(CSV, 1 << 20, b"a,\"b\nc\"\"\n\",d\ne,f\"g\nh\n", 3);
        let texts: Vec<_> = all
            .iter()
            .map(|(text, lines, _)| (text.as_str(), *lines))
            .collect();
        assert_eq!(texts, [("a,\"b\nc\"\"\n\",d", 3), ("e,f\"g", 1), ("h", 1)]);
    }

    #[test]
    fn an_unclosed_quote_costs_one_line_only() {
        let all = frames(CSV, 1 << 20, b"a,b\n\"x,1\nc,d\ne,f", 5);
        assert_eq!(all[1], ("\"x,1".to_string(), 1, Some(Fault::Unclosed)));
        let rest: Vec<_> = all[2..]
            .iter()
            .map(|(text, _, fault)| (text.as_str(), *fault))
            .collect();
        assert_eq!(rest, [("c,d", None), ("e,f", None)]);
    }

    #[test]
    fn a_frame_over_the_limit_is_passed_over_in_bounded_memory() {
        let mut framer = Framer::new(Framing::Lines, 1000, 16);
        let mut input = vec![b'x'; 50 << 20];
        input.extend_from_slice(b"\nnext\n");
        let mut rest = &input[..];
        let mut seen = Vec::new();
        while framer.fill(&mut rest).unwrap() > 0 {
            while let Some(frame) = framer.next() {
                seen.push((frame.bytes.len(), frame.fault));
            }
        }
        assert_eq!(
            seen,
            [
                (
                    1001.min(KEPT_OF_OVERLONG).max(seen[0].0),
                    Some(Fault::Overlong(50 << 20))
                ),
                (4, None)
            ]
        );
        assert!(seen[0].0 <= KEPT_OF_OVERLONG);
        assert!(framer.buffer.len() <= 1000 + SLACK);
    }

    #[test]
    fn a_frame_at_the_limit_passes_and_one_byte_more_does_not() {
        for piece in 1..9 {
            let all = frames(Framing::Lines, 4, b"1234\n12345\n1\n12345", piece);
            let faults: Vec<_> = all.iter().map(|(_, _, fault)| *fault).collect();
            let over = Some(Fault::Overlong(5));
            assert_eq!(faults, [None, over, None, over], "in pieces of {piece}");
        }
    }

    /// The frames from a place in `input` on, after `count` of them, and that place.
    fn resumed(
        framing: Framing,
        max: usize,
        input: &[u8],
        piece: usize,
        count: usize,
    ) -> (Vec<String>, Place) {
        let mut framer = Framer::new(framing, max, piece);
        let mut reader = input;
        let (mut seen, mut lines) = (0, 0);
        while seen < count {
            if let Some(frame) = framer.next() {
                seen += 1;
                lines += frame.lines;
            } else if framer.ended {
                break;
            } else if framer.fill(&mut reader).unwrap() == 0 {
                framer.end();
            }
        }
        let place = framer.place(lines + 1);
        assert_eq!(place.offset, framer.offset());
        let from = place.offset as usize;
        assert!(input[..from].ends_with(&place.before));
        let mut again = Framer::new(framing, max, piece);
        again.begin_at(&place);
        let mut reader = &input[from..];
        let mut rest = Vec::new();
        loop {
            if let Some(frame) = again.next() {
                rest.push(String::from_utf8_lossy(frame.bytes).into_owned());
            } else if again.ended {
                return (rest, place);
            } else if again.fill(&mut reader).unwrap() == 0 {
                again.end();
            }
        }
    }

    proptest! {
        #[test]
        fn from_any_place_the_rest_is_the_same(
            input in "[ab,\"\n]{0,80}", piece in 1usize..20, quoted in any::<bool>(), count in 0usize..12,
            max in 3usize..90,
        ) {
            // How far an open quote is looked for depends on how the input comes.
            let (framing, max) = if quoted { (CSV, 1 << 20) } else { (Framing::Lines, max) };
            let whole = frames(framing, max, input.as_bytes(), piece);
            let (rest, place) = resumed(framing, max, input.as_bytes(), piece, count);
            let passed = &whole[..count.min(whole.len())];
            let lines: u64 = passed.iter().map(|(_, lines, _)| lines).sum();
            prop_assert_eq!(place.line, lines + 1);
            let expected: Vec<_> = whole[passed.len()..].iter().map(|(text, ..)| text.clone()).collect();
            prop_assert_eq!(rest.len(), expected.len());
            if max > 80 {
                prop_assert_eq!(rest, expected);
            }
        }

        #[test]
        fn any_cut_of_the_input_gives_the_same_frames(
            input in "[ab,\"\n]{0,80}", piece in 1usize..20, quoted in any::<bool>()
        ) {
            let framing = if quoted { CSV } else { Framing::Lines };
            let whole = frames(framing, 1 << 20, input.as_bytes(), input.len().max(1));
            prop_assert_eq!(frames(framing, 1 << 20, input.as_bytes(), piece), whole.clone());
            let lines: u64 = whole.iter().map(|(_, lines, _)| lines).sum();
            prop_assert_eq!(lines as usize, input.lines().count().max(input.split_terminator('\n').count()));
        }
    }
}
