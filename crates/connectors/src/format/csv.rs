//! CSV with a header, for serde types.

mod encode;
mod header;
mod record;

use std::fmt;
use std::sync::OnceLock;

use csv_core::{ReadRecordResult, Terminator};
use serde::de::DeserializeOwned;

use super::borrowed::{RawFields, RecordFormat};
use super::{Decode, DecodeWith, Framing, RawRecord};
use encode::Writing;
pub(super) use record::CsvRecord;
use record::Record;

/// Comma-separated values: each file or connection begins with a header that names the fields.
///
/// Fields may be quoted with `"`, and quoted fields may contain delimiters, newlines and doubled
/// quotes; a record then spans several lines. A record is malformed if text other than white space
/// follows a closing quote, or if it has another number of fields than the header. An empty field
/// reads as `None` of an `Option`; for words such as `NA` use a serde `deserialize_with`.
///
/// A header that is not UTF-8, or that contains a NUL or an unquoted carriage return, is
/// [damage](crate::OnDamage) of its input. Floats accept `inf`, `infinity` and `nan` in any case. A
/// number beyond the range of an `f64` makes a record malformed.
///
/// Written records read back unchanged. A record that CSV cannot represent is refused: one with a
/// map, nested records or an enum variant with content; one whose field names differ from the
/// header; one with `Some` of an empty text, which reads as `None` (see
/// [`empty_as_none`](Self::empty_as_none)); one with sixteen zero bytes in a row. A text of several
/// lines and more than 1 MiB needs a reader with a greater
/// [`max_quoted`](crate::files::FileSource::max_quoted). Records without field names, such as
/// tuples, are written without a header, and must be read [without one](Self::without_header).
///
/// ```
/// use ardea_connectors::format::{Csv, Decode};
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
    single_line: bool,
    empty_as_none: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            delimiter: b',',
            header: true,
            single_line: false,
            empty_as_none: false,
        }
    }
}

const QUOTE: u8 = b'"';

impl Csv {
    /// Creates the format with commas and a header.
    pub fn new() -> Self {
        Csv::default()
    }

    /// Sets the delimiter, such as `b';'` or `b'\t'`.
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.options.delimiter = delimiter;
        self
    }

    /// Omits the header. Fields are assigned by their order, to a tuple or to a struct with its
    /// fields in this order.
    pub fn without_header(mut self) -> Self {
        self.options.header = false;
        self
    }

    /// Reads each line as a record: quoted fields must not contain newlines. Then the instances of
    /// a file source can share large files, and a stray quote costs one line.
    pub fn single_line(mut self) -> Self {
        self.options.single_line = true;
        self
    }

    /// Decodes each record with a function, which can read it into a type that borrows from it; see
    /// [`JsonLines::decode_with`](super::JsonLines::decode_with). Fields that the type does not have
    /// are not decoded.
    ///
    /// ```
    /// use ardea_connectors::format::{Csv, Decode};
    ///
    /// let mut lengths = Csv::new().decode_with(|record| {
    ///     let (name, _year): (&str, u16) = record.read()?;
    ///     Ok(Some(name.len()))
    /// });
    /// assert_eq!(lengths.decode(b"name,year"), Ok(None), "the header is no record");
    /// assert_eq!(lengths.decode(b"N101,1990"), Ok(Some(4)));
    /// ```
    pub fn decode_with<T, F>(self, function: F) -> DecodeWith<Csv, F>
    where
        F: Fn(RawRecord<'_>) -> Result<Option<T>, String>,
    {
        DecodeWith {
            format: self,
            function,
        }
    }

    /// Writes `Some` of an empty text like `None`, as an empty field, which reads back as `None`.
    /// Otherwise a record with such a value is refused.
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

/// The parser, its scratch space and the header of the present stream.
struct Reading {
    parser: csv_core::Reader,
    delimiter: u8,
    fields: Vec<u8>,
    ends: Vec<usize>,
    record: Record,
    header: Option<Record>,
    /// The place of [`CsvRecord::probe`].
    probe: OnceLock<Record>,
}

impl Reading {
    fn new(options: Options) -> Self {
        Reading {
            parser: csv_core::ReaderBuilder::new()
                .delimiter(options.delimiter)
                .quote(QUOTE)
                // The newline was removed from the frame; a carriage return inside it is data.
                .terminator(Terminator::Any(b'\n'))
                .build(),
            delimiter: options.delimiter,
            fields: vec![0; 1024],
            ends: Vec::new(),
            record: Record::default(),
            header: None,
            probe: OnceLock::new(),
        }
    }

    /// Parses a frame into `self.record`.
    #[inline]
    fn parse(&mut self, frame: &[u8]) {
        self.ends.clear();
        for at in memchr::memchr2_iter(self.delimiter, QUOTE, frame) {
            if frame[at] == QUOTE {
                return self.parse_quoted(frame);
            }
            self.ends.push(at);
        }
        self.ends.push(frame.len());
        self.record.set(frame, &self.ends, 1);
    }

    fn parse_quoted(&mut self, mut frame: &[u8]) {
        self.ends.resize(self.ends.capacity().max(64), 0);
        self.parser.reset();
        // A blank line first: at the start of a stream the parser would skip a byte order mark.
        self.parser
            .read_record(b"\n", &mut self.fields, &mut self.ends);
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
                // The next, empty input ends the record.
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => break,
            }
        }
        self.record
            .set(&self.fields[..written], &self.ends[..fields], 0);
    }
}

impl RecordFormat for Csv {
    fn framing(&self) -> Framing {
        match self.options.single_line {
            true => Framing::Lines,
            false => Framing::Quoted {
                quote: QUOTE,
                delimiter: self.options.delimiter,
            },
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

    #[inline]
    fn record<'a>(&'a mut self, frame: &'a [u8]) -> Result<Option<RawRecord<'a>>, String> {
        if frame.is_empty() {
            return Ok(None);
        }
        let options = self.options;
        let reading = self
            .reading
            .get_or_insert_with(|| Box::new(Reading::new(options)));
        reading.parse(frame);
        let Reading {
            record,
            header,
            probe,
            ..
        } = &mut **reading;
        if options.header {
            let Some(header) = header else {
                let names = record.clone().with_bytes();
                header::check(frame, &names)?;
                *header = Some(names);
                return Ok(None);
            };
            if header.len() != record.len() {
                let (has, wants) = (record.len(), header.len());
                return Err(format!("{has} fields where the header has {wants}"));
            }
        }
        probe.take();
        Ok(Some(RawRecord(RawFields::Csv(CsvRecord {
            record,
            header: header.as_ref(),
            probe,
        }))))
    }
}

impl<T: DeserializeOwned> Decode<T> for Csv {
    fn framing(&self) -> Framing {
        RecordFormat::framing(self)
    }

    fn begin(&mut self) {
        RecordFormat::begin(self);
    }

    fn needs_beginning(&self) -> bool {
        RecordFormat::needs_beginning(self)
    }

    fn fields(&self) -> Option<usize> {
        RecordFormat::fields(self)
    }

    fn awaits_header(&self) -> bool {
        RecordFormat::awaits_header(self)
    }

    fn decode(&mut self, frame: &[u8]) -> Result<Option<T>, String> {
        match self.record(frame)? {
            Some(record) => record.read().map(Some),
            None => Ok(None),
        }
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
    fn a_byte_order_mark_within_a_stream_is_data() {
        let mut csv = Csv::new().without_header();
        for frame in ["\u{feff}x,1", "\u{feff}x,\"1\""] {
            let row = decode(&mut csv, frame.as_bytes());
            assert_eq!(row, Ok(Some(("\u{feff}x".to_string(), Some(1)))), "{frame}");
        }
    }

    #[test]
    fn fields_that_are_no_text_do_no_harm_unless_a_text_is_wanted() {
        #[derive(serde::Deserialize, PartialEq, Debug)]
        struct Known {
            n: i32,
        }
        let mut csv = Csv::new();
        assert_eq!(Decode::<Known>::decode(&mut csv, b"n,text"), Ok(None));
        for frame in [&b"1,\xff"[..], b"1,\"\xff\"", "1,ü".as_bytes()] {
            assert_eq!(csv.decode(frame), Ok(Some(Known { n: 1 })));
        }
        for frame in [&b"\xff,1"[..], b"\"\xff\",1"] {
            let refused = decode(&mut Csv::new().without_header(), frame);
            assert!(refused.unwrap_err().contains("utf-8"));
        }
        // A delimiter that is not valid UTF-8 on its own.
        let mut csv = Csv::new().delimiter(0xfc).without_header();
        let row = decode(&mut csv, b"a\xfc2");
        assert_eq!(row, Ok(Some(("a".to_string(), Some(2)))));
    }

    #[test]
    fn digits_beyond_a_float_are_malformed_where_a_float_is_wanted() {
        type Named = (String, f64, Option<f32>);
        let mut csv = Csv::new();
        assert_eq!(Decode::<Named>::decode(&mut csv, b"id,x,y"), Ok(None));
        let digits = "9".repeat(400);
        for number in ["1e400", "-1E+309", "18.5e307", &digits] {
            for (frame, name) in [
                (format!("{number},{number},1"), "\"x\""),
                (format!("{number},1,\"{number}\""), "\"y\""),
            ] {
                let refused = Decode::<Named>::decode(&mut csv, frame.as_bytes()).unwrap_err();
                assert!(refused.contains(name), "{refused}");
                assert!(refused.contains("beyond"), "{refused}");
            }
            let row = Decode::<Named>::decode(&mut csv, format!("{number},1,").as_bytes());
            assert_eq!(row, Ok(Some((number.to_string(), 1.0, None))));
        }
        for (text, value) in [("inf", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)] {
            let row = Decode::<Named>::decode(&mut csv, format!("1e400,{text},").as_bytes());
            assert_eq!(row, Ok(Some(("1e400".to_string(), value, None))));
        }
    }

    #[test]
    fn a_field_that_its_type_refuses_is_named_or_counted_from_one() {
        let mut csv = Csv::new();
        assert_eq!(decode(&mut csv, b"name,the year"), Ok(None));
        let refused = decode(&mut csv, b"x,one").unwrap_err();
        assert!(refused.starts_with("field \"the year\": "), "{refused}");
        let refused = decode(&mut Csv::new().without_header(), b"x,one").unwrap_err();
        assert!(refused.starts_with("field 2: "), "{refused}");
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
