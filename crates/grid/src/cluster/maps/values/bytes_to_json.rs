//! Decoding of self-describing values to JSON.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value};

/// A value whose Rust type is not available in this process.
pub(super) struct UntypedValue(pub Value);

impl<'de> Deserialize<'de> for UntypedValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValueVisitor).map(UntypedValue)
    }
}

/// Required by the codec, which needs types that can be written as well.
impl Serialize for UntypedValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

/// JSON has no infinity and NaN; they become strings.
fn float(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None => Value::String(number.to_string()),
    }
}

struct AnyValueVisitor;

macro_rules! numbers {
    ($($name:ident $type:ty;)*) => {$(
        fn $name<E>(self, number: $type) -> Result<Value, E> {
            Ok(Value::from(number))
        }
    )*};
}

impl<'de> Visitor<'de> for AnyValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    numbers! {
        visit_bool bool;
        visit_u64 u64;
        visit_i64 i64;
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(float(number))
    }

    fn visit_f32<E>(self, number: f32) -> Result<Value, E> {
        // Through the decimal text: a conversion to `f64` would add digits.
        let shown: f64 = number.to_string().parse().unwrap_or(f64::from(number));
        Ok(float(shown))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Value, E> {
        Ok(u64::try_from(number).map_or_else(|_| number.to_string().into(), Value::from))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or_else(|_| number.to_string().into(), Value::from))
    }

    fn visit_char<E>(self, letter: char) -> Result<Value, E> {
        Ok(Value::String(letter.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.into()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(bytes.iter().copied().map(Value::from).collect())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(AnyValueVisitor)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(AnyValueVisitor)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(UntypedValue(value)) = from.next_element()? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    /// Returns an object if all keys are strings, numbers or booleans, otherwise a list of pairs.
    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some((UntypedValue(key), UntypedValue(value))) = from.next_entry()? {
            pairs.push((key, value));
        }
        let name = |key: &Value| match key {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(is) => Some(is.to_string()),
            _ => None,
        };
        let names: Option<Vec<String>> = pairs.iter().map(|(key, _)| name(key)).collect();
        Ok(match names {
            Some(names) => {
                let values = pairs.into_iter().map(|(_, value)| value);
                Value::Object(names.into_iter().zip(values).collect::<Map<_, _>>())
            }
            None => pairs
                .into_iter()
                .map(|(key, value)| Value::Array(vec![key, value]))
                .collect(),
        })
    }
}
