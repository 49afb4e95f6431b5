//! The verified packages of a directory: those that were read completely and match their digests.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::artifacts::Digest;

/// The maximum number of entries. If it is exceeded, all entries are dropped, and the packages are
/// read again.
const MOST: usize = 10_000;

/// Verified packages with the states of their files. Clones share the entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct VerificationCache(Arc<Mutex<BTreeMap<Digest, State>>>);

/// The state of a file, which differs after every change of the file. Its change time detects a
/// change in place even if the modification time was reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl State {
    /// Returns the current state of a file.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        State {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl VerificationCache {
    /// Records that a package was verified with its file in this state.
    pub(crate) fn remember(&self, digest: Digest, state: State) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(digest, state);
    }

    /// Returns true if a package was verified with its file in this state.
    pub(crate) fn contains(&self, digest: &Digest, state: State) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(digest) == Some(&state)
    }
}
