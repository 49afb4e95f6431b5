//! Schemas of state, stored with its entries to check whether another program version can read
//! them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The schema of the values of a type.
///
/// In JSON a primitive type is its name (`"i64"`), and a composite type an object with one member,
/// such as `{"list": "text"}`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Schema {
    /// Self-describing: the type is known only from each value.
    Any,
    /// The unit type `()`.
    Unit,
    /// A boolean.
    Bool,
    /// An unsigned integer of 8 bits.
    U8,
    /// An unsigned integer of 16 bits.
    U16,
    /// An unsigned integer of 32 bits.
    U32,
    /// An unsigned integer of 64 bits.
    U64,
    /// An unsigned integer of 128 bits.
    U128,
    /// A signed integer of 8 bits.
    I8,
    /// A signed integer of 16 bits.
    I16,
    /// A signed integer of 32 bits.
    I32,
    /// A signed integer of 64 bits.
    I64,
    /// A signed integer of 128 bits.
    I128,
    /// A floating-point number, of 32 bits.
    F32,
    /// A floating-point number, of 64 bits.
    F64,
    /// A character.
    Char,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Bytes,
    /// An optional value.
    Option(Box<Schema>),
    /// A list of values.
    List(Box<Schema>),
    /// A fixed number of values, each with its own type.
    Tuple(Vec<Schema>),
    /// A map from keys to values.
    Map(Box<Schema>, Box<Schema>),
    /// A struct with named fields.
    Struct(StructSchema),
    /// An enum.
    Enum(EnumSchema),
    /// A recursive reference to the enclosing struct or enum of this name.
    Again(String),
    /// A type whose fields and variants are identified by position, since serde writes other names
    /// than it reads. It can't evolve.
    Placed(Box<Schema>),
}

/// The schema of a struct.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct StructSchema {
    /// The name of the type, only for display.
    pub name: String,
    /// The fields, in order.
    pub fields: Vec<FieldSchema>,
}

/// The schema of a struct's field.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FieldSchema {
    /// The name of the field.
    pub name: String,
    /// Alternative names that the reader accepts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The type of the field.
    #[serde(rename = "type")]
    pub schema: Schema,
    /// True if the reader uses a default for a missing field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_default: bool,
}

/// The schema of an enum.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct EnumSchema {
    /// The name of the type, only for display.
    pub name: String,
    /// The names of all variants that the enum accepts, with their content.
    pub variants: Vec<VariantSchema>,
    /// True if some names in `variants` are aliases of the same variant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_aliases: bool,
}

/// The schema of an enum's variant.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct VariantSchema {
    /// The name of the variant.
    pub name: String,
    /// The content of the variant.
    pub holds: Schema,
}

impl fmt::Display for Schema {
    /// Formats the type in a word or two, in Rust's notation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Schema::Any => "any value",
            Schema::Unit => "()",
            Schema::Bool => "bool",
            Schema::U8 => "u8",
            Schema::U16 => "u16",
            Schema::U32 => "u32",
            Schema::U64 => "u64",
            Schema::U128 => "u128",
            Schema::I8 => "i8",
            Schema::I16 => "i16",
            Schema::I32 => "i32",
            Schema::I64 => "i64",
            Schema::I128 => "i128",
            Schema::F32 => "f32",
            Schema::F64 => "f64",
            Schema::Char => "char",
            Schema::Text => "text",
            Schema::Bytes => "bytes",
            Schema::Option(of) => return write!(f, "Option<{of}>"),
            Schema::List(of) => return write!(f, "Vec<{of}>"),
            Schema::Map(key, value) => return write!(f, "Map<{key}, {value}>"),
            Schema::Tuple(parts) => {
                f.write_str("(")?;
                for (number, part) in parts.iter().enumerate() {
                    let comma = if number > 0 { ", " } else { "" };
                    write!(f, "{comma}{part}")?;
                }
                return f.write_str(")");
            }
            Schema::Struct(of) => &of.name,
            Schema::Enum(of) => &of.name,
            Schema::Again(name) => name,
            Schema::Placed(of) => return write!(f, "{of} (by places)"),
        };
        f.write_str(word)
    }
}

/// The description of a processor's state, stored with its entries.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct StateShape {
    /// The name of the state in its entries.
    pub name: String,
    /// The kind of its entries.
    pub form: StateForm,
}

/// The kind of a state's entries.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StateForm {
    /// Values of user types, which may change between two program versions.
    Values {
        /// The type of the keys, if entries store it; `None` if they store only the canonical bytes
        /// of a key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<Schema>,
        /// The type of the values.
        value: Schema,
    },
    /// An internal format of the processor, which only changes with the version of Ardea.
    Own,
}

impl StateShape {
    /// Creates the description of a state with values of user types.
    pub fn of_values(name: impl Into<String>, key: Option<Schema>, value: Schema) -> Self {
        StateShape {
            name: name.into(),
            form: StateForm::Values { key, value },
        }
    }

    /// Creates the description of a state in the processor's internal format.
    pub fn own(name: impl Into<String>) -> Self {
        StateShape {
            name: name.into(),
            form: StateForm::Own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_written_as_json_that_people_can_read() {
        let account = Schema::Struct(StructSchema {
            name: "Account".into(),
            fields: vec![
                FieldSchema {
                    name: "owner".into(),
                    also: Vec::new(),
                    schema: Schema::Text,
                    has_default: false,
                },
                FieldSchema {
                    name: "balance".into(),
                    also: vec!["saldo".into()],
                    schema: Schema::Option(Box::new(Schema::I64)),
                    has_default: true,
                },
            ],
        });
        let text = serde_json::to_string(&account).unwrap();
        assert_eq!(
            text,
            r#"{"struct":{"name":"Account","fields":[{"name":"owner","type":"text"},{"name":"balance","also":["saldo"],"type":{"option":"i64"},"has_default":true}]}}"#
        );
        assert_eq!(serde_json::from_str::<Schema>(&text).unwrap(), account);
    }

    #[test]
    fn a_schema_is_told_as_a_programmer_would_write_it() {
        let of = Schema::Map(
            Box::new(Schema::Tuple(vec![Schema::Text, Schema::I32])),
            Box::new(Schema::List(Box::new(Schema::Again("Node".into())))),
        );
        assert_eq!(of.to_string(), "Map<(text, i32), Vec<Node>>");
    }
}
