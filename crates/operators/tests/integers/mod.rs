//! State that is integers, as codecs say of the types that are.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Integer, Result, StateCodec};
use ardea_operators::KeptAs;

/// Integers as what they are; odd ones also as their bytes.
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

/// Keys and counts as integers, but for some of both.
pub fn integers() -> KeptAs<u16, u64> {
    KeptAs::new(Arc::new(Integers), Arc::new(Integers))
}
