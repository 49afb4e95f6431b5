//! The version of an object.

use object_store::{GetOptions, ObjectMeta};
use xxhash_rust::xxh3::xxh3_64;

use crate::files::fingerprint::Fingerprint;

/// The version of an object when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ObjectStatus {
    pub bytes: u64,
    /// The entity tag, if the store has one.
    tag: Option<String>,
    modified_ns: i64,
}

impl ObjectStatus {
    pub fn of(object: &ObjectMeta) -> Self {
        ObjectStatus {
            bytes: object.size,
            tag: object.e_tag.clone(),
            modified_ns: object.last_modified.timestamp_nanos_opt().unwrap_or(0),
        }
    }

    /// Returns the options of a request that fails if the object has another version.
    pub fn unchanged(&self) -> GetOptions {
        GetOptions {
            if_match: self.tag.clone(),
            ..GetOptions::default()
        }
    }

    /// Returns the fingerprint: the hash of the entity tag, or the modification time if the store
    /// has no tags.
    pub fn fingerprint(&self) -> Fingerprint {
        match &self.tag {
            Some(tag) => Fingerprint::of_object(self.bytes, 0, xxh3_64(tag.as_bytes())),
            None => Fingerprint::of_object(self.bytes, self.modified_ns, 0),
        }
    }
}
