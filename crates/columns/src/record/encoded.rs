//! Encoded records.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::key::GroupKey;

/// A record as bytes, shared between its copies. Its [`RecordLayout`](super::RecordLayout) is that
/// of its step.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EncodedRecord(Arc<[u8]>);

/// A record as bytes, with its key.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct KeyedRecord {
    pub(crate) key: GroupKey,
    pub(crate) record: EncodedRecord,
}

impl EncodedRecord {
    /// Copies the bytes of a record.
    pub(super) fn new(bytes: &[u8]) -> Self {
        EncodedRecord(bytes.into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for EncodedRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for EncodedRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(RecordVisitor)
    }
}

/// A visitor of the bytes of a record.
struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = EncodedRecord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a record")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<EncodedRecord, E> {
        Ok(EncodedRecord::new(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<EncodedRecord, A::Error> {
        let mut all = Vec::new();
        while let Some(byte) = bytes.next_element()? {
            all.push(byte);
        }
        Ok(EncodedRecord::new(&all))
    }
}
