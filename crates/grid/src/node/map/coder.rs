//! Encoding and decoding of keys and values.

use std::sync::Arc;

use ardea_codec::{StateValue, state_codec_of};
use ardea_core::{Key, Result, StateCodec};
use bytes::Bytes;

use super::encode_buffer;
use crate::node::raw_bytes::{RawBytes, RawCodec};

/// Codec of keys and values.
pub(crate) struct Coder<K, V> {
    keys: Arc<dyn StateCodec<K>>,
    values: Arc<dyn StateCodec<V>>,
    same: Option<IdentityCoder<V>>,
}

/// Conversion of values that are bytes already, without a copy.
struct IdentityCoder<V> {
    of: fn(&V) -> &Bytes,
    back: fn(Bytes) -> V,
}

impl IdentityCoder<RawBytes> {
    const PLAIN: Self = IdentityCoder {
        of: |value| &value.0,
        back: RawBytes,
    };
}

impl Coder<RawBytes, RawBytes> {
    /// Creates a codec for raw keys and values.
    pub fn plain() -> Self {
        Coder {
            keys: Arc::new(RawCodec),
            values: Arc::new(RawCodec),
            same: Some(IdentityCoder::PLAIN),
        }
    }
}

impl<K: Key + StateValue> Coder<K, RawBytes> {
    /// Creates a codec for raw values; `None` if the keys cannot be serialized.
    pub fn of_bytes() -> Option<Self> {
        Some(Coder {
            keys: state_codec_of::<K>()?,
            values: Arc::new(RawCodec),
            same: Some(IdentityCoder::PLAIN),
        })
    }
}

impl<K: Key + StateValue, V: StateValue> Coder<K, V> {
    /// Creates a codec with the types' state codecs; `None` if they cannot be serialized.
    pub fn of_types() -> Option<Self> {
        Some(Coder {
            keys: state_codec_of::<K>()?,
            values: state_codec_of::<V>()?,
            same: None,
        })
    }
}

impl<K, V> Coder<K, V> {
    pub fn key(&self, bytes: &[u8]) -> Result<K> {
        self.keys.get(bytes)
    }

    pub fn value(&self, bytes: &[u8]) -> Result<V> {
        self.values.get(bytes)
    }

    /// Decodes an owned value, without a copy if values are raw bytes.
    pub fn value_of(&self, bytes: Bytes) -> Result<V> {
        match &self.same {
            Some(same) => Ok((same.back)(bytes)),
            None => self.value(&bytes),
        }
    }

    pub fn put_key(&self, key: &K, out: &mut Vec<u8>) -> Result<()> {
        self.keys.put(key, out)
    }

    pub fn put_value(&self, value: &V, out: &mut Vec<u8>) -> Result<()> {
        self.values.put(value, out)
    }

    /// Returns the value's bytes if values are raw bytes.
    pub fn as_it_is<'a>(&self, value: &'a V) -> Option<&'a Bytes> {
        self.same.as_ref().map(|same| (same.of)(value))
    }

    /// Encodes a key and a value. `fits` checks their total size in bytes.
    pub fn entry(
        &self,
        key: &K,
        value: &V,
        fits: impl FnOnce(usize) -> Result<()>,
    ) -> Result<(Bytes, Bytes)> {
        let same = self.as_it_is(value);
        let (key, written) = encode_buffer::entry(|bytes| {
            self.keys.put(key, bytes)?;
            let at = bytes.len();
            if same.is_none() {
                self.values.put(value, bytes)?;
            }
            fits(bytes.len() + same.map_or(0, Bytes::len))?;
            Ok(at)
        })?;
        Ok((key, same.cloned().unwrap_or(written)))
    }
}

impl<K, V> Clone for Coder<K, V> {
    fn clone(&self) -> Self {
        Coder {
            keys: Arc::clone(&self.keys),
            values: Arc::clone(&self.values),
            same: self.same,
        }
    }
}

impl<V> Clone for IdentityCoder<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for IdentityCoder<V> {}
