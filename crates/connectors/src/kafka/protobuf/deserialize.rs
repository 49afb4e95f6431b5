//! Deserialization of messages of Protocol Buffers into records.

use std::borrow::Cow;
use std::fmt;

use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, ReflectMessage, Value,
};
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// The reason why a message cannot be deserialized.
#[derive(Debug)]
pub(super) struct Reason(String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Reason {}

impl de::Error for Reason {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Reason(text.to_string())
    }
}

/// The deserializer of a message: a map of its fields by their names.
#[derive(Clone, Copy)]
pub(super) struct MessageDeserializer<'a>(pub &'a DynamicMessage);

impl<'de> Deserializer<'de> for MessageDeserializer<'_> {
    type Error = Reason;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        // Fields without presence have their defaults.
        let fields = self.0.descriptor().fields().collect::<Vec<_>>();
        let fields = fields
            .into_iter()
            .filter(|field| self.0.has_field(field) || !field.supports_presence());
        let fields = fields.collect::<Vec<_>>().into_iter();
        visitor.visit_map(Fields {
            message: self.0,
            fields,
            current: None,
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Reason> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The fields of a message.
struct Fields<'a> {
    message: &'a DynamicMessage,
    fields: std::vec::IntoIter<FieldDescriptor>,
    current: Option<FieldDescriptor>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Reason;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Reason> {
        let Some(field) = self.fields.next() else {
            return Ok(None);
        };
        let name: StrDeserializer<'_, Reason> = field.name().into_deserializer();
        let key = seed.deserialize(name)?;
        self.current = Some(field);
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Reason> {
        let Some(field) = self.current.take() else {
            return Err(de::Error::custom("a value was requested before its key"));
        };
        let value = self.message.get_field(&field);
        let value = ValueDeserializer {
            value,
            kind: field.kind(),
        };
        let name = field.name();
        let read = seed.deserialize(value);
        read.map_err(|error| Reason(format!("field {name:?}: {error}")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// The deserializer of a value of a field.
struct ValueDeserializer<'a> {
    value: Cow<'a, Value>,
    /// The kind of the field; of a map, that of its entries.
    kind: Kind,
}

impl ValueDeserializer<'_> {
    /// Returns the enum of the field, and the number of the value.
    fn enum_number(&self) -> Option<(&EnumDescriptor, i32)> {
        match (&*self.value, &self.kind) {
            (Value::EnumNumber(number), Kind::Enum(of)) => Some((of, *number)),
            _ => None,
        }
    }

    fn visit_integer<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        match &*self.value {
            Value::EnumNumber(number) => visitor.visit_i32(*number),
            _ => self.deserialize_any(visitor),
        }
    }
}

/// Declares the methods for integers, as which enums can be read.
macro_rules! integers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
            self.visit_integer(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for ValueDeserializer<'_> {
    type Error = Reason;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        if let Some((of, number)) = self.enum_number() {
            return match of.get_value(number) {
                Some(value) => visitor.visit_str(value.name()),
                None => visitor.visit_i32(number),
            };
        }
        match &*self.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::I32(value) | Value::EnumNumber(value) => visitor.visit_i32(*value),
            Value::I64(value) => visitor.visit_i64(*value),
            Value::U32(value) => visitor.visit_u32(*value),
            Value::U64(value) => visitor.visit_u64(*value),
            Value::F32(value) => visitor.visit_f32(*value),
            Value::F64(value) => visitor.visit_f64(*value),
            Value::String(text) => visitor.visit_str(text),
            Value::Bytes(bytes) => visitor.visit_bytes(bytes),
            Value::Message(message) => MessageDeserializer(message).deserialize_any(visitor),
            Value::List(values) => {
                let values = values.iter().map(|value| ValueDeserializer {
                    value: Cow::Borrowed(value),
                    kind: self.kind.clone(),
                });
                visitor.visit_seq(SeqDeserializer::new(values))
            }
            Value::Map(entries) => {
                let kind = match &self.kind {
                    Kind::Message(entry) if entry.is_map_entry() => {
                        entry.map_entry_value_field().kind()
                    }
                    kind => kind.clone(),
                };
                let entries = entries.iter().map(|(key, value)| {
                    let value = ValueDeserializer {
                        value: Cow::Borrowed(value),
                        kind: kind.clone(),
                    };
                    (KeyDeserializer(key), value)
                });
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Reason> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Reason> {
        let name = match self.enum_number() {
            Some((of, number)) => match of.get_value(number) {
                Some(value) => value.name().to_string(),
                None => {
                    let name = of.name();
                    return Err(Reason(format!("the enum {name} has no value {number}")));
                }
            },
            None => match &*self.value {
                Value::String(text) => text.clone(),
                _ => return Err(de::Error::custom("it is neither an enum nor a text")),
            },
        };
        visitor.visit_enum(name.into_deserializer())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        self.deserialize_any(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        match &*self.value {
            // A vector of bytes is read as a sequence.
            Value::Bytes(bytes) => visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied())),
            _ => self.deserialize_any(visitor),
        }
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }

    forward_to_deserialize_any! {
        bool f32 f64 char str string unit unit_struct tuple tuple_struct map struct identifier
        ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Reason> for ValueDeserializer<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The deserializer of a key of a map.
struct KeyDeserializer<'a>(&'a MapKey);

impl<'de> Deserializer<'de> for KeyDeserializer<'_> {
    type Error = Reason;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        match self.0 {
            MapKey::Bool(key) => visitor.visit_bool(*key),
            MapKey::I32(key) => visitor.visit_i32(*key),
            MapKey::I64(key) => visitor.visit_i64(*key),
            MapKey::U32(key) => visitor.visit_u32(*key),
            MapKey::U64(key) => visitor.visit_u64(*key),
            MapKey::String(key) => visitor.visit_str(key),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Reason> for KeyDeserializer<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::kafka::protobuf::schemas::ProtobufSchema;

    const SCHEMA: &str = r#"
        syntax = "proto3";
        enum Status { UNKNOWN = 0; LATE = 1; }
        message Stop { string airport = 1; }
        message Flight {
            string carrier = 1;
            optional int32 delay = 2;
            repeated Stop stops = 3;
            map<string, int64> counts = 4;
            bytes raw = 5;
            Status status = 6;
            Status code = 7;
            oneof way { string gate = 8; uint64 belt = 9; }
            Stop last = 10;
            double ignored = 11;
        }
    "#;

    #[derive(Deserialize, PartialEq, Debug)]
    enum Status {
        #[serde(rename = "UNKNOWN")]
        Unknown,
        #[serde(rename = "LATE")]
        Late,
    }

    #[derive(Deserialize, PartialEq, Debug)]
    struct Stop {
        airport: String,
    }

    #[derive(Deserialize, PartialEq, Debug)]
    struct Flight {
        carrier: String,
        delay: Option<i32>,
        stops: Vec<Stop>,
        counts: BTreeMap<String, i64>,
        raw: Vec<u8>,
        status: Status,
        code: i32,
        gate: Option<String>,
        belt: Option<u64>,
        last: Option<Stop>,
    }

    fn read(bytes: &[u8]) -> Result<Flight, Reason> {
        let schema = ProtobufSchema::compile(SCHEMA, &[]).unwrap();
        let message = schema.message_at(&[1]).unwrap();
        let message = DynamicMessage::decode(message, bytes).unwrap();
        Flight::deserialize(MessageDeserializer(&message))
    }

    #[test]
    fn an_empty_message_has_the_defaults_of_its_fields() {
        let flight = read(&[]).unwrap();
        assert_eq!(
            (&*flight.carrier, flight.delay, flight.belt),
            ("", None, None)
        );
        assert_eq!((flight.status, flight.last), (Status::Unknown, None));
        assert!(flight.stops.is_empty() && flight.counts.is_empty() && flight.raw.is_empty());
    }

    #[test]
    fn each_kind_of_field_is_read() {
        let bytes = [
            &b"\x0a\x02UA\x10\x00"[..],
            b"\x1a\x05\x0a\x03SFO\x1a\x05\x0a\x03JFK",
            b"\x22\x05\x0a\x01x\x10\x07",
            b"\x2a\x02\x01\xff\x30\x01\x38\x01\x48\x09",
            b"\x52\x05\x0a\x03LAX",
        ];
        let flight = read(&bytes.concat()).unwrap();
        assert_eq!((&*flight.carrier, flight.delay), ("UA", Some(0)));
        assert_eq!(flight.stops.len(), 2);
        assert_eq!(flight.counts.get("x"), Some(&7));
        assert_eq!(
            (flight.raw, flight.status, flight.code),
            (vec![1, 255], Status::Late, 1)
        );
        assert_eq!((flight.gate, flight.belt), (None, Some(9)));
        assert_eq!(
            flight.last,
            Some(Stop {
                airport: "LAX".into()
            })
        );
    }

    #[test]
    fn an_enum_value_that_the_schema_does_not_have_is_refused_with_its_field() {
        let error = read(b"\x30\x05").unwrap_err().to_string();
        assert!(
            error.contains("\"status\"") && error.contains('5'),
            "{error}"
        );
    }
}
