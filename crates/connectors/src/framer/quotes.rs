//! Scanner for quoted fields.

use memchr::memchr;

use super::BYTE_ORDER_MARK;
use super::framing_error::{FramingError, hole};

/// The state of the scan within a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quoting {
    /// At the start of a field.
    FieldStart,
    /// In an unquoted field; quotes in it are plain bytes.
    Bare,
    /// In a quoted field; newlines in it are plain bytes.
    Quoted,
    /// After a quote in a quoted field: its end, or the first of a doubled pair.
    AfterQuote,
    /// In white space after a closing quote.
    AfterSpace,
}

/// An incremental scan of one record for quoted fields.
#[derive(Clone, Debug)]
pub(super) struct QuoteScan {
    quote: u8,
    delimiter: u8,
    quoting: Quoting,
    /// The offset of the quote that opened the latest quoted field.
    opened: usize,
    /// The number of delimiters outside quotes. [`scan`](Self::scan) does not count them in lines
    /// without a quote.
    delimiters: usize,
    /// True if there is a quote in an unquoted field.
    has_stray: bool,
    /// The number of zeros at the end of the bytes scanned so far in a quoted field.
    zeros: usize,
    fault: Option<FramingError>,
    /// The number of bytes of a byte order mark matched so far, while a mark is still possible.
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

    /// Returns a new scan, for another record of the same format.
    pub fn afresh(&self) -> Self {
        QuoteScan::new(self.quote, self.delimiter)
    }

    /// Starts another record.
    #[inline]
    pub fn restart(&mut self) {
        self.quoting = Quoting::FieldStart;
        self.fault = None;
        self.mark = None;
    }

    /// Starts a stream, which may begin with a byte order mark.
    pub fn expect_mark(&mut self) {
        self.mark = Some(0);
    }

    /// Returns true if a newline at the present end of the scan belongs to a field.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.quoting == Quoting::Quoted
    }

    /// Returns the offset in the record of the quote that opened the latest quoted field.
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// Returns the first error found in a quoted field.
    #[inline]
    pub fn fault(&self) -> Option<FramingError> {
        self.fault
    }

    /// Scans `bytes`, which start at the offset `from` of the record. Newlines in `bytes` belong to
    /// a quoted field.
    #[inline]
    pub fn scan(&mut self, from: usize, bytes: &[u8]) {
        let is_bare = matches!(self.quoting, Quoting::FieldStart | Quoting::Bare);
        if is_bare && memchr(self.quote, bytes).is_none() {
            // The state is only used after a newline, where both values are equivalent.
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

    /// Like [`scan`](Self::scan), but also counts fields.
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

    /// Processes a byte outside a quoted field.
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
                self.fault = Some(FramingError::TextBehindQuote { at, opened });
                Quoting::Bare
            }
            _ => {
                self.has_stray |= byte == self.quote;
                Quoting::Bare
            }
        };
    }

    /// Returns the number of fields of a record scanned by [`scan_all`](Self::scan_all).
    pub fn fields(&self) -> usize {
        self.delimiters + 1
    }

    /// Returns true if a writer of this format could have produced this quoting.
    pub fn is_sensible(&self) -> bool {
        self.fault.is_none() && !self.has_stray
    }
}
