//! What keeps a process from leading a job that it stands for: for people, who else see only that nobody leads it.

use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Error, ErrorCode, Result};

/// Why a job's lease can't be read or written, as long as that is so. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<Error>>>);

impl Trouble {
    /// This was the last answer. That somebody else has written is no trouble.
    pub(crate) fn note<T>(&self, answer: &Result<T>) {
        let error = answer.as_ref().err();
        let kept = error.filter(|error| error.code() != ErrorCode::StateConflict);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept.cloned();
    }

    /// What it is, if there is any.
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
        let trouble = Trouble::default();
        let failed = |code| Err::<(), _>(Error::new(code, "no"));
        trouble.note(&failed(ErrorCode::DiskFull));
        assert_eq!(
            trouble.get().map(|error| error.code()),
            Some(ErrorCode::DiskFull)
        );
        trouble.note(&failed(ErrorCode::StateConflict));
        assert!(trouble.get().is_none());
        trouble.note(&failed(ErrorCode::StateCorrupt));
        trouble.note(&Ok(1));
        assert!(trouble.get().is_none());
    }
}
