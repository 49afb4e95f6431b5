//! Resynchronization of a CSV stream after an unclosed quoted field.
//!
//! The record with the unclosed quote is set aside, and becomes one bad record together with the
//! following implausible lines, up to [`MOST_SET_ASIDE`] bytes. A line is plausible if it starts a
//! record with proper quoting and as many fields as the header.

use memchr::memchr;

use super::framing_error::FramingError;
use super::quotes::QuoteScan;
use super::{Frame, Framer};

/// The maximum number of bytes set aside as one record.
const MOST_SET_ASIDE: usize = 64 << 10;

/// A record that is being set aside. Offsets are relative to its start, where the framer's next
/// frame begins.
pub(super) struct Recovery {
    fault: FramingError,
    /// The end of the bytes that are set aside, where the next candidate line starts.
    candidate: usize,
    /// The number of lines before the candidate.
    lines: u64,
    /// The scan of the record at the candidate, and the offset reached by it.
    scan: QuoteScan,
    scanned: usize,
}

/// The verdict on a candidate line.
enum Verdict {
    /// The line is plausible, or no bytes are left.
    Plausible,
    /// The line is implausible.
    Implausible,
    /// More bytes are needed.
    Unknown,
}

impl Framer {
    /// Sets aside the present record because of its field that opens at the offset `opened`. If the
    /// field opens on the last line of the record, the frame is returned at once. `line_end` is the
    /// index of the newline that ends the present line, if it was read.
    pub(super) fn set_aside(
        &mut self,
        fault: FramingError,
        opened: usize,
        line_end: Option<usize>,
    ) -> Option<Frame<'_>> {
        let from = self.start + opened;
        let until = line_end.unwrap_or(self.end);
        let Some(newline) = memchr(b'\n', &self.buffer[from..until]) else {
            // The next line is not affected.
            let (next, lines) = (line_end.map_or(until, |at| at + 1), self.inner_lines + 1);
            return Some(self.take(until, next, lines, Some(fault)));
        };
        let scan = self.scan.clone()?;
        let candidate = opened + newline + 1;
        let before = &self.buffer[self.start..self.start + candidate];
        let lines = memchr::memchr_iter(b'\n', before).count() as u64;
        let mut recovery = Recovery {
            fault,
            candidate,
            lines,
            scan,
            scanned: candidate,
        };
        recovery.judge_at(candidate);
        self.recovery = Some(recovery);
        self.recover()
    }

    /// Searches for the next plausible line, then returns the bytes set aside.
    pub(super) fn recover(&mut self) -> Option<Frame<'_>> {
        let mut recovery = self.recovery.take()?;
        loop {
            match self.judge(&mut recovery) {
                Verdict::Unknown => {
                    self.recovery = Some(recovery);
                    return None;
                }
                Verdict::Implausible if recovery.candidate < MOST_SET_ASIDE => {
                    let from = self.start + recovery.candidate;
                    let newline = memchr(b'\n', &self.buffer[from..self.end]);
                    let next = newline.map_or(self.end, |at| from + at + 1);
                    recovery.lines += 1;
                    recovery.judge_at(next - self.start);
                }
                Verdict::Implausible | Verdict::Plausible => break,
            }
        }
        let next = self.start + recovery.candidate;
        let has_newline = self.buffer[..next].ends_with(b"\n");
        let (end, lines) = (next - usize::from(has_newline), recovery.lines);
        Some(self.take(end, next, lines, Some(recovery.fault)))
    }

    fn judge(&self, recovery: &mut Recovery) -> Verdict {
        let from = self.start + recovery.candidate;
        let horizon = self.horizon(from);
        loop {
            let at = self.start + recovery.scanned;
            let newline = memchr(b'\n', &self.buffer[at..horizon]);
            let until = match newline {
                Some(offset) => at + offset,
                None if self.ended && horizon == self.end => self.end,
                None if horizon - from > self.max => {
                    // An overlong line is handled later as an overlong frame; a record of several
                    // lines is not that long.
                    let is_line = memchr(b'\n', &self.buffer[from..horizon]).is_none();
                    return if is_line {
                        Verdict::Plausible
                    } else {
                        Verdict::Implausible
                    };
                }
                None => return Verdict::Unknown,
            };
            if until == from && newline.is_none() {
                return Verdict::Plausible;
            }
            recovery.scan.scan_all(at - from, &self.buffer[at..until]);
            let length = until - from;
            let is_open = recovery.scan.is_open();
            if !recovery.scan.is_sensible()
                || is_open
                    && (newline.is_none() || length - recovery.scan.opened() > self.max_quoted)
            {
                return Verdict::Implausible;
            }
            if !is_open {
                let fields = recovery.scan.fields();
                return match self.expected_fields.is_none_or(|wanted| wanted == fields) {
                    true => Verdict::Plausible,
                    false => Verdict::Implausible,
                };
            }
            // The newline belongs to a field.
            recovery.scanned = until + 1 - self.start;
        }
    }

    /// Returns an error if a record that spans lines has another number of fields than the header.
    pub(super) fn wrong_fields(&self, until: usize) -> Option<FramingError> {
        let wants = self.expected_fields?;
        let mut scan = self.scan.clone()?.afresh();
        scan.scan_all(0, &self.buffer[self.start..until]);
        let has = scan.fields();
        (has != wants).then_some(FramingError::Fields { has, wants })
    }
}

impl Recovery {
    /// Returns the number of bytes that must stay in the buffer.
    pub fn set_aside(&self) -> usize {
        self.candidate
    }

    /// Sets the offset of the next candidate line.
    fn judge_at(&mut self, candidate: usize) {
        self.candidate = candidate;
        self.scanned = candidate;
        self.scan = self.scan.afresh();
    }
}
