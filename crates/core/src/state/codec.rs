//! Serialization of state values.

use crate::{Integer, Result, Schema};

/// A serializer of state values of one type.
///
/// Processors get the codec from the code that knows the type, as edges get theirs. Called once per
/// entry of a snapshot, never once per record.
pub trait StateCodec<T>: Send + Sync {
    /// Appends a value.
    ///
    /// # Errors
    /// If it can't be encoded. Bytes appended before the error must be ignored.
    fn put(&self, value: &T, out: &mut Vec<u8>) -> Result<()>;

    /// Decodes the value from `bytes`.
    ///
    /// # Errors
    /// If `bytes` is not a value of this type.
    fn get(&self, bytes: &[u8]) -> Result<T>;

    /// Returns the value as an integer if the integer represents it completely. Checkpoints store
    /// sequences of integers more compactly. [`get_integer`](Self::get_integer) must return an
    /// equal value for the integer. A codec may return `None` for some values and integers for
    /// others.
    fn integer(&self, value: &T) -> Option<Integer> {
        let _ = value;
        None
    }

    /// Returns the value of an integer.
    ///
    /// # Errors
    /// If this type has no such value.
    fn get_integer(&self, integer: Integer) -> Result<T> {
        Err(integer.unexpected())
    }

    /// Returns the schema of the values, as far as known without a value. May take a millisecond:
    /// call it once.
    fn schema(&self) -> Schema {
        Schema::Any
    }
}
