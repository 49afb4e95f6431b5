//! Records of formats with typed fields, such as Avro and Protocol Buffers.

use super::BatchDecode;

/// The value of a field.
#[derive(Clone, Copy)]
pub enum FieldValue<'a> {
    /// No value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// A text, or the name of an enum's value.
    Text(&'a str),
    /// The time since the Unix epoch, in this unit.
    Timestamp(i64, SubsecondUnit),
    /// The days since the Unix epoch.
    Date(i32),
    /// A record with fields.
    Record(&'a dyn FieldRecord),
    /// A value of another type, which has this name.
    Other(&'static str),
}

/// The unit of a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubsecondUnit {
    /// Milliseconds.
    Milli,
    /// Microseconds.
    Micro,
    /// Nanoseconds.
    Nano,
}

impl SubsecondUnit {
    /// Returns the number of nanoseconds in the unit.
    pub const fn nanos(self) -> i64 {
        match self {
            SubsecondUnit::Milli => 1_000_000,
            SubsecondUnit::Micro => 1_000,
            SubsecondUnit::Nano => 1,
        }
    }
}

/// A decoded record of a format with typed fields.
pub trait FieldRecord {
    /// Calls `take` with the name and the value of each field.
    ///
    /// # Errors
    /// The first error of `take`.
    fn each_field(
        &self,
        take: &mut dyn FnMut(&str, FieldValue<'_>) -> Result<(), String>,
    ) -> Result<(), String>;
}

/// A decoder that also collects records with typed fields in its batch.
pub trait BatchFields: BatchDecode {
    /// Adds a record to the batch.
    ///
    /// # Errors
    /// The reason why the record does not fit. Then it leaves nothing in the batch.
    fn decode_fields(&mut self, record: &dyn FieldRecord) -> Result<(), String>;
}
