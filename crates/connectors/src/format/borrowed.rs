//! Decoding of records by a function, which can borrow from them.

use serde::Deserialize;

use super::csv::CsvRecord;
use super::{Decode, Framing};

/// A record that a function decodes; see [`JsonLines::decode_with`](super::JsonLines::decode_with)
/// and [`Csv::decode_with`](super::Csv::decode_with).
#[derive(Clone, Copy)]
pub struct RawRecord<'a>(pub(super) RawFields<'a>);

/// The content of a record.
#[derive(Clone, Copy)]
pub(super) enum RawFields<'a> {
    Json(&'a [u8]),
    Csv(CsvRecord<'a>),
}

impl<'a> RawRecord<'a> {
    /// Reads the record into a type whose fields may borrow from it. Only the fields of the type
    /// are decoded.
    ///
    /// A `&str` cannot represent JSON text with escape sequences, such as `"a\nb"`, and fails. A
    /// `Cow<str>` with `#[serde(borrow)]` can; it is only copied if it has any.
    ///
    /// # Errors
    /// The reason why the record has another form.
    #[inline]
    pub fn read<B: Deserialize<'a>>(&self) -> Result<B, String> {
        match self.0 {
            RawFields::Json(text) => {
                serde_json::from_slice(text).map_err(|error| super::json::unexpected(&error))
            }
            RawFields::Csv(record) => record.decode(),
        }
    }
}

/// A format that splits its records into fields, independent of their type. The methods are those
/// of [`Decode`].
pub trait RecordFormat: Clone + Send + Sync + 'static {
    /// See [`Decode::framing`].
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    /// See [`Decode::begin`].
    fn begin(&mut self) {}

    /// See [`Decode::needs_beginning`].
    fn needs_beginning(&self) -> bool {
        false
    }

    /// See [`Decode::fields`].
    fn fields(&self) -> Option<usize> {
        None
    }

    /// See [`Decode::awaits_header`].
    fn awaits_header(&self) -> bool {
        false
    }

    /// Returns the record of a frame; `None` for a frame without a record.
    ///
    /// # Errors
    /// The reason why the frame has no fields.
    fn record<'a>(&'a mut self, frame: &'a [u8]) -> Result<Option<RawRecord<'a>>, String>;
}

/// A format whose records are decoded by a function. The function returns `None` to drop a record.
#[derive(Clone, Debug)]
pub struct DecodeWith<D, F> {
    pub(super) format: D,
    pub(super) function: F,
}

impl<T, D, F> Decode<T> for DecodeWith<D, F>
where
    D: RecordFormat,
    F: Fn(RawRecord<'_>) -> Result<Option<T>, String> + Clone + Send + Sync + 'static,
{
    fn framing(&self) -> Framing {
        self.format.framing()
    }

    fn begin(&mut self) {
        self.format.begin();
    }

    fn needs_beginning(&self) -> bool {
        self.format.needs_beginning()
    }

    fn fields(&self) -> Option<usize> {
        self.format.fields()
    }

    fn awaits_header(&self) -> bool {
        self.format.awaits_header()
    }

    #[inline]
    fn decode(&mut self, frame: &[u8]) -> Result<Option<T>, String> {
        match self.format.record(frame)? {
            Some(record) => (self.function)(record),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::format::{Csv, Decode, JsonLines};

    #[derive(Deserialize)]
    struct Visit<'a> {
        page: &'a str,
        #[serde(borrow, default)]
        name: Cow<'a, str>,
    }

    fn summary(record: RawRecord<'_>) -> Result<Option<(usize, bool)>, String> {
        let visit: Visit<'_> = record.read()?;
        let is_borrowed = matches!(visit.name, Cow::Borrowed(_));
        Ok((visit.page != "/").then_some((visit.page.len(), is_borrowed)))
    }

    #[test]
    fn json_is_borrowed_unless_it_has_escapes_and_other_fields_are_passed_over() {
        let mut format = JsonLines.decode_with(summary);
        let line = br#"{"x":[{"page":1}],"page":"/home","name":"a"}"#;
        assert_eq!(format.decode(line), Ok(Some((5, true))));
        assert_eq!(
            format.decode(br#"{"page":"/a","name":"\n"}"#),
            Ok(Some((2, false)))
        );
        assert_eq!(format.decode(br#"{"page":"/"}"#), Ok(None));
        assert_eq!(format.decode(b" "), Ok(None));
        let refused = format.decode(br#"{"page":1}"#).unwrap_err();
        assert!(refused.starts_with("not the JSON expected"), "{refused}");
    }

    #[test]
    fn csv_is_borrowed_and_its_errors_name_the_field() {
        let decoder = Csv::new().decode_with(|record| {
            let (page, size): (&str, f64) = record.read()?;
            Ok(Some((page.len(), size)))
        });
        let mut format = decoder.clone();
        assert!(Decode::<(usize, f64)>::needs_beginning(&format));
        assert_eq!(format.decode(b"page,size"), Ok(None));
        assert_eq!(format.decode(b"\"/a,b\",2"), Ok(Some((4, 2.0))));
        assert_eq!(format.decode(b""), Ok(None));
        for bad in ["/a,x", "/a,1e400"] {
            let refused = format.decode(bad.as_bytes()).unwrap_err();
            assert!(refused.starts_with("field \"size\": "), "{refused}");
        }
        assert!(format.decode(b"/a").is_err());
        let mut fresh = decoder.clone();
        assert!(Decode::<(usize, f64)>::awaits_header(&fresh));
        assert_eq!(fresh.decode(b"page,size"), Ok(None));
    }
}
