//! The error that keeps a candidate from leading a job, for display.

use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Error, ErrorCode, Result};

/// The error of the last operation on the lease, if that operation failed. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseError(Arc<Mutex<Option<Error>>>);

impl LeaseError {
    /// Records the result of a lease operation. A conflict with another writer counts as a success.
    pub(crate) fn note<T>(&self, answer: &Result<T>) {
        let error = answer.as_ref().err();
        let kept = error.filter(|error| error.code() != ErrorCode::MetastoreConflict);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept.cloned();
    }

    /// Returns the error, if any.
    pub(crate) fn get(&self) -> Option<Error> {
        let trouble = self.0.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_until_there_is_another_answer_and_a_conflict_is_none() {
        let trouble = LeaseError::default();
        let failed = |code| Err::<(), _>(Error::new(code, "no"));
        trouble.note(&failed(ErrorCode::DiskFull));
        assert_eq!(
            trouble.get().map(|error| error.code()),
            Some(ErrorCode::DiskFull)
        );
        trouble.note(&failed(ErrorCode::MetastoreConflict));
        assert!(trouble.get().is_none());
        trouble.note(&failed(ErrorCode::MetastoreCorrupt));
        trouble.note(&Ok(1));
        assert!(trouble.get().is_none());
    }
}
