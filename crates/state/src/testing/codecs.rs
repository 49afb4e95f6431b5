//! Codecs for numbers in tests.

use ardea_core::{Integer, Result, StateCodec};

use crate::codec::truncated_entry;

/// A codec that encodes a number as eight bytes.
pub struct EightBytes;

impl StateCodec<u64> for EightBytes {
    fn put(&self, value: &u64, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn get(&self, bytes: &[u8]) -> Result<u64> {
        let bytes = bytes.try_into().map_err(|_| truncated_entry())?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// A codec that encodes even numbers as integers where possible, and odd ones as eight bytes.
pub struct EvenIntegers;

impl StateCodec<u64> for EvenIntegers {
    fn put(&self, value: &u64, out: &mut Vec<u8>) -> Result<()> {
        EightBytes.put(value, out)
    }

    fn get(&self, bytes: &[u8]) -> Result<u64> {
        EightBytes.get(bytes)
    }

    fn integer(&self, value: &u64) -> Option<Integer> {
        value.is_multiple_of(2).then(|| Integer::from(*value))
    }

    fn get_integer(&self, integer: Integer) -> Result<u64> {
        Ok(integer.value())
    }
}

impl StateCodec<i64> for EvenIntegers {
    fn put(&self, value: &i64, out: &mut Vec<u8>) -> Result<()> {
        EightBytes.put(&value.cast_unsigned(), out)
    }

    fn get(&self, bytes: &[u8]) -> Result<i64> {
        EightBytes.get(bytes).map(u64::cast_signed)
    }

    fn integer(&self, value: &i64) -> Option<Integer> {
        (value % 2 == 0).then(|| Integer::from(*value))
    }

    fn get_integer(&self, integer: Integer) -> Result<i64> {
        Ok(integer.value().cast_signed())
    }
}
