//! CSV.

use ardea_connectors::format::{Csv, Decode, Framing};
use serde::de::IgnoredAny;

use super::builder::Columns;
use super::{Reason, invalid_utf8};

const QUOTE: u8 = b'"';

/// The reader of CSV records.
#[derive(Clone, Debug)]
pub(super) struct CsvReader {
    delimiter: u8,
    pub(super) framing: Framing,
    /// The column of each field of a record, if it is decoded; `None` before the header.
    targets: Option<Vec<Option<usize>>>,
    /// The text of a field with doubled quotes.
    unquoted: Vec<u8>,
}

/// The end of a field.
enum FieldEnd {
    /// Another field follows after the delimiter.
    Delimiter,
    /// The record ends.
    Record,
}

impl CsvReader {
    /// Creates a reader of records of several lines.
    pub(super) fn new(delimiter: u8) -> Self {
        CsvReader {
            delimiter,
            framing: Framing::Quoted {
                quote: QUOTE,
                delimiter,
            },
            targets: None,
            unquoted: Vec::new(),
        }
    }

    /// Starts a stream, whose first record is the header.
    pub(super) fn begin(&mut self) {
        self.targets = None;
    }

    /// Returns the number of fields of the header, if it was read.
    pub(super) fn fields(&self) -> Option<usize> {
        self.targets.as_ref().map(Vec::len)
    }

    /// Reads a record into the current row. Returns false for the header and for a blank line.
    #[inline]
    pub(super) fn read(&mut self, record: &[u8], columns: &mut Columns) -> Result<bool, Reason> {
        if record.is_empty() {
            return Ok(false);
        }
        let Some(targets) = &self.targets else {
            self.targets = Some(self.header(record, columns)?);
            return Ok(false);
        };
        let mut scanner = CsvScanner::new(record, self.delimiter);
        let mut failed = None;
        let mut count = 0;
        loop {
            let (field, end) = scanner.field(&mut self.unquoted)?;
            if let Some(Some(column)) = targets.get(count)
                && failed.is_none()
            {
                let column = columns.next_value(*column)?;
                // The fields after a bad one are counted: a wrong number of them is the better
                // reason.
                failed = column.push_field(field).err();
            }
            count += 1;
            match end {
                FieldEnd::Delimiter => scanner.at += 1,
                FieldEnd::Record => break,
            }
        }
        if count != targets.len() {
            let expected = targets.len();
            return Err(format!("{count} fields where the header has {expected}").into());
        }
        failed.map_or(Ok(()), Err)?;
        scanner.check_utf8()?;
        Ok(true)
    }

    /// Returns the columns of the fields of a header.
    ///
    /// # Errors
    /// If the header is not well-formed, if it has the name of a column twice, or if it lacks a
    /// column that is not nullable.
    #[cold]
    fn header(&self, header: &[u8], columns: &Columns) -> Result<Vec<Option<usize>>, Reason> {
        let mut rows = Csv::new().delimiter(self.delimiter);
        let _: Option<IgnoredAny> = rows.decode(header)?;
        let names = self.names(header)?;
        let mut targets = vec![None; names.len()];
        for (column, wanted) in columns.schema().fields().iter().enumerate() {
            let fields = names.iter().enumerate();
            let mut found = fields.filter(|(_, name)| *name == wanted.name());
            let what = match (found.next(), found.next()) {
                (Some((field, _)), None) => {
                    targets[field] = Some(column);
                    continue;
                }
                (None, _) if wanted.is_nullable() => continue,
                (None, _) => format!("it has no field {:?}", wanted.name()),
                (Some(_), Some(_)) => format!("it has two fields {:?}", wanted.name()),
            };
            return Err(format!("{what}; its fields are {}", names.join(", ")).into());
        }
        Ok(targets)
    }

    /// Returns the names of the fields of a header.
    fn names(&self, header: &[u8]) -> Result<Vec<String>, Reason> {
        let mut scanner = CsvScanner::new(header, self.delimiter);
        let (mut names, mut unquoted) = (Vec::new(), Vec::new());
        loop {
            let (name, end) = scanner.field(&mut unquoted)?;
            let name = std::str::from_utf8(name);
            let name = name.map_err(|error| invalid_utf8(error.valid_up_to()))?;
            names.push(name.to_string());
            match end {
                FieldEnd::Delimiter => scanner.at += 1,
                FieldEnd::Record => return Ok(names),
            }
        }
    }
}

/// A cursor over a record.
struct CsvScanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The bitwise or of the bytes read: shows whether any is not ASCII.
    seen: u64,
    delimiter: u8,
}

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

impl<'a> CsvScanner<'a> {
    fn new(bytes: &'a [u8], delimiter: u8) -> Self {
        CsvScanner {
            bytes,
            at: 0,
            seen: 0,
            delimiter,
        }
    }

    /// Reads a field, and moves to the delimiter after it, or to the end.
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
        Ok((&self.bytes[start..self.at], end))
    }

    /// Moves to the next delimiter or the end.
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
            let marks = zero(word ^ delimiters) & HIGH;
            if marks != 0 {
                self.at += (marks.trailing_zeros() / 8) as usize;
                return FieldEnd::Delimiter;
            }
            self.at += 8;
        }
        while let Some(byte) = self.bytes.get(self.at) {
            self.seen |= u64::from(*byte);
            if *byte == self.delimiter {
                return FieldEnd::Delimiter;
            }
            self.at += 1;
        }
        FieldEnd::Record
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
        match std::str::from_utf8(self.bytes) {
            Ok(_) => Ok(()),
            Err(error) => Err(invalid_utf8(error.valid_up_to())),
        }
    }
}
