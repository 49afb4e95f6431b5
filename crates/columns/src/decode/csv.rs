//! CSV.

use ardea_core::{Error, ErrorCode, Result};

use super::builder::Columns;
use super::{Reason, invalid_utf8};

const QUOTE: u8 = b'"';

/// The reader of CSV records.
#[derive(Debug)]
pub(super) struct CsvReader {
    delimiter: u8,
    /// The column of each field of a record, if it is decoded.
    targets: Vec<Option<usize>>,
    /// The text of a field with doubled quotes.
    unquoted: Vec<u8>,
}

/// A record that was read.
pub(super) struct CsvRecord {
    /// The number of bytes, without the newline.
    pub(super) length: usize,
    /// The number of newlines within quoted fields.
    pub(super) newlines: usize,
    /// True if there is a record, or the reason why it is bad.
    pub(super) result: Result<bool, Reason>,
}

/// The end of a field.
enum FieldEnd {
    /// Another field follows after the delimiter.
    Delimiter,
    /// The record ends.
    Record,
}

impl CsvReader {
    /// Creates a reader of the fields named like the columns. `names` are those of the fields.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the name of a column occurs twice, or the field of a column
    /// that is not nullable is missing.
    pub(super) fn new(columns: &Columns, delimiter: u8, names: &[String]) -> Result<Self> {
        let mut targets = vec![None; names.len()];
        for (column, wanted) in columns.schema().fields().iter().enumerate() {
            let mut found = names
                .iter()
                .enumerate()
                .filter(|(_, name)| *name == wanted.name());
            let what = match (found.next(), found.next()) {
                (Some((field, _)), None) => {
                    targets[field] = Some(column);
                    continue;
                }
                (None, _) if wanted.is_nullable() => continue,
                (None, _) => format!("the header has no field {:?}", wanted.name()),
                (Some(_), Some(_)) => format!("the header has two fields {:?}", wanted.name()),
            };
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint(format!("the fields are {}", names.join(", "))));
        }
        Ok(CsvReader {
            delimiter,
            targets,
            unquoted: Vec::new(),
        })
    }

    /// Reads the record at the front of `bytes` into the current row.
    pub(super) fn read(&mut self, bytes: &[u8], columns: &mut Columns) -> CsvRecord {
        let mut scanner = CsvScanner {
            bytes,
            at: 0,
            seen: 0,
            newlines: 0,
            delimiter: self.delimiter,
        };
        if matches!(bytes, [] | [b'\n', ..] | [b'\r', b'\n', ..] | [b'\r']) {
            return CsvRecord {
                length: memchr::memchr(b'\n', bytes).unwrap_or(bytes.len()),
                newlines: 0,
                result: Ok(false),
            };
        }
        match self.fields(&mut scanner, columns) {
            Ok(()) => CsvRecord {
                length: scanner.at,
                newlines: scanner.newlines,
                result: scanner.check_utf8().map(|()| true),
            },
            // Decoding goes on in the line after the mistake.
            Err(reason) => {
                let rest = &bytes[scanner.at..];
                CsvRecord {
                    length: scanner.at + memchr::memchr(b'\n', rest).unwrap_or(rest.len()),
                    newlines: scanner.newlines,
                    result: Err(reason),
                }
            }
        }
    }

    fn fields(
        &mut self,
        scanner: &mut CsvScanner<'_>,
        columns: &mut Columns,
    ) -> Result<(), Reason> {
        let mut failed = None;
        let mut count = 0;
        loop {
            let (field, end) = scanner.field(&mut self.unquoted)?;
            if let Some(Some(column)) = self.targets.get(count)
                && failed.is_none()
            {
                let column = columns.next_value(*column)?;
                // The fields after a bad one are read, as the record may have several lines.
                failed = column.push_field(field).err();
            }
            count += 1;
            match end {
                FieldEnd::Delimiter => scanner.at += 1,
                FieldEnd::Record => break,
            }
        }
        if count != self.targets.len() {
            let expected = self.targets.len();
            return Err(format!("{count} fields where the header has {expected}").into());
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Returns the names of the fields of a header.
///
/// # Errors
/// [`ErrorCode::BadRecord`] if the header is not well-formed.
pub(crate) fn header_names(header: &[u8], delimiter: u8) -> Result<Vec<String>> {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let mut scanner = CsvScanner {
        bytes: header.strip_prefix(BYTE_ORDER_MARK).unwrap_or(header),
        at: 0,
        seen: 0,
        newlines: 0,
        delimiter,
    };
    let bad = |reason: Reason| {
        Error::new(
            ErrorCode::BadRecord,
            format!("the header can't be read: {reason}"),
        )
        .hint("the header has to be a line in UTF-8")
    };
    let (mut names, mut unquoted) = (Vec::new(), Vec::new());
    loop {
        let (name, end) = scanner.field(&mut unquoted).map_err(bad)?;
        let name = std::str::from_utf8(name);
        names.push(
            name.map_err(|error| bad(invalid_utf8(error.valid_up_to())))?
                .to_string(),
        );
        match end {
            FieldEnd::Delimiter => scanner.at += 1,
            FieldEnd::Record => return Ok(names),
        }
    }
}

/// A cursor over records.
struct CsvScanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The bitwise or of the bytes read: shows whether any is not ASCII.
    seen: u64,
    newlines: usize,
    delimiter: u8,
}

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

impl<'a> CsvScanner<'a> {
    /// Reads a field, and moves to the delimiter or newline after it.
    #[inline]
    fn field<'b>(&mut self, unquoted: &'b mut Vec<u8>) -> Result<(&'b [u8], FieldEnd), Reason>
    where
        'a: 'b,
    {
        if self.bytes.get(self.at) == Some(&QUOTE) {
            return self.quoted(unquoted);
        }
        let start = self.at;
        let end = self.find_end();
        let field = &self.bytes[start..self.at];
        Ok(match end {
            FieldEnd::Record => (field.strip_suffix(b"\r").unwrap_or(field), end),
            FieldEnd::Delimiter => (field, end),
        })
    }

    /// Moves to the next delimiter, newline or the end.
    #[inline]
    fn find_end(&mut self) -> FieldEnd {
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let delimiters = ONES * u64::from(self.delimiter);
        while let Some(word) = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk())
        {
            let word = u64::from_le_bytes(*word);
            self.seen |= word;
            let marks = zero(word ^ delimiters) | zero(word ^ (ONES * u64::from(b'\n')));
            if marks & HIGH != 0 {
                self.at += ((marks & HIGH).trailing_zeros() / 8) as usize;
                return self.end_here();
            }
            self.at += 8;
        }
        while let Some(byte) = self.bytes.get(self.at) {
            self.seen |= u64::from(*byte);
            if *byte == self.delimiter || *byte == b'\n' {
                break;
            }
            self.at += 1;
        }
        self.end_here()
    }

    fn end_here(&self) -> FieldEnd {
        match self.bytes.get(self.at) {
            Some(byte) if *byte == self.delimiter => FieldEnd::Delimiter,
            _ => FieldEnd::Record,
        }
    }

    /// Reads a field after its quote.
    fn quoted<'b>(&mut self, unquoted: &'b mut Vec<u8>) -> Result<(&'b [u8], FieldEnd), Reason>
    where
        'a: 'b,
    {
        unquoted.clear();
        let opening = self.at;
        self.at += 1;
        let mut start = self.at;
        let text = loop {
            let Some(length) = memchr::memchr(QUOTE, &self.bytes[self.at..]) else {
                self.at = opening;
                return Err("a quoted field has no end".into());
            };
            self.at += length + 1;
            let part = &self.bytes[start..self.at - 1];
            if self.bytes.get(self.at) == Some(&QUOTE) {
                unquoted.extend_from_slice(part);
                unquoted.push(QUOTE);
                self.at += 1;
                start = self.at;
            } else if unquoted.is_empty() {
                break part;
            } else {
                unquoted.extend_from_slice(part);
                break &unquoted[..];
            }
        };
        let whole = &self.bytes[opening..self.at];
        self.newlines += memchr::memchr_iter(b'\n', whole).count();
        self.seen |= if whole.is_ascii() { 0 } else { HIGH };
        let behind = self.at;
        let end = self.find_end();
        match self.bytes[behind..self.at].trim_ascii() {
            [] => Ok((text, end)),
            _ => Err("text after a closing quote".into()),
        }
    }

    fn check_utf8(&self) -> Result<(), Reason> {
        if self.seen & HIGH == 0 {
            return Ok(());
        }
        match std::str::from_utf8(&self.bytes[..self.at]) {
            Ok(_) => Ok(()),
            Err(error) => Err(invalid_utf8(error.valid_up_to())),
        }
    }
}
