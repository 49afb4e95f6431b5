//! State that belongs to instances, not to keys: how far a source has read, what a sink has written. It is written as JSON, under keys that
//! begin with the instance, and is small.
//!
//! It belongs to no partition, so it goes to all instances when it comes back, and each takes what is its own. Where the number of instances
//! has changed, all look at what all have written and divide it by the same rule.
//!
//! ```
//! use ardea_core::instance_state::{Siblings, put};
//! use ardea_core::{Instance, RestoredState, StateChunk};
//!
//! let mut chunk = StateChunk::default();
//! for (instance, read) in [(0, 17), (1, 20)] {
//!     put(&mut chunk, "read", (instance, b""), &(2, read))?;
//! }
//! let mut siblings = Siblings::<(u32, u64)>::default();
//! let mut position = 0;
//! for entry in RestoredState::new(&chunk, &mut position, Instance::ONLY, 100) {
//!     siblings.take(&entry)?;
//! }
//! assert_eq!(siblings.all(|(instances, _)| *instances)?, Some(vec![(2, 17), (2, 20)]));
//! # Ok::<(), ardea_core::Error>(())
//! ```

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::{RestoredEntry, StateChunk};
use crate::{Error, ErrorCode, Result};

/// Appends an entry of an instance; `rest` is what its key has besides.
///
/// # Errors
/// As [`StateChunk::write`], or if the value can't be written as JSON.
pub fn put<T: Serialize>(
    chunk: &mut StateChunk,
    state: &str,
    (instance, rest): (u32, &[u8]),
    value: &T,
) -> Result<()> {
    let key = |out: &mut Vec<u8>| {
        out.extend_from_slice(&key_of(instance, rest));
        Ok(())
    };
    chunk.write(state, None, key, |out| {
        serde_json::to_writer(out, value).map_err(|error| {
            let what = format!("the state {state:?} can't be written");
            Error::new(ErrorCode::Internal, what).because(error)
        })
    })
}

/// The key of an entry of an instance.
pub fn key_of(instance: u32, rest: &[u8]) -> Vec<u8> {
    [&instance.to_be_bytes(), rest].concat()
}

/// Which instance has written an entry, and the rest of its key.
///
/// # Errors
/// If it was not written by [`put`].
pub fn written_by<'a>(entry: &RestoredEntry<'a>) -> Result<(u32, &'a [u8])> {
    match entry.key.split_first_chunk() {
        Some((instance, rest)) => Ok((u32::from_be_bytes(*instance), rest)),
        None => Err(unreadable(entry.state)),
    }
}

/// The value of an entry.
///
/// # Errors
/// If it is none of this type.
pub fn value<T: DeserializeOwned>(entry: &RestoredEntry<'_>) -> Result<T> {
    serde_json::from_slice(entry.value).map_err(|error| unreadable(entry.state).because(error))
}

fn unreadable(state: &str) -> Error {
    Error::new(
        ErrorCode::BadRecord,
        format!("an entry of the state {state:?} can't be read"),
    )
    .hint("start from another snapshot")
}

/// What the instances of a vertex have handed over: a value each.
#[derive(Debug)]
pub struct Siblings<T>(BTreeMap<u32, T>);

impl<T> Default for Siblings<T> {
    fn default() -> Self {
        Siblings(BTreeMap::new())
    }
}

impl<T: DeserializeOwned> Siblings<T> {
    /// Takes the value of one of them.
    ///
    /// # Errors
    /// As [`written_by`] and [`value`].
    pub fn take(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        let (instance, _) = written_by(entry)?;
        self.0.insert(instance, value(entry)?);
        Ok(())
    }

    /// The values in the order of the instances, and none if there is none. `count` says how many instances there were.
    ///
    /// # Errors
    /// If some are missing: nobody could say what they had still to do.
    pub fn all(&mut self, count: impl Fn(&T) -> u32) -> Result<Option<Vec<T>>> {
        let all = std::mem::take(&mut self.0);
        let came = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let are_whole = (0..)
            .zip(&all)
            .all(|(expected, (index, value))| *index == expected && count(value) == came);
        if !are_whole {
            let what = format!("the state of {came} instances does not fit together");
            return Err(Error::new(ErrorCode::BadRecord, what).hint("start from another snapshot"));
        }
        Ok(Some(all.into_values().collect()).filter(|all: &Vec<T>| !all.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Instance, RestoredState};

    fn written(entries: &[(u32, u32)]) -> Siblings<u32> {
        let mut chunk = StateChunk::default();
        for (instance, count) in entries {
            put(&mut chunk, "s", (*instance, b"x"), count).unwrap();
        }
        let mut position = 0;
        let state = RestoredState::new(&chunk, &mut position, Instance::ONLY, usize::MAX);
        let mut siblings = Siblings::default();
        for entry in state {
            assert_eq!(written_by(&entry).unwrap().1, b"x");
            siblings.take(&entry).unwrap();
        }
        siblings
    }

    #[test]
    fn all_instances_come_back_or_it_is_an_error() {
        let all = |entries| written(entries).all(|count| *count);
        assert_eq!(all(&[]).unwrap(), None);
        assert_eq!(all(&[(1, 2), (0, 2)]).unwrap(), Some(vec![2, 2]));
        for torn in [
            &[(1, 2)][..],
            &[(0, 2)],
            &[(0, 1), (1, 1)],
            &[(0, 3), (2, 3), (3, 3)],
        ] {
            assert_eq!(all(torn).unwrap_err().code(), ErrorCode::BadRecord);
        }
    }
}
