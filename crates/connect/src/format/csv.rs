//! CSV with a header, to and from serde types.

mod encode;

use std::fmt;

use csv::ByteRecord;
use csv_core::{ReadRecordResult, Terminator};
use serde::de::DeserializeOwned;

use super::{Decode, Framing};
use encode::Writing;

/// Comma-separated values: each file or connection begins with a header that names the fields.
///
/// Fields may be quoted with `"`, and quoted fields may hold delimiters, newlines and doubled quotes; a record then spans
/// several lines. Text behind a closing quote, other than white space, makes a record malformed. A missing value is the type's matter: an empty field reads as `None` of an `Option`, and words such as
/// `NA` want a serde `deserialize_with`. A record with more or fewer fields than the header is malformed.
///
/// What is written reads back as it was. A record that CSV cannot hold is refused: one with a map or with nested records, one
/// whose fields have other names than the header, one with `Some` of an empty text, which reads as `None` (see
/// [`empty_as_none`](Self::empty_as_none)), one with an enum's variant that has content. Records without field names, such as
/// tuples, are written without a header, and read [without one](Self::without_header).
///
/// ```
/// use ardea_connect::format::{Csv, Decode};
///
/// #[derive(serde::Deserialize, Debug, PartialEq)]
/// struct Plane { tail: String, year: Option<u16> }
///
/// let mut csv = Csv::new();
/// assert_eq!(Decode::<Plane>::decode(&mut csv, b"tail,year"), Ok(None), "the header is no record");
/// assert_eq!(csv.decode(b"N101,"), Ok(Some(Plane { tail: "N101".into(), year: None })));
/// ```
#[derive(Default)]
pub struct Csv {
    options: Options,
    reading: Option<Box<Reading>>,
    writing: Option<Writing>,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    delimiter: u8,
    header: bool,
    empty_as_none: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            delimiter: b',',
            header: true,
            empty_as_none: false,
        }
    }
}

const QUOTE: u8 = b'"';

impl Csv {
    /// Commas, and a header.
    pub fn new() -> Self {
        Csv::default()
    }

    /// Sets what ends a field, such as `b';'` or `b'\t'`.
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.options.delimiter = delimiter;
        self
    }

    /// There is no header: fields are taken by their order, so the record type is a tuple or a struct in that order.
    pub fn without_header(mut self) -> Self {
        self.options.header = false;
        self
    }

    /// Writes `Some` of an empty text like `None`, as an empty field, which reads back as `None`.
    /// Without this such a record is set aside.
    pub fn empty_as_none(mut self) -> Self {
        self.options.empty_as_none = true;
        self
    }
}

impl Clone for Csv {
    fn clone(&self) -> Self {
        Csv {
            options: self.options,
            reading: None,
            writing: None,
        }
    }
}

impl fmt::Debug for Csv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

/// The parser, its scratch space and the header of the stream at hand.
struct Reading {
    parser: csv_core::Reader,
    fields: Vec<u8>,
    ends: Vec<usize>,
    record: ByteRecord,
    header: Option<ByteRecord>,
}

impl Reading {
    fn new(options: Options) -> Self {
        Reading {
            parser: csv_core::ReaderBuilder::new()
                .delimiter(options.delimiter)
                .quote(QUOTE)
                // The frame has lost its newline; a carriage return inside it is data.
                .terminator(Terminator::Any(b'\n'))
                .build(),
            fields: vec![0; 1024],
            ends: vec![0; 64],
            record: ByteRecord::new(),
            header: None,
        }
    }

    /// Parses one frame into `self.record`.
    fn parse(&mut self, mut frame: &[u8]) {
        self.parser.reset();
        let (mut written, mut fields) = (0, 0);
        loop {
            let (result, read, out, ended) = self.parser.read_record(
                frame,
                &mut self.fields[written..],
                &mut self.ends[fields..],
            );
            frame = &frame[read..];
            written += out;
            fields += ended;
            match result {
                // An empty input, given next, tells the parser that the record ends here.
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => break,
            }
        }
        self.record.clear();
        let mut start = 0;
        for &end in &self.ends[..fields] {
            self.record.push_field(&self.fields[start..end]);
            start = end;
        }
    }
}

impl<T: DeserializeOwned> Decode<T> for Csv {
    fn framing(&self) -> Framing {
        Framing::Quoted {
            quote: QUOTE,
            delimiter: self.options.delimiter,
        }
    }

    fn begin(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.header = None;
        }
    }

    fn needs_beginning(&self) -> bool {
        self.options.header
    }

    fn fields(&self) -> Option<usize> {
        let header = self.reading.as_ref()?.header.as_ref()?;
        Some(header.len())
    }

    fn awaits_header(&self) -> bool {
        let has_begun = self.reading.as_ref().is_some_and(|it| it.header.is_some());
        self.options.header && !has_begun
    }

    fn decode(&mut self, frame: &[u8]) -> Result<Option<T>, String> {
        if frame.is_empty() {
            return Ok(None);
        }
        let options = self.options;
        let reading = self
            .reading
            .get_or_insert_with(|| Box::new(Reading::new(options)));
        reading.parse(frame);
        let Reading { record, header, .. } = &mut **reading;
        if options.header {
            let Some(header) = header else {
                *header = Some(record.clone());
                return Ok(None);
            };
            if header.len() != record.len() {
                let (has, wants) = (record.len(), header.len());
                return Err(format!("{has} fields where the header has {wants}"));
            }
        }
        record
            .deserialize(header.as_ref())
            .map(Some)
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = (String, Option<i32>);

    fn decode(csv: &mut Csv, frame: &[u8]) -> Result<Option<Row>, String> {
        csv.decode(frame)
    }

    #[test]
    fn quoted_fields_hold_delimiters_newlines_and_quotes() {
        let mut csv = Csv::new().without_header();
        assert_eq!(
            decode(&mut csv, b"\"a,\n\"\"b\"\"\",3"),
            Ok(Some(("a,\n\"b\"".to_string(), Some(3))))
        );
    }

    #[test]
    fn a_record_with_another_number_of_fields_than_the_header_is_malformed() {
        let mut csv = Csv::new();
        assert_eq!(decode(&mut csv, b"name,n"), Ok(None));
        assert!(decode(&mut csv, b"x").unwrap_err().contains("1 fields"));
        assert!(decode(&mut csv, b"x,1,2").is_err());
        assert!(decode(&mut csv, b"x,one").is_err());
        assert_eq!(decode(&mut csv, b"x,"), Ok(Some(("x".to_string(), None))));
    }

    #[test]
    fn each_stream_has_its_own_header() {
        #[derive(serde::Deserialize)]
        struct Named {
            b: i32,
        }
        let mut csv = Csv::new().delimiter(b';');
        let mut field_b = |lines: [&[u8]; 2]| {
            Decode::<Named>::begin(&mut csv);
            assert!(
                Decode::<Named>::decode(&mut csv, lines[0])
                    .unwrap()
                    .is_none()
            );
            Decode::<Named>::decode(&mut csv, lines[1])
                .unwrap()
                .unwrap()
                .b
        };
        assert_eq!(field_b([b"a;b", b"1;2"]), 2);
        assert_eq!(field_b([b"b;a", b"1;2"]), 1);
    }

    #[test]
    fn a_field_longer_than_the_scratch_space_is_read_whole() {
        let mut csv = Csv::new().without_header();
        let long = "x".repeat(100_000);
        assert_eq!(
            decode(&mut csv, format!("{long},1").as_bytes()),
            Ok(Some((long, Some(1))))
        );
    }
}
