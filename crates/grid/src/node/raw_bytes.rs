//! Raw bytes as keys and values.

use ardea_core::{Key, KeyBytes, Result, Schema, StateCodec};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A key or value as raw bytes, for [guest maps](crate::node::Grid::guest_map) and [maps of
/// bytes](crate::node::Grid::bytes_map). A key's partition is determined by its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawBytes(pub Bytes);

impl From<Vec<u8>> for RawBytes {
    fn from(bytes: Vec<u8>) -> Self {
        RawBytes(bytes.into())
    }
}

impl Key for RawBytes {
    fn write(&self, bytes: &mut KeyBytes) {
        bytes.raw(&self.0);
    }
}

/// Codec that copies the bytes unchanged.
pub(crate) struct RawCodec;

impl StateCodec<RawBytes> for RawCodec {
    fn put(&self, value: &RawBytes, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&value.0);
        Ok(())
    }

    fn get(&self, bytes: &[u8]) -> Result<RawBytes> {
        Ok(RawBytes(Bytes::copy_from_slice(bytes)))
    }

    fn schema(&self) -> Schema {
        Schema::Bytes
    }
}
