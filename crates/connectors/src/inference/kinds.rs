//! The types of values, and their common types.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{InferredField, InferredType};

/// The type of a value, read from any self-describing format.
pub(super) struct KindOfValue(pub(super) InferredType);

impl<'de> Deserialize<'de> for KindOfValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor).map(KindOfValue)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = InferredType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<InferredType, E> {
        Ok(InferredType::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<InferredType, E> {
        Ok(InferredType::Bool)
    }

    fn visit_i64<E>(self, _: i64) -> Result<InferredType, E> {
        Ok(InferredType::Integer)
    }

    fn visit_u64<E>(self, number: u64) -> Result<InferredType, E> {
        Ok(match i64::try_from(number) {
            Ok(_) => InferredType::Integer,
            Err(_) => InferredType::Unsigned,
        })
    }

    fn visit_f64<E>(self, _: f64) -> Result<InferredType, E> {
        Ok(InferredType::Float)
    }

    fn visit_str<E>(self, text: &str) -> Result<InferredType, E> {
        Ok(match is_timestamp(text) {
            true => InferredType::Timestamp,
            false => InferredType::Text,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<InferredType, A::Error> {
        let mut kind = InferredType::Null;
        while let Some(KindOfValue(value)) = values.next_element()? {
            kind = common(kind, value);
        }
        Ok(InferredType::List(Box::new(kind)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<InferredType, A::Error> {
        let mut fields: Vec<InferredField> = Vec::new();
        while let Some((name, KindOfValue(kind))) = map.next_entry::<String, _>()? {
            fields.push(field(&name, kind));
        }
        Ok(InferredType::Record(fields))
    }
}

/// Returns the type of a CSV field.
pub(super) fn kind_of_text(text: &str) -> InferredType {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let has_leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    if text.is_empty() {
        InferredType::Null
    } else if text == "true" || text == "false" {
        InferredType::Bool
    } else if digits.starts_with(|first: char| first.is_ascii_digit()) && !has_leading_zero {
        match (
            text.parse::<i64>(),
            text.parse::<u64>(),
            text.parse::<f64>(),
        ) {
            (Ok(_), ..) => InferredType::Integer,
            (_, Ok(_), _) => InferredType::Unsigned,
            (.., Ok(_)) => InferredType::Float,
            _ if is_timestamp(text) => InferredType::Timestamp,
            _ => InferredType::Text,
        }
    } else {
        InferredType::Text
    }
}

fn field(name: &str, kind: InferredType) -> InferredField {
    InferredField {
        name: name.to_string(),
        is_optional: kind == InferredType::Null,
        kind,
    }
}

/// Returns true for a date and time of RFC 3339, such as `2015-07-15T00:00:00.5Z`.
fn is_timestamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    let pattern = b"dddd-dd-ddTdd:dd:dd";
    if bytes.len() <= pattern.len() {
        return false;
    }
    let (start, rest) = bytes.split_at(pattern.len());
    let fits = start
        .iter()
        .zip(pattern)
        .all(|(byte, expected)| match expected {
            b'd' => byte.is_ascii_digit(),
            b'T' => matches!(byte, b'T' | b't' | b' '),
            expected => byte == expected,
        });
    let fraction = rest.strip_prefix(b".").map(|rest| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        &rest[digits..]
    });
    let zone = fraction.unwrap_or(rest);
    fits && (matches!(zone, b"Z" | b"z") || matches!(zone, [b'+' | b'-', _, _, b':', _, _]))
}

/// Returns the type of values of both types.
pub(super) fn common(one: InferredType, other: InferredType) -> InferredType {
    use InferredType::*;
    match (one, other) {
        (one, other) if one == other => one,
        (Null, kind) | (kind, Null) => kind,
        (Integer | Unsigned | Float, Integer | Unsigned | Float) => Float,
        (Timestamp, Text) | (Text, Timestamp) => Text,
        (List(one), List(other)) => List(Box::new(common(*one, *other))),
        (Record(mut fields), Record(others)) => {
            merge_fields(&mut fields, others);
            Record(fields)
        }
        _ => Mixed,
    }
}

/// Adds the fields of another record. A field that only one of them has is optional.
pub(super) fn merge_fields(fields: &mut Vec<InferredField>, others: Vec<InferredField>) {
    for field in fields.iter_mut() {
        field.is_optional |= !others.iter().any(|other| other.name == field.name);
    }
    for other in others {
        match fields.iter_mut().find(|field| field.name == other.name) {
            Some(field) => {
                let kind = std::mem::replace(&mut field.kind, InferredType::Null);
                field.kind = common(kind, other.kind);
                field.is_optional |= other.is_optional;
            }
            None => fields.push(InferredField {
                is_optional: true,
                ..other
            }),
        }
    }
}

/// The fields of a CSV record as texts.
pub(super) struct TextFields(Vec<(String, String)>);

impl TextFields {
    /// Returns the types of the fields.
    pub(super) fn kinds(self, kind: impl Fn(&str) -> InferredType) -> Vec<InferredField> {
        let fields = self.0.into_iter();
        fields
            .map(|(name, text)| field(&name, kind(&text)))
            .collect()
    }
}

impl<'de> Deserialize<'de> for TextFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = TextFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the fields of a record")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TextFields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(TextFields(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}
