//! Keys and values as bytes.

use ardea_core::{Key, KeyBytes, Result, Schema, StateCodec};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A key or a value as bytes, of a [guest's map](crate::node::Grid::guest_map) or one [of bytes](crate::node::Grid::bytes_map). The partition of a key is that of its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plain(pub Bytes);

impl From<Vec<u8>> for Plain {
    fn from(bytes: Vec<u8>) -> Self {
        Plain(bytes.into())
    }
}

impl Key for Plain {
    fn write(&self, bytes: &mut KeyBytes) {
        bytes.raw(&self.0);
    }
}

/// Writes them as they are.
pub(crate) struct AsTheyAre;

impl StateCodec<Plain> for AsTheyAre {
    fn put(&self, value: &Plain, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&value.0);
        Ok(())
    }

    fn get(&self, bytes: &[u8]) -> Result<Plain> {
        Ok(Plain(Bytes::copy_from_slice(bytes)))
    }

    fn schema(&self) -> Schema {
        Schema::Bytes
    }
}
