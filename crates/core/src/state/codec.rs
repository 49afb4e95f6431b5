//! How values of state become bytes.

use crate::{Integer, Result, Schema};

/// Writes and reads values of one type, as they are kept beyond the life of an instance.
///
/// Processors get theirs from whoever knows the type, as edges get their codecs. Called once an entry of a cut, never once a record.
pub trait StateCodec<T>: Send + Sync {
    /// Appends a value.
    ///
    /// # Errors
    /// If it can't be written. What was appended by then is to be ignored.
    fn put(&self, value: &T, out: &mut Vec<u8>) -> Result<()>;

    /// The value of which `bytes` consist.
    ///
    /// # Errors
    /// If they are none of this type.
    fn get(&self, bytes: &[u8]) -> Result<T>;

    /// The integer that is all there is to a value, if one is: it takes less room and time where many stand behind each other. What comes
    /// of [`get_integer`](Self::get_integer) is the value. One who names integers at times may do so at other times not.
    fn integer(&self, value: &T) -> Option<Integer> {
        let _ = value;
        None
    }

    /// The value that is an integer.
    ///
    /// # Errors
    /// If none of this type is.
    fn get_integer(&self, integer: Integer) -> Result<T> {
        Err(integer.unexpected())
    }

    /// What the values look like, as far as that can be told without one. May take a millisecond: ask once.
    fn schema(&self) -> Schema {
        Schema::Any
    }
}
