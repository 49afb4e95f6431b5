//! The codec of state values.

use std::any::type_name;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Integer, Result, Schema, StateCodec};

use crate::exchange::is_local;
use crate::{ExchangeData, SerdeValues, ValueCodec};

/// A value that can be part of a checkpoint: every type that serde can write and read, as for
/// [`ExchangeData`] records.
///
/// Derive [`Serialize`](serde::Serialize) and [`Deserialize`](serde::Deserialize) for your own
/// types. A type that cannot be serialized, or must not be, is wrapped in a
/// [`Local`](crate::Local): a job with checkpoints is then rejected.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be part of a checkpoint",
    label = "this is state of a step, which must be restored after a failure if the job has checkpoints",
    note = "it must implement serde's traits: `#[derive(serde::Serialize, serde::Deserialize)]`, and so has each type in it",
    note = "or wrap it, if the job has no checkpoints: `Local`"
)]
pub trait StateValue: ExchangeData {}

#[diagnostic::do_not_recommend]
impl<T: ExchangeData> StateValue for T {}

/// A codec of single state values that uses the codec of an edge.
///
/// ```
/// use ardea_codec::{StateValues, WireValues};
/// use ardea_core::StateCodec;
///
/// let codec = StateValues::new(WireValues);
/// let mut bytes = Vec::new();
/// codec.put(&7u64, &mut bytes)?;
/// let back: u64 = codec.get(&bytes)?;
/// assert_eq!(back, 7);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct StateValues<V>(V);

impl<V> StateValues<V> {
    /// Creates a codec that writes values with `values`.
    pub fn new(values: V) -> Self {
        StateValues(values)
    }
}

impl<T, V: ValueCodec<T>> StateCodec<T> for StateValues<V> {
    fn put(&self, value: &T, out: &mut Vec<u8>) -> Result<()> {
        let written = self.0.put(std::slice::from_ref(value), 0, out);
        written.map(drop).map_err(|error| {
            let what = format!("a state of type {} can't be written", type_name::<T>());
            Error::new(ErrorCode::UserError, what)
                .because(error.without_hint())
                .hint("serde has to read it as it wrote it")
        })
    }

    fn get(&self, bytes: &[u8]) -> Result<T> {
        let mut values = Vec::with_capacity(1);
        let read = self.0.get(bytes, 1, &mut values);
        let bad = || {
            let what = format!("{} bytes are no {}", bytes.len(), type_name::<T>());
            Error::new(ErrorCode::BadRecord, what)
                .hint("start the job as it was when the checkpoint was taken")
        };
        read.map_err(|error| bad().because(error))?;
        values.pop().ok_or_else(bad)
    }

    #[inline]
    fn integer(&self, value: &T) -> Option<Integer> {
        self.0.integer(value)
    }

    fn get_integer(&self, integer: Integer) -> Result<T> {
        // The integer is written in the format of the whole value, so that a changed type reads it
        // in the same way.
        let mut bytes = Vec::with_capacity(16);
        if !self.0.put_integer(integer, &mut bytes) {
            return Err(integer.unexpected());
        }
        StateCodec::<T>::get(self, &bytes)
    }

    fn schema(&self) -> Schema {
        self.0.schema()
    }
}

/// Returns the codec of keys or states of type `T`. Returns `None` for [`Local`](crate::Local)
/// types, which are not allowed in a job with checkpoints.
///
/// Written values can be read by a later version of the program. The type in that version may have
///
/// * more fields, if serde has a default for them: of type `Option`, or with `#[serde(default)]`;
/// * fewer fields: their content is dropped;
/// * fields and variants with other names, if `#[serde(alias = "old")]` gives the old name;
/// * wider numbers, an `Option<T>` instead of a `T`, more variants.
///
/// A type whose fields serde writes under other names than it reads must not change, because its
/// values are read by field position.
pub fn state_codec_of<T: StateValue>() -> Option<Arc<dyn StateCodec<T>>> {
    if is_local::<T>() {
        return None;
    }
    Some(Arc::new(StateValues(SerdeValues::for_state())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Local;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Account {
        owner: String,
        balance: Option<i64>,
    }

    #[test]
    fn a_value_comes_back_as_it_was_written() {
        let codec = state_codec_of::<Account>().unwrap();
        let account = Account {
            owner: "ann".into(),
            balance: Some(-7),
        };
        let mut bytes = vec![1, 2];
        codec.put(&account, &mut bytes).unwrap();
        assert_eq!(codec.get(&bytes[2..]).unwrap(), account);
    }

    #[test]
    fn other_bytes_are_refused_with_the_type_named() {
        let codec = state_codec_of::<(u64, String)>().unwrap();
        let mut bytes = Vec::new();
        codec.put(&(1, "one".to_string()), &mut bytes).unwrap();
        bytes.push(0);
        for bytes in [&bytes[..], &bytes[..4], &[]] {
            let error = codec.get(bytes).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadRecord);
            assert!(error.to_string().contains("String"), "{error}");
        }
    }

    /// Writes a string and reads a number.
    struct Odd;

    impl Serialize for Odd {
        fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
            to.serialize_str("odd")
        }
    }

    impl<'de> Deserialize<'de> for Odd {
        fn deserialize<D: serde::Deserializer<'de>>(
            from: D,
        ) -> std::result::Result<Self, D::Error> {
            u64::deserialize(from).map(|_| Odd)
        }
    }

    #[test]
    fn what_could_not_be_read_again_is_refused_when_it_is_written() {
        let codec = state_codec_of::<Odd>().unwrap();
        let error = codec.put(&Odd, &mut Vec::new()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::UserError);
        assert!(error.to_string().contains("Odd"), "{error}");
    }

    #[test]
    fn what_stays_in_its_process_is_not_kept() {
        assert!(state_codec_of::<Local<u64>>().is_none());
        assert!(state_codec_of::<Option<Local<u64>>>().is_none());
        assert!(state_codec_of::<&'static str>().is_some());
    }
}
