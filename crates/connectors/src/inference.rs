//! The schema of a file's records, inferred from the first of them.
//!
//! ```
//! use ardea_connectors::inference::{InferredSchema, InferredType};
//!
//! let lines = [r#"{"id":7,"price":1.5}"#, r#"{"id":-1,"note":"new"}"#];
//! let schema = InferredSchema::of_json(lines.iter().map(|line| line.as_bytes()));
//! let price = &schema.fields()[1];
//! assert_eq!((price.name.as_str(), &price.kind), ("price", &InferredType::Float));
//! assert!(price.is_optional, "the second record has none");
//! assert!(schema.to_rust("Order").contains("price: Option<f64>"));
//! ```

mod kinds;
mod names;
mod python;
mod rust;
mod sample;
mod sql;

use crate::format::{Csv, Decode};
use kinds::{KindOfValue, kind_of_text};
pub use sample::{InferredFormat, infer_file};

/// The type of a field, as far as the sample shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InferredType {
    /// No value but null occurred.
    Null,
    /// True or false.
    Bool,
    /// Integers in the range of an `i64`.
    Integer,
    /// Integers, of which at least one is beyond the range of an `i64` and none is negative.
    Unsigned,
    /// Numbers with a fraction or an exponent, or integers beyond 64 bits.
    Float,
    /// Points in time, as texts of RFC 3339.
    Timestamp,
    /// Texts.
    Text,
    /// Arrays of this type.
    List(Box<InferredType>),
    /// Objects with these fields.
    Record(Vec<InferredField>),
    /// Values of several types.
    Mixed,
}

/// A field of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InferredField {
    /// The name.
    pub name: String,
    /// The type.
    pub kind: InferredType,
    /// True if a record of the sample lacks the field or has null in it.
    pub is_optional: bool,
}

/// The fields of records, and the size of the sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InferredSchema {
    fields: Vec<InferredField>,
    records: u64,
    bad: u64,
}

impl InferredSchema {
    /// Infers the schema of lines with one JSON object each. Other lines are counted as bad.
    pub fn of_json<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut schema = InferredSchema::empty();
        for line in lines {
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(KindOfValue(InferredType::Record(fields))) => schema.add(fields),
                _ => schema.bad += 1,
            }
        }
        schema
    }

    /// Infers the schema of CSV records, given with their header as the first. Types are inferred
    /// from the texts. An empty field is null. Numbers with a leading zero and values of several
    /// types are texts.
    pub fn of_csv<'a>(mut format: Csv, frames: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut schema = InferredSchema::empty();
        for frame in frames {
            match Decode::<kinds::TextFields>::decode(&mut format, frame) {
                Ok(Some(record)) => schema.add(record.kinds(kind_of_text)),
                Ok(None) => {}
                Err(_) => schema.bad += 1,
            }
        }
        for field in &mut schema.fields {
            if field.kind == InferredType::Mixed {
                field.kind = InferredType::Text;
            }
        }
        schema
    }

    /// Creates the schema of `records` records with these fields, of a format that names them.
    pub fn of_fields(fields: Vec<InferredField>, records: u64) -> Self {
        InferredSchema {
            fields,
            records,
            bad: 0,
        }
    }

    fn empty() -> Self {
        InferredSchema {
            fields: Vec::new(),
            records: 0,
            bad: 0,
        }
    }

    fn add(&mut self, fields: Vec<InferredField>) {
        match self.records {
            0 => self.fields = fields,
            _ => kinds::merge_fields(&mut self.fields, fields),
        }
        self.records += 1;
    }

    /// Returns the fields, in the order of their first occurrence.
    pub fn fields(&self) -> &[InferredField] {
        &self.fields
    }

    /// Returns the number of records of the sample.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the number of malformed records that were left out of the sample.
    pub fn bad_records(&self) -> u64 {
        self.bad
    }

    /// Returns the schema as Rust structs that serde reads; `name` is that of the record.
    pub fn to_rust(&self, name: &str) -> String {
        rust::structs(name, &self.fields)
    }

    /// Returns the schema as Python classes; `name` is that of the record.
    pub fn to_python(&self, name: &str) -> String {
        python::classes(name, &self.fields)
    }

    /// Returns the schema as an SQL table; `name` is that of the table.
    pub fn to_sql(&self, name: &str) -> String {
        sql::table(name, &self.fields)
    }
}

#[cfg(test)]
mod tests;
