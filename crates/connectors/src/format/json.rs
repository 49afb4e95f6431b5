//! JSON lines: one JSON value per line.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::borrowed::{RawFields, RecordFormat};
use super::checked::{Rules, check};
use super::{Decode, DecodeWith, Encode, NonFinite, RawRecord};

/// One JSON value per line, for any serde type; blank lines are skipped.
///
/// Written records read back unchanged. A record that JSON cannot represent is refused: one with a
/// NaN or infinite float, unless [`non_finite`](Self::non_finite) is set; with a map key that is
/// not a text, a number or a name; or with `Some(None)`, which would be `null` like `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonLines;

impl JsonLines {
    /// Decodes each value with a function, which can read it into a type that borrows from the line
    /// and has only the fields that are needed. The function returns `None` to drop a record.
    ///
    /// ```
    /// use ardea_connectors::files;
    /// use ardea_connectors::format::JsonLines;
    /// use ardea_core::{Bounded, Source};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Event<'a> { kind: &'a str, auction: Option<u64> }
    ///
    /// let bids = JsonLines.decode_with(|line| {
    ///     let event: Event = line.read()?;
    ///     Ok(event.auction.filter(|_| event.kind == "bid"))
    /// });
    /// let auctions: Source<u64, Bounded> = files::read("events.jsonl", bids).build();
    /// ```
    pub fn decode_with<T, F>(self, function: F) -> DecodeWith<JsonLines, F>
    where
        F: Fn(RawRecord<'_>) -> Result<Option<T>, String>,
    {
        DecodeWith {
            format: self,
            function,
        }
    }

    /// Sets the replacement for NaN and infinite floats.
    pub fn non_finite(self, choice: NonFinite) -> LossyJsonLines {
        LossyJsonLines { non_finite: choice }
    }
}

/// JSON lines with a replacement for NaN and infinite floats; see [`JsonLines::non_finite`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LossyJsonLines {
    non_finite: NonFinite,
}

impl Rules for LossyJsonLines {
    #[inline]
    fn non_finite(&self) -> Option<NonFinite> {
        Some(self.non_finite)
    }

    fn refuses_nothing_in_some(&self) -> bool {
        true
    }
}

impl<T: DeserializeOwned> Decode<T> for JsonLines {
    #[inline]
    fn decode(&mut self, frame: &[u8]) -> Result<Option<T>, String> {
        match serde_json::from_slice(frame) {
            Ok(record) => Ok(Some(record)),
            Err(_) if frame.trim_ascii().is_empty() => Ok(None),
            Err(error) => Err(unexpected(&error)),
        }
    }
}

impl RecordFormat for JsonLines {
    #[inline]
    fn record<'a>(&'a mut self, frame: &'a [u8]) -> Result<Option<RawRecord<'a>>, String> {
        let is_blank = frame.trim_ascii_start().is_empty();
        Ok((!is_blank).then_some(RawRecord(RawFields::Json(frame))))
    }
}

/// Returns the reason for refusing a text.
pub(super) fn unexpected(error: &serde_json::Error) -> String {
    format!("not the JSON expected: {error}")
}

impl<T: Serialize> Encode<T> for JsonLines {
    #[inline]
    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> Result<(), String> {
        LossyJsonLines::default().encode(record, out)
    }
}

impl<T: Serialize> Encode<T> for LossyJsonLines {
    #[inline]
    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> Result<(), String> {
        let mut serializer = serde_json::Serializer::new(&mut *out);
        check(record, &mut serializer, self).map_err(|error| error.to_string())?;
        out.push(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
    enum Shape {
        Point,
        Circle(f32),
        Line { from: (i64, i64), to: (i64, i64) },
        Path(Vec<(u8, char)>),
    }

    #[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
    struct Row {
        name: String,
        mean: f64,
        last: Option<f64>,
        wide: (i128, u128),
        by_number: BTreeMap<i64, Option<bool>>,
        shapes: Vec<Shape>,
    }

    fn row() -> Row {
        Row {
            name: "a \u{0}\n\"\u{2028}".into(),
            mean: 1.5,
            last: None,
            wide: (i128::MIN, u128::MAX),
            by_number: BTreeMap::from([(i64::MIN, None), (7, Some(true))]),
            shapes: vec![
                Shape::Point,
                Shape::Circle(0.1),
                Shape::Line {
                    from: (1, 2),
                    to: (i64::MAX, -4),
                },
                Shape::Path(vec![(255, '"')]),
            ],
        }
    }

    fn line<T: Serialize>(mut format: impl Encode<T>, value: &T) -> Result<String, String> {
        let mut out = Vec::new();
        format.encode(value, &mut out)?;
        Ok(String::from_utf8(out).expect("JSON is UTF-8"))
    }

    #[test]
    fn a_value_comes_back_as_it_went() {
        let text = line(JsonLines, &row()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let back: Option<Row> = JsonLines.decode(text.trim_end().as_bytes()).unwrap();
        assert_eq!(back, Some(row()));
    }

    #[test]
    fn a_blank_line_is_no_record_and_half_a_value_is_an_error() {
        assert_eq!(Decode::<i32>::decode(&mut JsonLines, b" \t"), Ok(None));
        assert!(Decode::<Vec<i32>>::decode(&mut JsonLines, b"[1,").is_err());
    }

    #[test]
    fn what_json_cannot_hold_is_refused_wherever_it_stands() {
        let with = |change: fn(&mut Row)| {
            let mut row = row();
            change(&mut row);
            line(JsonLines, &row)
        };
        let refused = [
            with(|row| row.mean = f64::NAN),
            with(|row| row.mean = f64::INFINITY),
            with(|row| row.last = Some(f64::NEG_INFINITY)),
            with(|row| row.shapes.push(Shape::Circle(f32::NAN))),
            line(JsonLines, &HashMap::from([("a", f64::NAN)])),
            line(JsonLines, &BTreeMap::from([((1, 2), 3)])),
            line(JsonLines, &BTreeMap::from([(Some(vec![1]), 3)])),
            line(JsonLines, &Some(None::<u8>)),
            line(JsonLines, &(1, Some(()))),
        ];
        for (number, line) in refused.into_iter().enumerate() {
            assert!(line.is_err(), "{number}: {line:?}");
        }
        assert_eq!(
            line(JsonLines, &(None::<u8>, Some(1))).unwrap(),
            "[null,1]\n"
        );
    }

    #[test]
    fn a_sink_can_choose_what_stands_for_numbers_that_are_none() {
        let values = (f64::NAN, Some(f32::INFINITY), [f64::NEG_INFINITY, 1.0]);
        let written = |choice| line(JsonLines.non_finite(choice), &values);
        assert_eq!(
            written(NonFinite::Null).unwrap(),
            "[null,null,[null,1.0]]\n"
        );
        assert_eq!(
            written(NonFinite::Text).unwrap(),
            "[\"NaN\",\"Infinity\",[\"-Infinity\",1.0]]\n"
        );
        assert!(written(NonFinite::DeadLetter).unwrap_err().contains("NaN"));
    }

    proptest! {
        #[test]
        fn every_finite_float_reads_back_to_its_last_digit(value in any::<f64>()) {
            prop_assume!(value.is_finite());
            let text = line(JsonLines, &value).unwrap();
            let back: Option<f64> = JsonLines.decode(text.trim_end().as_bytes()).unwrap();
            prop_assert_eq!(back.map(f64::to_bits), Some(value.to_bits()));
        }

        #[test]
        fn every_record_reads_back_or_is_refused(
            name: String, whole: Option<i64>, wide: u128, flag: Option<Option<bool>>,
            keys in prop::collection::btree_map(any::<u16>(), any::<Option<char>>(), 0..4),
        ) {
            let value = (name, whole, wide, flag, keys);
            match line(JsonLines, &value) {
                Ok(text) => {
                    type Back = (String, Option<i64>, u128, Option<Option<bool>>, BTreeMap<u16, Option<char>>);
                    let back: Option<Back> = JsonLines.decode(text.trim_end_matches('\n').as_bytes()).unwrap();
                    prop_assert_eq!(back, Some(value));
                }
                Err(_) => prop_assert_eq!(value.3, Some(None)),
            }
        }
    }
}
