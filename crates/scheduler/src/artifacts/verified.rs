//! Which packages of a directory were read to their ends and found to be what their digests say.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::artifacts::Digest;

/// How many are remembered; beyond that all are forgotten, and read again.
const MOST: usize = 10_000;

/// Packages that were verified, as long as nobody touches their files. Clones share what they know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verified(Arc<Mutex<BTreeMap<Digest, State>>>);

/// What changes with every change of a file: what was changed in place and had its time set back is found by its own time of change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl State {
    /// How a file is now.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        State {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Verified {
    /// A package was whole when its file was so.
    pub(crate) fn remember(&self, digest: Digest, state: State) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(digest, state);
    }

    /// Whether a package was whole when its file was so.
    pub(crate) fn knows(&self, digest: &Digest, state: State) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(digest) == Some(&state)
    }
}
