//! Tuples as JSON documents, for components in processes of their own.
//!
//! A tuple is an array: the index of the input or stream, then the values. Bytes and numbers that
//! JSON lacks are objects: `{"base64": "…"}` and `{"float": "NaN"}`.

use std::fmt;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::tuple_format::ReceivedTuple;
use crate::tuple::Tuple;
use crate::value::{FieldWriter, Value};

/// Appends a tuple of the input `input`.
pub(crate) fn write_tuple(input: usize, tuple: &Tuple<'_>, out: &mut Vec<u8>) {
    // Writing to memory can't fail.
    let _ = write!(out, "[{input}");
    for value in tuple.values() {
        out.push(b',');
        write_value(value, out);
    }
    out.push(b']');
}

fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    // Writing to memory can't fail.
    let _ = match value {
        Value::Null => out.write_all(b"null"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Int(value) => write!(out, "{value}"),
        Value::Float(value) if value.is_finite() => {
            serde_json::to_writer(&mut *out, &value).map_err(Into::into)
        }
        Value::Float(value) if value.is_nan() => out.write_all(br#"{"float":"NaN"}"#),
        Value::Float(value) if value > 0.0 => out.write_all(br#"{"float":"inf"}"#),
        Value::Float(_) => out.write_all(br#"{"float":"-inf"}"#),
        Value::Str(value) => serde_json::to_writer(&mut *out, value).map_err(Into::into),
        Value::Bytes(value) => write!(out, "{{\"base64\":\"{}\"}}", STANDARD.encode(value)),
        Value::List(list) => {
            out.push(b'[');
            for (at, item) in list.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_value(item, out);
            }
            out.write_all(b"]")
        }
    };
}

/// Reads a tuple from a document.
///
/// # Errors
/// The reason why the document is no tuple.
pub(crate) fn read_tuple(document: &[u8]) -> Result<ReceivedTuple<'static>, String> {
    let mut reader = serde_json::Deserializer::from_slice(document);
    let read = reader.deserialize_any(TupleVisitor);
    let read = read.and_then(|tuple| reader.end().map(|()| tuple));
    read.map_err(|error| {
        let text = String::from_utf8_lossy(document);
        let text: String = text.chars().take(PREVIEW_CHARS).collect();
        format!("{text} is no tuple: {error}")
    })
}

/// The maximum length of a tuple in a message about it, in characters.
const PREVIEW_CHARS: usize = 80;

struct TupleVisitor;

impl<'de> Visitor<'de> for TupleVisitor {
    type Value = ReceivedTuple<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of the stream's index and the values, or a direct tuple")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let stream = items.next_element::<u32>()?;
        let stream =
            stream.ok_or_else(|| A::Error::custom("the index of the stream is missing"))?;
        let mut values = Vec::new();
        let mut writer = FieldWriter::new(&mut values);
        while items.next_element_seed(ValueReader(&mut writer))?.is_some() {}
        let count = writer.written();
        Ok(ReceivedTuple {
            stream: stream as usize,
            target: None,
            values: values.into(),
            count,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut stream, mut target, mut read) = (None, None, None);
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "stream" => stream = Some(entries.next_value::<u32>()?),
                "instance" => target = Some(entries.next_value::<u32>()?),
                "values" => read = Some(entries.next_value_seed(FieldsReader)?),
                other => return Err(A::Error::custom(format!("it has a field {other:?}"))),
            }
        }
        match (stream, target, read) {
            (Some(stream), Some(target), Some((values, count))) => Ok(ReceivedTuple {
                stream: stream as usize,
                target: Some(target),
                values: values.into(),
                count,
            }),
            _ => Err(A::Error::custom(
                "a direct tuple has the fields stream, instance and values",
            )),
        }
    }
}

/// Reads the values of a direct tuple; returns them encoded, and their number.
struct FieldsReader;

impl<'de> DeserializeSeed<'de> for FieldsReader {
    type Value = (Vec<u8>, usize);

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for FieldsReader {
    type Value = (Vec<u8>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        let mut writer = FieldWriter::new(&mut values);
        while items.next_element_seed(ValueReader(&mut writer))?.is_some() {}
        let count = writer.written();
        Ok((values, count))
    }
}

/// Reads a value into a writer.
struct ValueReader<'w, 'b>(&'w mut FieldWriter<'b>);

impl<'de> DeserializeSeed<'de> for ValueReader<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a field")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.null();
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.bool(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.int(value);
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        let fits = i64::try_from(value);
        self.0.int(
            fits.map_err(|_| E::custom(format!("the integer {value} has more than 63 bits")))?,
        );
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.float(value);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.0.str(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut outcome = Ok(());
        self.0.list(|writer| {
            outcome = loop {
                match items.next_element_seed(ValueReader(writer)) {
                    Ok(Some(())) => {}
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
        });
        outcome
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let entry = entries.next_entry::<String, String>()?;
        let (key, value) = entry.ok_or_else(|| A::Error::custom("a value is an empty object"))?;
        match (key.as_str(), value.as_str()) {
            ("base64", text) => {
                let bytes = STANDARD.decode(text).map_err(A::Error::custom)?;
                self.0.bytes(&bytes);
            }
            ("float", "NaN") => self.0.float(f64::NAN),
            ("float", "inf") => self.0.float(f64::INFINITY),
            ("float", "-inf") => self.0.float(f64::NEG_INFINITY),
            _ => return Err(A::Error::custom("a value is an object with unknown fields")),
        }
        match entries.next_key::<String>()? {
            None => Ok(()),
            Some(_) => Err(A::Error::custom("a value is an object with several fields")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::anchor::Salt;
    use crate::batch::TupleBatch;
    use crate::tuple::{Origin, Tuples};

    fn written(write: impl FnOnce(&mut FieldWriter<'_>), fields: usize) -> (String, Vec<u8>) {
        let mut batch = TupleBatch::default();
        batch.push(write, fields).unwrap();
        let origin = Origin {
            component: "lines".into(),
            stream: "default".into(),
            fields: (0..fields).map(|at| Arc::from(at.to_string())).collect(),
            salt: Salt::NONE,
        };
        let tuples = Tuples {
            batch: &batch,
            origin: &origin,
        };
        let mut text = Vec::new();
        write_tuple(3, &tuples.get(0), &mut text);
        (
            String::from_utf8(text).unwrap(),
            tuples.get(0).encoded().to_vec(),
        )
    }

    #[test]
    fn a_tuple_is_read_as_it_was_written() {
        let (text, encoded) = written(
            |to| {
                to.null();
                to.bool(true);
                to.int(i64::MIN);
                to.float(2.0);
                to.float(f64::NEG_INFINITY);
                to.str("\"quoted\"\n");
                to.bytes(b"\x00\xff");
                to.list(|to| {
                    to.int(1);
                    to.list(|to| to.str("x"));
                });
            },
            8,
        );
        let expected = concat!(
            r#"[3,null,true,-9223372036854775808,2.0,{"float":"-inf"},"\"quoted\"\n","#,
            r#"{"base64":"AP8="},[1,["x"]]]"#
        );
        assert_eq!(text, expected);
        let read = read_tuple(text.as_bytes()).unwrap();
        assert_eq!((read.stream, read.target, read.count), (3, None, 8));
        assert_eq!(read.values, encoded);
    }

    #[test]
    fn a_direct_tuple_names_its_instance() {
        let document = br#"{"stream": 1, "instance": 2, "values": ["a", 7]}"#;
        let read = read_tuple(document).unwrap();
        assert_eq!((read.stream, read.target, read.count), (1, Some(2), 2));
    }

    #[test]
    fn other_documents_are_refused_with_the_reason() {
        let nested = format!("[0,{}{}]", "[".repeat(100), "]".repeat(100));
        for (document, reason) in [
            ("{", "EOF"),
            ("[]", "index"),
            ("[-1]", "expected u32"),
            ("[0,\"a\"] x", "trailing"),
            ("[0,18446744073709551615]", "63 bits"),
            ("[0,{\"base64\":\"????\"}]", "symbol"),
            ("[0,{}]", "empty object"),
            ("[0,{\"a\":\"b\"}]", "unknown"),
            ("{\"stream\":0,\"values\":[]}", "direct"),
            ("\"text\"", "invalid type"),
            (&nested, ""),
        ] {
            let refused = read_tuple(document.as_bytes()).unwrap_err();
            assert!(refused.contains(reason), "{document}: {refused}");
        }
    }
}
