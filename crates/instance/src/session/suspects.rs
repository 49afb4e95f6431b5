//! Records that were in flight when a process died.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use crate::format::EncodedBatch;

/// The maximum number of suspects; further ones are not recorded.
const MAX_SUSPECTS: usize = 1 << 16;

/// The records that were in flight at deaths of processes of a step, with the number of deaths.
///
/// The instances of a step share it, so that it outlives restarts of the job in this process. A
/// suspect is sent alone: its next death identifies it, and an answer acquits it.
#[derive(Debug, Default)]
pub struct Suspects(Mutex<HashMap<u64, u32>>);

impl Suspects {
    /// Returns a hash of a batch of one record: its time, key and value.
    pub(crate) fn fingerprint(record: &EncodedBatch) -> u64 {
        xxh3_64(&record.payload)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if there is no suspect.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns the number of deaths with this record in flight.
    pub fn deaths(&self, record: &EncodedBatch) -> u32 {
        let deaths = self.lock().get(&Self::fingerprint(record)).copied();
        deaths.unwrap_or(0)
    }

    /// Counts a death with this record in flight.
    pub(crate) fn count(&self, record: &EncodedBatch) {
        let mut suspects = self.lock();
        let is_full = suspects.len() >= MAX_SUSPECTS;
        let fingerprint = Self::fingerprint(record);
        if !is_full || suspects.contains_key(&fingerprint) {
            *suspects.entry(fingerprint).or_default() += 1;
        }
    }

    /// Removes a record that was answered.
    pub(crate) fn acquit(&self, record: &EncodedBatch) {
        self.lock().remove(&Self::fingerprint(record));
    }
}
