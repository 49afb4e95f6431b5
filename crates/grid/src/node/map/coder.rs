//! From keys and values to bytes, and back.

use std::sync::Arc;

use ardea_codec::{Kept, state_codec_of};
use ardea_core::{Key, Result, StateCodec};
use bytes::Bytes;

use super::pen;
use crate::node::plain::{AsTheyAre, Plain};

/// From keys and values to bytes, and back.
pub(crate) struct Coder<K, V> {
    keys: Arc<dyn StateCodec<K>>,
    values: Arc<dyn StateCodec<V>>,
    same: Option<Same<V>>,
}

/// Values that are bytes already: in a grid they lie in the memory that they are in.
struct Same<V> {
    of: fn(&V) -> &Bytes,
    back: fn(Bytes) -> V,
}

impl Same<Plain> {
    const PLAIN: Self = Same {
        of: |value| &value.0,
        back: Plain,
    };
}

impl Coder<Plain, Plain> {
    /// Keys and values that are bytes.
    pub fn plain() -> Self {
        Coder {
            keys: Arc::new(AsTheyAre),
            values: Arc::new(AsTheyAre),
            same: Some(Same::PLAIN),
        }
    }
}

impl<K: Key + Kept> Coder<K, Plain> {
    /// Values that are bytes; none if such keys can't leave their process.
    pub fn of_bytes() -> Option<Self> {
        Some(Coder {
            keys: state_codec_of::<K>()?,
            values: Arc::new(AsTheyAre),
            same: Some(Same::PLAIN),
        })
    }
}

impl<K: Key + Kept, V: Kept> Coder<K, V> {
    /// As values of these types are written everywhere; none if they can't leave their process.
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

    /// The same of bytes that are nobody else's to keep.
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

    /// The value, if it is bytes already.
    pub fn as_it_is<'a>(&self, value: &'a V) -> Option<&'a Bytes> {
        self.same.as_ref().map(|same| (same.of)(value))
    }

    /// A key and a value as bytes, if `fits` lets them be so long together.
    pub fn entry(
        &self,
        key: &K,
        value: &V,
        fits: impl FnOnce(usize) -> Result<()>,
    ) -> Result<(Bytes, Bytes)> {
        let same = self.as_it_is(value);
        let (key, written) = pen::entry(|bytes| {
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

impl<V> Clone for Same<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Same<V> {}
