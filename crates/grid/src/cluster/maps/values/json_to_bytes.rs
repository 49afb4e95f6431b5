//! Encoding of JSON in the form that a schema requires.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use ardea_core::{EnumSchema, Schema, StructSchema};
use serde::de::{Deserialize, Deserializer};
use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::bytes_to_json::UntypedValue;

/// Maximum total size of interned names, in bytes.
const MOST_NAME_BYTES: usize = 4 << 20;

/// Maximum number of characters of a value shown in an error.
const SHOWN: usize = 60;

/// A value and its schema.
pub(super) struct TypedJson {
    schema: Schema,
    value: Value,
    why: RefCell<Option<String>>,
}

impl TypedJson {
    pub(super) fn new(schema: Schema, value: Value) -> Self {
        TypedJson {
            schema,
            value,
            why: RefCell::default(),
        }
    }

    /// Returns the reason why the value does not match the schema.
    pub(super) fn why(&self) -> Option<String> {
        self.why.borrow().clone()
    }
}

impl Serialize for TypedJson {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let place = JsonPath {
            within: None,
            name: "",
            schema: &self.schema,
        };
        let part = TypedPart {
            schema: &self.schema,
            value: &self.value,
            place: &place,
            why: &self.why,
        };
        part.serialize(to)
    }
}

/// Used by the codec to check that a written value is readable.
impl<'de> Deserialize<'de> for TypedJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let UntypedValue(value) = UntypedValue::deserialize(from)?;
        Ok(TypedJson::new(Schema::Any, value))
    }
}

/// Position of a part within a value.
struct JsonPath<'a> {
    within: Option<&'a JsonPath<'a>>,
    /// Field name or index; empty for a part at the same position as its parent.
    name: &'a str,
    schema: &'a Schema,
}

impl JsonPath<'_> {
    fn path(&self) -> String {
        let outer = self.within.map(JsonPath::path).unwrap_or_default();
        match (outer.is_empty(), self.name.is_empty()) {
            (_, true) => outer,
            (true, _) => self.name.to_string(),
            (false, false) => format!("{outer}.{}", self.name),
        }
    }

    /// Finds the enclosing struct or enum schema with this name, for recursive types.
    fn again(&self, name: &str) -> Option<&Schema> {
        let is_it = match self.schema {
            Schema::Struct(of) => of.name == name,
            Schema::Enum(of) => of.name == name,
            _ => false,
        };
        match is_it {
            true => Some(self.schema),
            false => self.within.and_then(|outer| outer.again(name)),
        }
    }
}

/// A part of a value, with its schema.
struct TypedPart<'a> {
    schema: &'a Schema,
    value: &'a Value,
    place: &'a JsonPath<'a>,
    why: &'a RefCell<Option<String>>,
}

impl TypedPart<'_> {
    fn no<E: serde::ser::Error>(&self, what: impl Display) -> E {
        let path = self.place.path();
        let why = match path.is_empty() {
            true => what.to_string(),
            false => format!("{path}: {what}"),
        };
        let error = E::custom(&why);
        self.why.borrow_mut().get_or_insert(why);
        error
    }

    /// Returns the error for a value of the wrong type.
    fn is_none<E: serde::ser::Error>(&self, kind: impl Display) -> E {
        let value = self.value.to_string();
        let shown: String = value.chars().take(SHOWN).collect();
        let more = if shown.len() < value.len() { "…" } else { "" };
        self.no(format_args!("{shown}{more} is no {kind}"))
    }

    /// Calls `write` with a nested part.
    fn inner<R>(
        &self,
        name: &str,
        (schema, value): (&Schema, &Value),
        write: impl FnOnce(&TypedPart<'_>) -> R,
    ) -> R {
        let place = JsonPath {
            within: Some(self.place),
            name,
            schema,
        };
        write(&TypedPart {
            schema,
            value,
            place: &place,
            why: self.why,
        })
    }

    /// Reads an integer, given as number or as text. Text is needed where JSON numbers are too
    /// small.
    fn whole<T: std::str::FromStr, E: serde::ser::Error>(&self) -> Result<T, E> {
        let text = match self.value {
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            _ => return Err(self.is_none(self.schema)),
        };
        text.parse().map_err(|_| self.is_none(self.schema))
    }

    fn text<E: serde::ser::Error>(&self) -> Result<&str, E> {
        let text = self.value.as_str();
        text.ok_or_else(|| self.is_none(self.schema))
    }

    fn list<E: serde::ser::Error>(&self) -> Result<&[Value], E> {
        let all = self.value.as_array();
        all.map(Vec::as_slice).ok_or_else(|| self.is_none("list"))
    }

    fn float<E: serde::ser::Error>(&self) -> Result<f64, E> {
        let text = self.value.as_str().and_then(|text| text.parse().ok());
        let number = self.value.as_f64().or(text);
        number.ok_or_else(|| self.is_none(self.schema))
    }

    fn letter<E: serde::ser::Error>(&self) -> Result<char, E> {
        let mut letters = self.text()?.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) => Ok(letter),
            _ => Err(self.is_none(self.schema)),
        }
    }

    fn bytes<E: serde::ser::Error>(&self) -> Result<Vec<u8>, E> {
        let all = self.list()?.iter();
        let bytes = all.map(|it| it.as_u64().and_then(|it| u8::try_from(it).ok()));
        let bytes: Option<Vec<u8>> = bytes.collect();
        bytes.ok_or_else(|| self.is_none(self.schema))
    }

    fn write_list<S: Serializer>(&self, of: &Schema, to: S) -> Result<S::Ok, S::Error> {
        let all = self.list()?;
        let mut list = to.serialize_seq(Some(all.len()))?;
        for (number, value) in all.iter().enumerate() {
            self.inner(&number.to_string(), (of, value), |part| {
                list.serialize_element(part)
            })?;
        }
        list.end()
    }

    fn write_tuple<S: Serializer>(&self, parts: &[Schema], to: S) -> Result<S::Ok, S::Error> {
        let all = self.list()?;
        if all.len() != parts.len() {
            return Err(self.is_none(format_args!("list of {}", parts.len())));
        }
        let mut tuple = to.serialize_tuple(parts.len())?;
        for (number, part) in parts.iter().zip(all).enumerate() {
            self.inner(&number.to_string(), part, |part| {
                tuple.serialize_element(part)
            })?;
        }
        tuple.end()
    }

    /// Writes a map, given as an object or as a list of pairs.
    fn write_map<S: Serializer>(
        &self,
        (keys, values): (&Schema, &Schema),
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        let mut put = |name: &str, key: &Value, value: &Value| {
            self.inner(name, (keys, key), |key| map.serialize_key(key))?;
            self.inner(name, (values, value), |value| map.serialize_value(value))
        };
        match self.value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let key = match keys {
                        Schema::Bool => serde_json::from_str(name).unwrap_or(Value::Null),
                        _ => Value::String(name.clone()),
                    };
                    put(name, &key, value)?;
                }
            }
            _ => {
                for (number, pair) in self.list()?.iter().enumerate() {
                    let Some([key, value]) = pair.as_array().map(Vec::as_slice) else {
                        return Err(self.is_none("list of keys with their values"));
                    };
                    put(&number.to_string(), key, value)?;
                }
            }
        }
        map.end()
    }

    fn write_struct<S: Serializer>(&self, of: &StructSchema, to: S) -> Result<S::Ok, S::Error> {
        let Some(given) = self.value.as_object() else {
            return Err(self.is_none(&of.name));
        };
        let is_known = |name: &String| of.fields.iter().any(|field| field.name == *name);
        if let Some(unknown) = given.keys().find(|name| !is_known(name)) {
            return Err(self.no(format_args!("there is no field {unknown:?}")));
        }
        let fail = |why: String| self.no(why);
        let mut fields = to.serialize_struct(interned(&of.name).map_err(fail)?, of.fields.len())?;
        for field in &of.fields {
            let name = interned(&field.name).map_err(fail)?;
            let is_option = matches!(field.schema, Schema::Option(_));
            let value = match given.get(&field.name) {
                Some(value) => value,
                None if field.has_default => {
                    fields.skip_field(name)?;
                    continue;
                }
                None if is_option => &Value::Null,
                None => {
                    let name = &field.name;
                    return Err(self.no(format_args!("the field {name:?} is missing")));
                }
            };
            self.inner(name, (&field.schema, value), |part| {
                fields.serialize_field(name, part)
            })?;
        }
        fields.end()
    }

    /// Writes an enum variant, given by its name, or as an object with its content under its name.
    fn write_variant<S: Serializer>(&self, of: &EnumSchema, to: S) -> Result<S::Ok, S::Error> {
        let (called, holds) = match self.value {
            Value::String(name) => (name, &Value::Null),
            Value::Object(fields) => match fields.iter().next() {
                Some((name, holds)) if fields.len() == 1 => (name, holds),
                _ => return Err(self.is_none(&of.name)),
            },
            _ => return Err(self.is_none(&of.name)),
        };
        let mut variants = (0_u32..).zip(&of.variants);
        let Some((number, variant)) = variants.find(|(_, variant)| variant.name == *called) else {
            return Err(self.no(format_args!("there is no {called:?} in {}", of.name)));
        };
        let fail = |why: String| self.no(why);
        let (of, name) = (
            interned(&of.name).map_err(fail)?,
            interned(called).map_err(fail)?,
        );
        match &variant.holds {
            Schema::Unit => to.serialize_unit_variant(of, number, name),
            schema => self.inner(name, (schema, holds), |part| {
                to.serialize_newtype_variant(of, number, name, part)
            }),
        }
    }
}

impl Serialize for TypedPart<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.schema {
            Schema::Any => self.value.serialize(to),
            Schema::Unit if self.value.is_null() => to.serialize_unit(),
            Schema::Bool => match self.value.as_bool() {
                Some(is) => to.serialize_bool(is),
                None => Err(self.is_none(self.schema)),
            },
            Schema::U8 => to.serialize_u8(self.whole()?),
            Schema::U16 => to.serialize_u16(self.whole()?),
            Schema::U32 => to.serialize_u32(self.whole()?),
            Schema::U64 => to.serialize_u64(self.whole()?),
            Schema::U128 => to.serialize_u128(self.whole()?),
            Schema::I8 => to.serialize_i8(self.whole()?),
            Schema::I16 => to.serialize_i16(self.whole()?),
            Schema::I32 => to.serialize_i32(self.whole()?),
            Schema::I64 => to.serialize_i64(self.whole()?),
            Schema::I128 => to.serialize_i128(self.whole()?),
            Schema::F32 => to.serialize_f32(self.float()? as f32),
            Schema::F64 => to.serialize_f64(self.float()?),
            Schema::Char => to.serialize_char(self.letter()?),
            Schema::Text => to.serialize_str(self.text()?),
            Schema::Bytes => to.serialize_bytes(&self.bytes()?),
            Schema::Option(_) if self.value.is_null() => to.serialize_none(),
            Schema::Option(of) => self.inner("", (of, self.value), |part| to.serialize_some(part)),
            Schema::List(of) => self.write_list(of, to),
            Schema::Tuple(parts) => self.write_tuple(parts, to),
            Schema::Map(keys, values) => self.write_map((keys, values), to),
            Schema::Struct(of) => self.write_struct(of, to),
            Schema::Enum(of) => self.write_variant(of, to),
            Schema::Again(name) => match self.place.within.and_then(|outer| outer.again(name)) {
                Some(schema) => self.inner("", (schema, self.value), |part| part.serialize(to)),
                None => Err(self.no(format_args!("the schema has no type {name}"))),
            },
            _ => Err(self.is_none(self.schema)),
        }
    }
}

/// Interns a name for the life of the process. The number of names is bounded by the types of maps.
fn interned(name: &str) -> Result<&'static str, String> {
    static NAMES: Mutex<(BTreeSet<&'static str>, usize)> = Mutex::new((BTreeSet::new(), 0));
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.0.get(name) {
        return Ok(known);
    }
    if names.1 + name.len() > MOST_NAME_BYTES {
        return Err("this process has written values of too many types".to_string());
    }
    names.1 += name.len();
    let name: &'static str = Box::leak(name.into());
    names.0.insert(name);
    Ok(name)
}
