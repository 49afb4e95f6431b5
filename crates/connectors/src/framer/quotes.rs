//! Quoted fields: where they open and close.

use memchr::memchr;

use super::BYTE_ORDER_MARK;
use super::fault::{Fault, hole};

/// The place of the scan in a record.
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
    /// In white space behind a closing quote.
    AfterSpace,
}

/// Scans the bytes of one record for its quoted fields, in any pieces.
#[derive(Clone, Debug)]
pub(super) struct QuoteScan {
    quote: u8,
    delimiter: u8,
    quoting: Quoting,
    /// The offset of the quote that opened the latest quoted field.
    opened: usize,
    /// Delimiters outside of quotes. [`scan`](Self::scan) passes over lines without a quote and counts none there.
    delimiters: usize,
    /// True if there is a quote in a field without quotes.
    has_stray: bool,
    /// The run of zeros at the end of a quoted field, so far.
    zeros: usize,
    fault: Option<Fault>,
    /// The number of bytes of a byte order mark that have been seen, while one may be there.
    mark: Option<usize>,
}

impl QuoteScan {
    pub fn new(quote: u8, delimiter: u8) -> Self {
        QuoteScan {
            quote,
            delimiter,
            quoting: Quoting::FieldStart,
            opened: 0,
            delimiters: 0,
            has_stray: false,
            zeros: 0,
            fault: None,
            mark: None,
        }
    }

    /// A scan of another record of the same format.
    pub fn afresh(&self) -> Self {
        QuoteScan::new(self.quote, self.delimiter)
    }

    /// Another record begins.
    #[inline]
    pub fn restart(&mut self) {
        self.quoting = Quoting::FieldStart;
        self.fault = None;
        self.mark = None;
    }

    /// A stream begins: a byte order mark may come first.
    pub fn expect_mark(&mut self) {
        self.mark = Some(0);
    }

    /// Returns true if a newline here belongs to a field.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.quoting == Quoting::Quoted
    }

    /// The offset in the record of the quote that opened the latest quoted field.
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// The first sign that a quoted field was not meant to be one.
    #[inline]
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Scans bytes that begin at the offset `from` of the record. A newline among them belongs to a quoted field.
    #[inline]
    pub fn scan(&mut self, from: usize, bytes: &[u8]) {
        let is_bare = matches!(self.quoting, Quoting::FieldStart | Quoting::Bare);
        if is_bare && memchr(self.quote, bytes).is_none() {
            // The state is looked at behind a newline only, where these two are alike.
            match bytes.last() {
                None => {}
                Some(&last) if last == self.delimiter => self.quoting = Quoting::FieldStart,
                Some(_) if self.mark.is_some() => self.scan_all(from, bytes),
                Some(_) => self.quoting = Quoting::Bare,
            }
            return;
        }
        self.scan_all(from, bytes);
    }

    /// As [`scan`](Self::scan), and counts fields.
    pub fn scan_all(&mut self, from: usize, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() && self.fault.is_none() {
            if let Some(seen) = self.mark {
                let is_mark = bytes[at] == BYTE_ORDER_MARK[seen];
                self.mark = Some(seen + 1).filter(|&seen| is_mark && seen < BYTE_ORDER_MARK.len());
                if is_mark {
                    at += 1;
                    continue;
                }
            }
            if self.quoting == Quoting::Quoted {
                let rest = &bytes[at..];
                let closing = memchr(self.quote, rest);
                let inside = &rest[..closing.unwrap_or(rest.len())];
                self.fault = hole(inside, &mut self.zeros);
                if closing.is_none() {
                    return;
                }
                at += inside.len();
                self.quoting = Quoting::AfterQuote;
            } else {
                self.step(from + at, bytes[at]);
            }
            at += 1;
        }
    }

    /// Takes one byte outside of a quoted field.
    #[inline]
    fn step(&mut self, at: usize, byte: u8) {
        let is_behind = matches!(self.quoting, Quoting::AfterQuote | Quoting::AfterSpace);
        self.quoting = match self.quoting {
            _ if byte == self.delimiter => {
                self.delimiters += 1;
                Quoting::FieldStart
            }
            Quoting::FieldStart if byte == self.quote => {
                self.opened = at;
                self.zeros = 0;
                Quoting::Quoted
            }
            Quoting::AfterQuote if byte == self.quote => Quoting::Quoted,
            _ if is_behind && matches!(byte, b' ' | b'\t' | b'\r') => Quoting::AfterSpace,
            _ if is_behind => {
                let opened = self.opened;
                self.fault = Some(Fault::TextBehindQuote { at, opened });
                Quoting::Bare
            }
            _ => {
                self.has_stray |= byte == self.quote;
                Quoting::Bare
            }
        };
    }

    /// The number of fields of the record that was scanned by [`scan_all`](Self::scan_all).
    pub fn fields(&self) -> usize {
        self.delimiters + 1
    }

    /// Returns true if all that was scanned is quoted as a writer of this format would do it.
    pub fn is_sensible(&self) -> bool {
        self.fault.is_none() && !self.has_stray
    }
}
