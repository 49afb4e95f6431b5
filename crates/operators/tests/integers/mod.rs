//! A codec of integers.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Integer, Result, StateCodec};
use ardea_operators::StateCodecs;

/// Encodes integers as integers; odd ones also as bytes.
struct Integers;

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl StateCodec<$type> for Integers {
            fn put(&self, value: &$type, out: &mut Vec<u8>) -> Result<()> {
                out.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }

            fn get(&self, bytes: &[u8]) -> Result<$type> {
                let bytes = bytes.try_into();
                let bytes = bytes.map_err(|_| Error::new(ErrorCode::BadRecord, "no integer"))?;
                Ok(<$type>::from_le_bytes(bytes))
            }

            fn integer(&self, value: &$type) -> Option<Integer> {
                (value % 7 != 3).then(|| Integer::from(*value))
            }

            fn get_integer(&self, integer: Integer) -> Result<$type> {
                Ok(integer.value() as $type)
            }
        }
    )*};
}

integers! { u16 u64 }

/// Codecs of keys and counts as integers, except some of both.
pub fn integers() -> StateCodecs<u16, u64> {
    StateCodecs::new(Arc::new(Integers), Arc::new(Integers))
}
