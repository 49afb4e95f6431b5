//! The CSV encoder.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Serialize, Serializer};

use super::{Csv, Options};
use crate::format::checked::{Rules, check};
use crate::format::{Encode, NonFinite};
use crate::framer::refuse_hole;

/// The bytes flushed by a [`csv::Writer`]. Shared, because the writer owns its output.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The writer of the present output.
pub(super) struct Writing {
    writer: csv::Writer<Written>,
    written: Written,
    /// True if the header was written.
    begun: bool,
    /// The names of the fields, in order; empty before the first record.
    header: Vec<Cow<'static, str>>,
    /// The first record written, in bytes. All records have the same number of fields.
    first: Vec<u8>,
}

impl Writing {
    fn new(options: Options, begun: bool) -> Self {
        let written = Written::default();
        let writer = csv::WriterBuilder::new()
            .delimiter(options.delimiter)
            .has_headers(options.header && !begun)
            .from_writer(written.clone());
        Writing {
            writer,
            written,
            begun,
            header: Vec::new(),
            first: Vec::new(),
        }
    }

    /// Creates the writer of an output that is continued. Its first record determines the header
    /// and the number of fields.
    fn resumed(options: Options, output: &mut dyn io::Read) -> io::Result<Self> {
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(options.delimiter)
            .has_headers(false)
            .from_reader(output);
        let mut first = csv::ByteRecord::new();
        let is_empty = !reader.read_byte_record(&mut first)?;
        let mut writing = Writing::new(options, !is_empty);
        if is_empty {
            return Ok(writing);
        }
        if options.header {
            let name = |name| Cow::Owned(String::from_utf8_lossy(name).into_owned());
            writing.header = first.iter().map(name).collect();
        }
        writing.expect_fields_of(&first)?;
        writing.first = std::mem::take(&mut writing.written.lock());
        Ok(writing)
    }

    /// Writes a record that is discarded, so that the writer expects its number of fields.
    fn expect_fields_of(&mut self, record: &csv::ByteRecord) -> io::Result<()> {
        self.writer.write_byte_record(record)?;
        self.writer.flush()
    }

    /// Replaces the writer after a failed record, since the writer cannot undo a part of a record.
    fn begin_again(&mut self, options: Options) {
        let mut next = Writing::new(options, self.begun);
        next.header = std::mem::take(&mut self.header);
        next.first = std::mem::take(&mut self.first);
        let reader = csv::ReaderBuilder::new()
            .delimiter(options.delimiter)
            .has_headers(false)
            .from_reader(&*next.first);
        // These operate in memory on bytes written before and do not fail.
        if let Some(Ok(record)) = reader.into_byte_records().next() {
            let _ = next.expect_fields_of(&record);
            next.written.lock().clear();
        }
        *self = next;
    }

    /// Writes a record, and the header before the first one.
    fn write<T: Serialize>(&mut self, record: &T, options: Options) -> Result<(), String> {
        let limits = Limits {
            options,
            is_known: !self.header.is_empty(),
            header: RefCell::new(std::mem::take(&mut self.header)),
            column: Cell::new(0),
            is_first_text: Cell::new(true),
        };
        let serialized = self.writer.serialize(Record(record, &limits));
        if serialized.is_ok() || limits.is_known {
            self.header = limits.header.into_inner();
        }
        let flushed = serialized.and_then(|()| Ok(self.writer.flush()?));
        flushed.map_err(|error| error.to_string())
    }
}

/// The restrictions of CSV, with the header common to all records of an output.
struct Limits {
    options: Options,
    /// The names of the fields, in order, from the first record written.
    header: RefCell<Vec<Cow<'static, str>>>,
    /// True if the header is complete.
    is_known: bool,
    /// The number of named fields of the present record visited so far.
    column: Cell<usize>,
    /// True until a text of the present record is visited.
    is_first_text: Cell<bool>,
}

impl Rules for Limits {
    fn non_finite(&self) -> Option<NonFinite> {
        None
    }

    fn refuses_empty_some(&self) -> bool {
        !self.options.empty_as_none
    }

    fn refuses_nothing_in_some(&self) -> bool {
        !self.options.empty_as_none
    }

    fn drops_variants(&self) -> bool {
        true
    }

    fn text(&self, text: &str) -> Result<(), &'static str> {
        match self.is_first_text.replace(false) && text.starts_with('\u{feff}') {
            true => Err("its text begins with a byte order mark, which readers leave out"),
            false => refuse_hole(text.as_bytes()),
        }
    }

    fn field(&self, name: &'static str) -> Result<(), String> {
        if !self.options.header {
            return Ok(());
        }
        let column = self.column.replace(self.column.get() + 1);
        let mut header = self.header.borrow_mut();
        match header.get(column) {
            Some(known) if *known == name => Ok(()),
            Some(known) => Err(format!(
                "its field {name:?} stands where the header has {known:?}"
            )),
            None if self.is_known => Err(format!("the header has no field {name:?} there")),
            None => {
                header.push(Cow::Borrowed(name));
                Ok(())
            }
        }
    }
}

/// A record passed to a [`csv::Writer`], which serializes it a second time for the header.
struct Record<'a, T>(&'a T, &'a Limits);

impl<T: Serialize> Serialize for Record<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Record(record, limits) = self;
        limits.column.set(0);
        limits.is_first_text.set(true);
        check(*record, serializer, *limits)
    }
}

impl<T: Serialize> Encode<T> for Csv {
    fn begin(&mut self) {
        self.writing = None;
    }

    fn resume(&mut self) {
        self.writing = Some(Writing::new(self.options, true));
    }

    fn resume_from(&mut self, output: &mut dyn io::Read) -> io::Result<()> {
        self.writing = Some(Writing::resumed(self.options, output)?);
        Ok(())
    }

    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> Result<(), String> {
        let options = self.options;
        let writing = self
            .writing
            .get_or_insert_with(|| Writing::new(options, false));
        if let Err(reason) = writing.write(record, options) {
            writing.begin_again(options);
            return Err(reason);
        }
        writing.begun = true;
        let mut written = writing.written.lock();
        out.extend_from_slice(&written);
        if writing.first.is_empty() {
            writing.first.clone_from(&written);
        }
        written.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use proptest::prelude::*;
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::format::Decode;

    #[test]
    fn each_output_begins_with_the_header() {
        #[derive(Serialize)]
        struct Bid {
            auction: u32,
            note: &'static str,
        }
        let (mut csv, mut out) = (Csv::new(), Vec::new());
        for _ in 0..2 {
            Encode::<Bid>::begin(&mut csv);
            for (auction, note) in [(1, "a,b"), (2, "")] {
                csv.encode(&Bid { auction, note }, &mut out).unwrap();
            }
        }
        let once = "auction,note\n1,\"a,b\"\n2,\n";
        assert_eq!(String::from_utf8(out).unwrap(), once.repeat(2));
    }

    #[test]
    fn an_output_that_goes_on_keeps_its_header_and_refuses_other_columns() {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Bid {
            Old {
                auction: u32,
                note: &'static str,
            },
            Swapped {
                note: &'static str,
                auction: u32,
            },
            Longer {
                auction: u32,
                note: &'static str,
                price: u32,
            },
        }
        let (auction, note) = (3, "c");
        let others = [
            Bid::Swapped { note, auction },
            Bid::Longer {
                auction,
                note,
                price: 1,
            },
        ];
        let (mut csv, mut out) = (Csv::new(), Vec::new());
        let mut output = &b"auction,note\n1,a\n2,b\n"[..];
        Encode::<Bid>::resume_from(&mut csv, &mut output).unwrap();
        for other in &others {
            let reason = csv.encode(other, &mut out).unwrap_err();
            assert!(reason.contains("header"), "{reason}");
        }
        csv.encode(&Bid::Old { auction, note }, &mut out).unwrap();
        assert_eq!(out, b"3,c\n");
        let (mut bare, mut out) = (Csv::new().without_header(), Vec::new());
        Encode::<Bid>::resume_from(&mut bare, &mut &b"1,a\n"[..]).unwrap();
        assert!(bare.encode(&(1, "a", 2), &mut out).is_err());
        bare.encode(&(3, "c"), &mut out).unwrap();
        let mut empty = Csv::new();
        Encode::<Bid>::resume_from(&mut empty, &mut &b""[..]).unwrap();
        empty.encode(&Bid::Old { auction, note }, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "3,c\nauction,note\n3,c\n");
    }

    #[test]
    fn a_record_that_csv_cannot_hold_leaves_no_trace() {
        let (mut csv, mut out) = (Csv::new(), Vec::new());
        let nested = BTreeMap::from([(1, 2)]);
        assert!(csv.encode(&(1, &nested), &mut out).is_err());
        csv.encode(&(1, 2), &mut out).unwrap();
        assert!(csv.encode(&(3, &nested), &mut out).is_err());
        csv.encode(&(5, 6), &mut out).unwrap();
        assert_eq!(out, b"1,2\n5,6\n");
        for _ in 0..2 {
            assert!(csv.encode(&(1, 2, 3), &mut Vec::new()).is_err());
        }
    }

    #[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
    struct Row {
        text: String,
        #[serde(rename = "a \"name\", with\nall")]
        other: Option<String>,
        number: Option<f64>,
        wide: i128,
    }

    fn row(text: &str, other: Option<&str>, number: Option<f64>) -> Row {
        Row {
            text: text.into(),
            other: other.map(str::to_string),
            number,
            wide: i128::MIN,
        }
    }

    /// Writes records and reads them back.
    fn there_and_back<T>(mut csv: Csv, records: &[T]) -> (Vec<T>, usize)
    where
        T: Serialize + DeserializeOwned,
    {
        let (mut out, mut refused) = (Vec::new(), 0);
        for record in records {
            let start = out.len();
            if csv.encode(record, &mut out).is_err() {
                refused += 1;
                out.truncate(start);
            }
        }
        let (mut back, mut reader) = (Vec::new(), csv.clone());
        let mut frame = Vec::new();
        for line in out.split_inclusive(|byte| *byte == b'\n') {
            frame.extend_from_slice(line);
            // A newline inside quotes does not end a record.
            if frame.iter().filter(|byte| **byte == b'"').count() % 2 == 0 {
                let record = frame.strip_suffix(b"\n").unwrap();
                back.extend(Decode::<T>::decode(&mut reader, record).unwrap());
                frame.clear();
            }
        }
        (back, refused)
    }

    #[test]
    fn an_empty_text_in_an_option_is_set_aside_unless_it_is_to_be_none() {
        let rows = [row("", Some(""), None), row("a", None, Some(f64::INFINITY))];
        let (back, refused) = there_and_back(Csv::new(), &rows);
        assert_eq!((&back[..], refused), (&rows[1..], 1));
        let (back, refused) = there_and_back(Csv::new().empty_as_none(), &rows);
        assert_eq!((back[0].other.as_deref(), refused), (None, 0));
    }

    #[test]
    fn a_text_that_readers_take_for_a_hole_is_set_aside() {
        let rows = [
            row(&"\0".repeat(16), None, None),
            row(&"\0".repeat(15), None, None),
        ];
        let (back, refused) = there_and_back(Csv::new(), &rows);
        assert_eq!((&back[..], refused), (&rows[1..], 1));
    }

    #[test]
    fn a_record_whose_fields_are_not_those_of_the_header_is_set_aside() {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Event {
            Begun { at: u8, by: u8 },
            Ended { at: u8, why: u8 },
            Lost { at: u8 },
        }
        let mut csv = Csv::new();
        let mut out = Vec::new();
        csv.encode(&Event::Begun { at: 1, by: 2 }, &mut out)
            .unwrap();
        let reason = csv.encode(&Event::Ended { at: 3, why: 4 }, &mut Vec::new());
        assert!(reason.unwrap_err().contains("\"why\""));
        assert!(csv.encode(&Event::Lost { at: 5 }, &mut Vec::new()).is_err());
        csv.encode(&Event::Begun { at: 6, by: 7 }, &mut out)
            .unwrap();
        assert_eq!(out, b"at,by\n1,2\n6,7\n");
    }

    #[test]
    fn a_variant_that_would_lose_its_name_is_set_aside() {
        #[derive(Serialize)]
        enum Length {
            Feet(u32),
            Unknown,
        }
        let (mut csv, mut out) = (Csv::new().without_header(), Vec::new());
        assert!(csv.encode(&(1, Length::Feet(3)), &mut Vec::new()).is_err());
        csv.encode(&(1, Length::Unknown), &mut out).unwrap();
        assert_eq!(out, b"1,Unknown\n");
    }

    proptest! {
        #[test]
        fn every_record_reads_back_or_is_refused(
            rows in prop::collection::vec((any::<String>(), any::<Option<String>>(), any::<Option<f64>>()), 1..20)
        ) {
            let rows: Vec<Row> = rows.iter().map(|(text, other, number)| row(text, other.as_deref(), *number)).collect();
            let (back, refused) = there_and_back(Csv::new(), &rows);
            let kept: Vec<Row> = rows
                .iter()
                .filter(|row| row.other.as_deref() != Some("") && !row.text.starts_with('\u{feff}'))
                .cloned()
                .collect();
            prop_assert_eq!(refused, rows.len() - kept.len());
            prop_assert_eq!(back, kept);
        }
    }
}
