//! Values of generated types: serialized as if by derived serde implementations, and migrated by a
//! reference implementation.

use std::cell::RefCell;
use std::fmt;

use ardea_core::{EnumSchema, Schema, StructSchema};
use serde::de::{
    DeserializeSeed, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// All names that generated fields and variants can have.
pub const NAMES: [&str; 8] = ["alpha", "beta", "c", "delta", "epsilon", "f", "gamma", "h"];

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Unit,
    Bool(bool),
    Whole(i128),
    Float(f64),
    Text(String),
    Option(Option<Box<Value>>),
    /// A list or a tuple.
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Struct(Vec<(String, Value)>),
    Variant(String, Box<Value>),
}

/// A value of the type that [`as_type`] has set.
#[derive(Clone, PartialEq, Debug)]
pub struct Dyn(pub Value);

thread_local! {
    static TYPE: RefCell<Schema> = const { RefCell::new(Schema::Unit) };
}

/// Calls `act` while values of [`Dyn`] have the type `schema`.
pub fn as_type<R>(schema: &Schema, act: impl FnOnce() -> R) -> R {
    TYPE.set(schema.clone());
    act()
}

fn present() -> Schema {
    TYPE.with_borrow(Clone::clone)
}

/// The range of an integer type.
pub struct Whole {
    pub least: i128,
    pub most: i128,
}

pub fn whole(schema: &Schema) -> Option<Whole> {
    let (least, most) = match schema {
        Schema::U8 => (0, u8::MAX.into()),
        Schema::U16 => (0, u16::MAX.into()),
        Schema::U32 => (0, u32::MAX.into()),
        Schema::U64 => (0, u64::MAX.into()),
        Schema::I8 => (i8::MIN.into(), i8::MAX.into()),
        Schema::I16 => (i16::MIN.into(), i16::MAX.into()),
        Schema::I32 => (i32::MIN.into(), i32::MAX.into()),
        Schema::I64 => (i64::MIN.into(), i64::MAX.into()),
        _ => return None,
    };
    Some(Whole { least, most })
}

/// Returns the value migrated from type `old` to type `new`; `None` if the value does not fit the
/// new type.
pub fn migrated(value: &Value, old: &Schema, new: &Schema) -> Option<Value> {
    if let (Value::Whole(number), Some(Whole { least, most })) = (value, whole(new)) {
        return (least..=most).contains(number).then(|| value.clone());
    }
    Some(match (old, new, value) {
        (Schema::Option(old), Schema::Option(new), Value::Option(value)) => {
            let value = value.as_ref().map(|value| migrated(value, old, new));
            Value::Option(match value {
                Some(value) => Some(Box::new(value?)),
                None => None,
            })
        }
        (old, Schema::Option(new), value) => {
            Value::Option(Some(Box::new(migrated(value, old, new)?)))
        }
        (_, Schema::F32 | Schema::F64, Value::Whole(number)) => Value::Float(*number as f64),
        (Schema::List(old), Schema::List(new), Value::List(values)) => {
            let values = values.iter().map(|value| migrated(value, old, new));
            Value::List(values.collect::<Option<_>>()?)
        }
        (Schema::Map(_, old), Schema::Map(_, new), Value::Map(entries)) => {
            let entries = entries.iter();
            let entries =
                entries.map(|(key, value)| Some((key.clone(), migrated(value, old, new)?)));
            Value::Map(entries.collect::<Option<_>>()?)
        }
        (Schema::Tuple(old), Schema::Tuple(new), Value::List(values)) => {
            let parts = values.iter().zip(old.iter().zip(new));
            let parts = parts.map(|(value, (old, new))| migrated(value, old, new));
            Value::List(parts.collect::<Option<_>>()?)
        }
        (Schema::Struct(old), Schema::Struct(new), Value::Struct(fields)) => {
            Value::Struct(migrated_fields(fields, old, new)?)
        }
        (Schema::Enum(old), Schema::Enum(new), Value::Variant(name, holds)) => {
            let old = old.variants.iter().find(|variant| variant.name == *name)?;
            let new = new.variants.iter().find(|variant| variant.name == *name)?;
            let holds = migrated(holds, &old.holds, &new.holds)?;
            Value::Variant(name.clone(), Box::new(holds))
        }
        (_, _, value) => value.clone(),
    })
}

/// Returns the value with the fields of each struct sorted by name.
pub fn by_names(value: Value) -> Value {
    let all = |values: Vec<Value>| values.into_iter().map(by_names).collect();
    match value {
        Value::Option(Some(value)) => Value::Option(Some(Box::new(by_names(*value)))),
        Value::List(values) => Value::List(all(values)),
        Value::Map(entries) => {
            let entries = entries.into_iter();
            Value::Map(entries.map(|(key, value)| (key, by_names(value))).collect())
        }
        Value::Struct(fields) => {
            let fields = fields.into_iter();
            let mut fields: Vec<_> = fields
                .map(|(name, value)| (name, by_names(value)))
                .collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Struct(fields)
        }
        Value::Variant(name, holds) => Value::Variant(name, Box::new(by_names(*holds))),
        plain => plain,
    }
}

fn migrated_fields(
    fields: &[(String, Value)],
    old: &StructSchema,
    new: &StructSchema,
) -> Option<Vec<(String, Value)>> {
    let migrate = |field: &ardea_core::FieldSchema| {
        let named = |name: &String| *name == field.name || field.also.contains(name);
        let value = match fields.iter().find(|(name, _)| named(name)) {
            Some((name, value)) => {
                let was = old.fields.iter().find(|old| old.name == *name)?;
                migrated(value, &was.schema, &field.schema)?
            }
            None if field.has_default => default_of(&field.schema),
            None => return None,
        };
        Some((field.name.clone(), value))
    };
    new.fields.iter().map(migrate).collect()
}

/// Returns the default value of a field with this type.
fn default_of(schema: &Schema) -> Value {
    match schema {
        Schema::Bool => Value::Bool(false),
        Schema::Text => Value::Text(String::new()),
        Schema::F32 | Schema::F64 => Value::Float(0.0),
        Schema::Option(_) => Value::Option(None),
        Schema::List(_) => Value::List(Vec::new()),
        Schema::Map(..) => Value::Map(Vec::new()),
        Schema::Tuple(parts) => Value::List(parts.iter().map(default_of).collect()),
        Schema::Struct(of) => {
            let fields = of.fields.iter();
            let fields = fields.map(|field| (field.name.clone(), default_of(&field.schema)));
            Value::Struct(fields.collect())
        }
        Schema::Enum(of) => {
            let first = &of.variants[0];
            Value::Variant(first.name.clone(), Box::new(default_of(&first.holds)))
        }
        schema if whole(schema).is_some() => Value::Whole(0),
        _ => Value::Unit,
    }
}

/// Returns the equal name in [`NAMES`], which has a static lifetime.
fn known(name: &str) -> &'static str {
    NAMES
        .iter()
        .find(|known| **known == name)
        .expect("it is one of them")
}

/// Returns a type name with a static lifetime.
fn of_type(name: &str) -> &'static str {
    thread_local! {
        static TYPES: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    }
    TYPES.with_borrow_mut(|types| {
        if let Some(known) = types.iter().find(|known| **known == name) {
            return *known;
        }
        let known: &'static str = Box::leak(name.into());
        types.push(known);
        known
    })
}

/// Returns the list with a static lifetime. Each different list is leaked once.
fn list_of(names: Vec<&'static str>) -> &'static [&'static str] {
    thread_local! {
        static LISTS: RefCell<Vec<&'static [&'static str]>> = const { RefCell::new(Vec::new()) };
    }
    LISTS.with_borrow_mut(|lists| {
        if let Some(list) = lists.iter().find(|list| ***list == *names) {
            return *list;
        }
        let list: &'static [&'static str] = Box::leak(names.into_boxed_slice());
        lists.push(list);
        list
    })
}

/// Returns the names and aliases of all fields. Those of each field are sorted.
fn all_names(of: &StructSchema) -> &'static [&'static str] {
    let names = of.fields.iter().flat_map(|field| {
        let mut names: Vec<&'static str> = field.also.iter().map(|name| known(name)).collect();
        names.push(known(&field.name));
        names.sort_unstable();
        names
    });
    list_of(names.collect())
}

impl Serialize for Dyn {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Written(&present(), &self.0).serialize(to)
    }
}

struct Written<'a>(&'a Schema, &'a Value);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Written(schema, value) = self;
        match (schema, value) {
            (Schema::U8, Value::Whole(number)) => to.serialize_u8(*number as u8),
            (Schema::U16, Value::Whole(number)) => to.serialize_u16(*number as u16),
            (Schema::U32, Value::Whole(number)) => to.serialize_u32(*number as u32),
            (Schema::U64, Value::Whole(number)) => to.serialize_u64(*number as u64),
            (Schema::I8, Value::Whole(number)) => to.serialize_i8(*number as i8),
            (Schema::I16, Value::Whole(number)) => to.serialize_i16(*number as i16),
            (Schema::I32, Value::Whole(number)) => to.serialize_i32(*number as i32),
            (Schema::I64, Value::Whole(number)) => to.serialize_i64(*number as i64),
            (Schema::F32, Value::Float(number)) => to.serialize_f32(*number as f32),
            (Schema::F64, Value::Float(number)) => to.serialize_f64(*number),
            (Schema::Bool, Value::Bool(value)) => to.serialize_bool(*value),
            (Schema::Text, Value::Text(text)) => to.serialize_str(text),
            (Schema::Option(of), Value::Option(Some(value))) => {
                to.serialize_some(&Written(of, value))
            }
            (Schema::Option(_), _) => to.serialize_none(),
            (Schema::List(of), Value::List(values)) => {
                let mut list = to.serialize_seq(Some(values.len()))?;
                values
                    .iter()
                    .try_for_each(|value| list.serialize_element(&Written(of, value)))?;
                list.end()
            }
            (Schema::Tuple(parts), Value::List(values)) => {
                let mut list = to.serialize_tuple(values.len())?;
                let mut both = parts.iter().zip(values);
                both.try_for_each(|(of, value)| list.serialize_element(&Written(of, value)))?;
                list.end()
            }
            (Schema::Map(_, of), Value::Map(entries)) => {
                let mut map = to.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(&Written(&Schema::Text, key), &Written(of, value))?;
                }
                map.end()
            }
            (Schema::Struct(of), Value::Struct(fields)) => {
                let mut to = to.serialize_struct(of_type(&of.name), fields.len())?;
                for (of, (name, value)) in of.fields.iter().zip(fields) {
                    to.serialize_field(known(name), &Written(&of.schema, value))?;
                }
                to.end()
            }
            (Schema::Enum(of), Value::Variant(name, holds)) => written_variant(of, name, holds, to),
            _ => to.serialize_unit(),
        }
    }
}

fn written_variant<S: Serializer>(
    of: &EnumSchema,
    name: &str,
    holds: &Value,
    to: S,
) -> Result<S::Ok, S::Error> {
    let index = of.variants.iter().position(|variant| variant.name == name);
    let index = index.expect("it is one of them");
    let schema = &of.variants[index].holds;
    let (index, name, to_type) = (index as u32, known(name), of_type(&of.name));
    match (schema, holds) {
        (Schema::Unit, _) => to.serialize_unit_variant(to_type, index, name),
        (Schema::Struct(of), Value::Struct(fields)) => {
            let mut to = to.serialize_struct_variant(to_type, index, name, fields.len())?;
            for (of, (name, value)) in of.fields.iter().zip(fields) {
                to.serialize_field(known(name), &Written(&of.schema, value))?;
            }
            to.end()
        }
        _ => to.serialize_newtype_variant(to_type, index, name, &Written(schema, holds)),
    }
}

impl<'de> Deserialize<'de> for Dyn {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Read(&present()).deserialize(from).map(Dyn)
    }
}

/// Deserializer of a value with the type of this schema.
struct Read<'a>(&'a Schema);

macro_rules! wholes {
    ($from:ident, $schema:ident, $($kind:ident $type:ty),*) => {
        $(if *$schema == Schema::$kind {
            return <$type>::deserialize($from).map(|number| Value::Whole(number.into()));
        })*
    };
}

impl<'de> DeserializeSeed<'de> for Read<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let schema = self.0;
        wholes!(from, schema, U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64);
        match schema {
            Schema::F32 => f32::deserialize(from).map(|number| Value::Float(number.into())),
            Schema::F64 => f64::deserialize(from).map(Value::Float),
            Schema::Bool => bool::deserialize(from).map(Value::Bool),
            Schema::Text => String::deserialize(from).map(Value::Text),
            Schema::Option(_) => from.deserialize_option(self),
            Schema::List(_) => from.deserialize_seq(self),
            Schema::Map(..) => from.deserialize_map(self),
            Schema::Tuple(parts) => from.deserialize_tuple(parts.len(), self),
            Schema::Struct(of) => {
                from.deserialize_struct(of_type(&of.name), all_names(of), InStruct(of))
            }
            Schema::Enum(of) => {
                let names = of.variants.iter().map(|variant| known(&variant.name));
                from.deserialize_enum(of_type(&of.name), list_of(names.collect()), InEnum(of))
            }
            _ => <()>::deserialize(from).map(|()| Value::Unit),
        }
    }
}

impl<'de> Visitor<'de> for Read<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Option(None))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let Schema::Option(of) = self.0 else {
            return Err(D::Error::custom("no option"));
        };
        let value = Read(of).deserialize(from)?;
        Ok(Value::Option(Some(Box::new(value))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        match self.0 {
            Schema::Tuple(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    let value = from.next_element_seed(Read(part))?;
                    values.push(value.ok_or_else(|| A::Error::invalid_length(at, &self))?);
                }
            }
            Schema::List(of) => {
                while let Some(value) = from.next_element_seed(Read(of))? {
                    values.push(value);
                }
            }
            _ => return Err(A::Error::custom("no list")),
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let Schema::Map(key, of) = self.0 else {
            return Err(A::Error::custom("no map"));
        };
        let mut entries = Vec::new();
        while let Some(key) = from.next_key_seed(Read(key))? {
            entries.push((key, from.next_value_seed(Read(of))?));
        }
        Ok(Value::Map(entries))
    }
}

/// Deserializer of a struct, equivalent to the derived one.
struct InStruct<'a>(&'a StructSchema);

impl<'de> Visitor<'de> for InStruct<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("struct S")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        for (at, field) in self.0.fields.iter().enumerate() {
            let value = match from.next_element_seed(Read(&field.schema))? {
                Some(value) => value,
                None if field.has_default && !matches!(field.schema, Schema::Option(_)) => {
                    default_of(&field.schema)
                }
                None => return Err(A::Error::invalid_length(at, &self)),
            };
            fields.push((field.name.clone(), value));
        }
        Ok(Value::Struct(fields))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut found: Vec<Option<Value>> = vec![None; self.0.fields.len()];
        while let Some(name) = from.next_key::<String>()? {
            let mut fields = self.0.fields.iter();
            let is_it =
                |field: &ardea_core::FieldSchema| field.name == name || field.also.contains(&name);
            let Some(at) = fields.position(is_it) else {
                from.next_value::<IgnoredAny>()?;
                continue;
            };
            if found[at].is_some() {
                return Err(A::Error::duplicate_field(known(&self.0.fields[at].name)));
            }
            found[at] = Some(from.next_value_seed(Read(&self.0.fields[at].schema))?);
        }
        let fields = self.0.fields.iter().zip(found).map(|(field, found)| {
            let value = match found {
                Some(value) => value,
                None if field.has_default => default_of(&field.schema),
                None => return Err(A::Error::missing_field(known(&field.name))),
            };
            Ok((field.name.clone(), value))
        });
        fields.collect::<Result<_, _>>().map(Value::Struct)
    }
}

/// Deserializer of an enum, equivalent to the derived one.
struct InEnum<'a>(&'a EnumSchema);

impl<'de> Visitor<'de> for InEnum<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("enum E")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, from: A) -> Result<Value, A::Error> {
        let (at, holds) = from.variant_seed(Which(self.0))?;
        let variant = &self.0.variants[at];
        let value = match &variant.holds {
            Schema::Unit => holds.unit_variant().map(|()| Value::Unit)?,
            Schema::Struct(of) => holds.struct_variant(all_names(of), InStruct(of))?,
            other => holds.newtype_variant_seed(Read(other))?,
        };
        Ok(Value::Variant(variant.name.clone(), Box::new(value)))
    }
}

/// Deserializer of a variant's index.
struct Which<'a>(&'a EnumSchema);

impl<'de> DeserializeSeed<'de> for Which<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<usize, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl<'de> Visitor<'de> for Which<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("variant identifier")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<usize, E> {
        let count = self.0.variants.len();
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        (number < count)
            .then_some(number)
            .ok_or_else(|| E::custom("no variant"))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let mut variants = self.0.variants.iter();
        let at = variants.position(|variant| variant.name == name);
        at.ok_or_else(|| E::custom("no variant"))
    }
}
