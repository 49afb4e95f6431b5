//! The types of JSON fields, inferred from the first records.

use std::fmt;

use ardea_core::{Error, ErrorCode, Result};
use arrow_schema::{DataType, Field, Schema};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::FieldPath;

/// The fields of JSON lines, with the types of their values in the first records.
///
/// Integers are `Int64`, or `UInt64` if any exceeds it and none is negative; other numbers are
/// `Float64`. A field of an object has the path to it. A field without a value, with a list, or
/// with values of different kinds has no type and is left out. All columns are nullable, since
/// later records may lack a field.
///
/// ```
/// use ardea_columns::JsonFields;
/// use arrow_schema::DataType;
///
/// let fields = JsonFields::of(b"{\"id\":1,\"by\":{\"name\":\"ann\"}}\n{\"id\":-2.5}\n", 100);
/// let (schema, paths) = fields.columns(["by.name", "id"])?;
/// assert_eq!(schema.field(0).data_type(), &DataType::Utf8);
/// assert_eq!(schema.field(1).data_type(), &DataType::Float64);
/// # let _ = paths;
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct JsonFields {
    fields: Vec<(FieldPath, DataType)>,
}

impl JsonFields {
    /// Infers the fields of the first `records` lines. Lines that are no objects are ignored.
    pub fn of(lines: &[u8], records: usize) -> Self {
        let mut root = JsonKind::Null;
        let lines = lines.split(|byte| *byte == b'\n');
        let objects = lines.filter_map(|line| match serde_json::from_slice(line) {
            Ok(object @ JsonKind::Object(_)) => Some(object),
            _ => None,
        });
        objects.take(records).for_each(|object| root.merge(object));
        let mut fields = Vec::new();
        root.collect(&mut Vec::new(), &mut fields);
        JsonFields { fields }
    }

    /// Returns the fields in the order of their first occurrence.
    pub fn fields(&self) -> &[(FieldPath, DataType)] {
        &self.fields
    }

    /// Returns the schema and the paths of the columns with these paths, such as `bid.price`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] with the known fields if there is no such field.
    pub fn columns<S: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = S>,
    ) -> Result<(Schema, Vec<FieldPath>)> {
        let (mut fields, mut paths) = (Vec::new(), Vec::new());
        for name in names {
            let name = name.as_ref();
            let path = FieldPath::from(name);
            let found = self.fields.iter().find(|(known, _)| *known == path);
            let Some((_, kind)) = found else {
                let known: Vec<_> = self.fields.iter().map(|it| it.0.0.join(".")).collect();
                let what = format!("the first records have no field {name:?} of one type");
                return Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint(format!("the fields are {}", known.join(", "))));
            };
            fields.push(Field::new(name, kind.clone(), true));
            paths.push(path);
        }
        Ok((Schema::new(fields), paths))
    }
}

/// The kind of a JSON value, or of the values of a field.
#[derive(Clone, Debug, PartialEq)]
enum JsonKind {
    Null,
    Bool,
    /// An integer; `large` if any exceeds `i64`.
    Integer {
        negative: bool,
        large: bool,
    },
    Float,
    Text,
    Object(Vec<(String, JsonKind)>),
    /// A list, or values of different kinds.
    Other,
}

impl JsonKind {
    /// Adds the kind of another value of the same field.
    fn merge(&mut self, other: JsonKind) {
        use JsonKind::{Float, Integer, Null, Object, Other};
        match (&mut *self, other) {
            (_, Null) => {}
            (this @ Null, other) => *this = other,
            (
                Integer { negative, large },
                Integer {
                    negative: more_negative,
                    large: larger,
                },
            ) => {
                *negative |= more_negative;
                *large |= larger;
            }
            (this @ (Integer { .. } | Float), Integer { .. } | Float) => *this = Float,
            (Object(fields), Object(others)) => {
                for (name, kind) in others {
                    match fields.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => known.merge(kind),
                        None => fields.push((name, kind)),
                    }
                }
            }
            (this, other) if *this != other => *this = Other,
            _ => {}
        }
    }

    /// Adds the fields that have a type.
    fn collect(&self, path: &mut Vec<String>, fields: &mut Vec<(FieldPath, DataType)>) {
        let kind = match self {
            JsonKind::Null | JsonKind::Other => return,
            JsonKind::Object(inner) => {
                for (name, kind) in inner {
                    path.push(name.clone());
                    kind.collect(path, fields);
                    path.pop();
                }
                return;
            }
            JsonKind::Bool => DataType::Boolean,
            JsonKind::Text => DataType::Utf8,
            JsonKind::Integer { large: false, .. } => DataType::Int64,
            JsonKind::Integer {
                negative: false, ..
            } => DataType::UInt64,
            JsonKind::Integer { .. } | JsonKind::Float => DataType::Float64,
        };
        fields.push((FieldPath::keys(path.iter()), kind));
    }
}

impl<'de> Deserialize<'de> for JsonKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

/// A visitor of the kinds of values.
struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = JsonKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonKind, E> {
        Ok(JsonKind::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<JsonKind, E> {
        Ok(JsonKind::Bool)
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonKind, E> {
        let (negative, large) = (value < 0, false);
        Ok(JsonKind::Integer { negative, large })
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonKind, E> {
        let (negative, large) = (false, i64::try_from(value).is_err());
        Ok(JsonKind::Integer { negative, large })
    }

    fn visit_f64<E>(self, _: f64) -> Result<JsonKind, E> {
        Ok(JsonKind::Float)
    }

    fn visit_str<E>(self, _: &str) -> Result<JsonKind, E> {
        Ok(JsonKind::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonKind, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(JsonKind::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<JsonKind, A::Error> {
        let mut kinds = Vec::new();
        while let Some(field) = fields.next_entry()? {
            kinds.push(field);
        }
        Ok(JsonKind::Object(kinds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_type_of_all_their_values() {
        let lines = br#"{"a":1,"b":null,"c":"x","d":{"e":true,"f":[1]},"g":1}
not json
{"a":18446744073709551615,"h":-1,"b":2.5,"c":null,"d":{"i":"y"},"g":"z"}
{"h":18446744073709551615,"d":7}
{"ignored":1}"#;
        let types = |records| -> Vec<String> {
            let inferred = JsonFields::of(lines, records);
            let fields = inferred.fields().iter();
            fields
                .map(|(path, kind)| format!("{}:{kind}", path.0.join(".")))
                .collect()
        };
        assert_eq!(types(1), ["a:Int64", "c:Utf8", "d.e:Boolean", "g:Int64"]);
        let two = [
            "a:UInt64",
            "b:Float64",
            "c:Utf8",
            "d.e:Boolean",
            "d.i:Utf8",
            "h:Int64",
        ];
        assert_eq!(types(2), two);
        assert_eq!(types(3), ["a:UInt64", "b:Float64", "c:Utf8", "h:Float64"]);
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_known_ones() {
        let inferred = JsonFields::of(b"{\"id\":1,\"by\":{\"name\":\"ann\"}}", 10);
        let error = inferred.columns(["id", "by.nam"]).unwrap_err().to_string();
        assert!(
            error.contains("by.nam\"") && error.contains("id, by.name"),
            "{error}"
        );
        let (schema, paths) = inferred.columns(["by.name"]).unwrap();
        assert_eq!(
            (schema.fields().len(), paths),
            (1, vec![FieldPath::from("by.name")])
        );
    }
}
