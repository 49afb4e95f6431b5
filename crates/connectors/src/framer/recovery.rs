//! The way back into a stream of CSV behind a field that was not closed.
//!
//! The record with the open quote is set aside, up to the next line that makes sense: one with which a record begins
//! that is quoted as a writer would do it, and that has as many fields as the header. Lines before it that make none
//! are set aside with it, up to [`MOST_SET_ASIDE`].

use memchr::memchr;

use super::fault::Fault;
use super::quotes::QuoteScan;
use super::{Frame, Framer};

/// The most bytes that are set aside as one record.
const MOST_SET_ASIDE: usize = 64 << 10;

/// A record that is being set aside. Offsets count from its beginning, which is that of the framer's next frame.
pub(super) struct Recovery {
    fault: Fault,
    /// The end of what is set aside for sure, and the beginning of the line that is judged.
    candidate: usize,
    /// The lines before that.
    lines: u64,
    /// The scan of the record that begins there, and how far it has come.
    scan: QuoteScan,
    scanned: usize,
}

/// The judgement of a line.
enum Verdict {
    /// It makes sense, or there is nothing left to judge.
    GoOn,
    /// It makes none.
    Senseless,
    /// More bytes have to come first.
    Unknown,
}

impl Framer {
    /// Sets aside the record at hand because of its field that opens at the offset `opened`. In a line of its own it is
    /// a frame at once; `line_end` is the place of the newline that ends the line at hand, if it is there.
    pub(super) fn set_aside(
        &mut self,
        fault: Fault,
        opened: usize,
        line_end: Option<usize>,
    ) -> Option<Frame<'_>> {
        let from = self.start + opened;
        let until = line_end.unwrap_or(self.end);
        let Some(newline) = memchr(b'\n', &self.buffer[from..until]) else {
            // Nothing speaks against the next line.
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

    /// Looks for the line to go on with; then yields what was set aside.
    pub(super) fn recover(&mut self) -> Option<Frame<'_>> {
        let mut recovery = self.recovery.take()?;
        loop {
            match self.judge(&mut recovery) {
                Verdict::Unknown => {
                    self.recovery = Some(recovery);
                    return None;
                }
                Verdict::Senseless if recovery.candidate < MOST_SET_ASIDE => {
                    let from = self.start + recovery.candidate;
                    let newline = memchr(b'\n', &self.buffer[from..self.end]);
                    let next = newline.map_or(self.end, |at| from + at + 1);
                    recovery.lines += 1;
                    recovery.judge_at(next - self.start);
                }
                Verdict::Senseless | Verdict::GoOn => break,
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
                    // A line that is too long is dealt with as one; a record is not that long.
                    let is_line = memchr(b'\n', &self.buffer[from..horizon]).is_none();
                    return if is_line {
                        Verdict::GoOn
                    } else {
                        Verdict::Senseless
                    };
                }
                None => return Verdict::Unknown,
            };
            if until == from && newline.is_none() {
                return Verdict::GoOn;
            }
            recovery.scan.scan_all(at - from, &self.buffer[at..until]);
            let length = until - from;
            let is_open = recovery.scan.is_open();
            if !recovery.scan.is_sensible()
                || is_open
                    && (newline.is_none() || length - recovery.scan.opened() > self.max_quoted)
            {
                return Verdict::Senseless;
            }
            if !is_open {
                let fields = recovery.scan.fields();
                return match self.expected_fields.is_none_or(|wanted| wanted == fields) {
                    true => Verdict::GoOn,
                    false => Verdict::Senseless,
                };
            }
            // The newline belongs to a field.
            recovery.scanned = until + 1 - self.start;
        }
    }

    /// The number of fields of a record that spans lines, if it is not that of the header.
    pub(super) fn wrong_fields(&self, until: usize) -> Option<Fault> {
        let wants = self.expected_fields?;
        let mut scan = self.scan.clone()?.afresh();
        scan.scan_all(0, &self.buffer[self.start..until]);
        let has = scan.fields();
        (has != wants).then_some(Fault::Fields { has, wants })
    }
}

impl Recovery {
    /// The bytes that wait in the buffer for the end of the recovery.
    pub fn set_aside(&self) -> usize {
        self.candidate
    }

    /// The line at this offset is judged next.
    fn judge_at(&mut self, candidate: usize) {
        self.candidate = candidate;
        self.scanned = candidate;
        self.scan = self.scan.afresh();
    }
}
