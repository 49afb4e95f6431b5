//! What state looks like: told beside its bytes, so that who reads it later knows what it was, and whether it still fits.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What values of a type look like.
///
/// Written as JSON a number is its name (`"i64"`), and what holds others an object with one member, such as `{"list": "text"}`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Schema {
    /// Nothing is known beforehand: each value says what it is.
    Any,
    /// Nothing: `()`.
    Unit,
    /// True or false.
    Bool,
    /// A whole number without sign, of 8 bits.
    U8,
    /// Of 16 bits.
    U16,
    /// Of 32 bits.
    U32,
    /// Of 64 bits.
    U64,
    /// Of 128 bits.
    U128,
    /// A whole number, of 8 bits.
    I8,
    /// Of 16 bits.
    I16,
    /// Of 32 bits.
    I32,
    /// Of 64 bits.
    I64,
    /// Of 128 bits.
    I128,
    /// A floating-point number, of 32 bits.
    F32,
    /// Of 64 bits.
    F64,
    /// A character.
    Char,
    /// UTF-8.
    Text,
    /// Bytes.
    Bytes,
    /// A value, or none.
    Option(Box<Schema>),
    /// Any number of values.
    List(Box<Schema>),
    /// As many values as it says, each of its own kind.
    Tuple(Vec<Schema>),
    /// Keys with a value each.
    Map(Box<Schema>, Box<Schema>),
    /// Fields with names.
    Struct(StructSchema),
    /// One of several variants.
    Enum(EnumSchema),
    /// The struct or enum of this name, in which this one lies.
    Again(String),
    /// Values that are found by their places and not by names, since serde writes them under other names than it reads: they can't change.
    Placed(Box<Schema>),
}

/// What a struct looks like.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct StructSchema {
    /// What its author calls it; only told to people.
    pub name: String,
    /// Its fields, in their order.
    pub fields: Vec<FieldSchema>,
}

/// A field of a struct.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FieldSchema {
    /// What it is called.
    pub name: String,
    /// What else whoever reads it accepts as its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// What is in it.
    #[serde(rename = "type")]
    pub schema: Schema,
    /// Whether whoever reads it has a value of its own where there is none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_default: bool,
}

/// What an enum looks like.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct EnumSchema {
    /// What its author calls it; only told to people.
    pub name: String,
    /// All names that it knows for its variants, and what they hold.
    pub variants: Vec<VariantSchema>,
    /// Whether some of those are further names of the same variant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_aliases: bool,
}

/// A variant of an enum.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct VariantSchema {
    /// What it is called.
    pub name: String,
    /// What it holds.
    pub holds: Schema,
}

impl fmt::Display for Schema {
    /// In a word or two, as a Rust programmer would write it.
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

/// A state of a processor, as it is told beside its entries.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct StateShape {
    /// The name under which its entries are written.
    pub name: String,
    /// What its entries are.
    pub form: StateForm,
}

/// What the entries of a state are.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StateForm {
    /// What a step of the user's has remembered: its types may change between two versions of the program.
    Values {
        /// The type of the keys, where entries say it; none where they lie under the canonical bytes of a key alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<Schema>,
        /// The type of what is remembered of a key.
        value: Schema,
    },
    /// A form of the processor's own, which changes with the version of Ardea, if at all.
    Own,
}

impl StateShape {
    /// A state that holds values of the user's types.
    pub fn of_values(name: impl Into<String>, key: Option<Schema>, value: Schema) -> Self {
        StateShape {
            name: name.into(),
            form: StateForm::Values { key, value },
        }
    }

    /// A state in a form of the processor's own.
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
