//! State of instances instead of keys, such as the read position of a source or the files of a
//! sink. It is small, and stored as JSON under keys that begin with the index of the instance.
//!
//! Such entries have no partition, so all instances get all of them on restore and each selects its
//! own. After a change of parallelism all instances read all entries and divide them by the same
//! rule.
//! ```
//! use ardea_core::instance_state::{PeerInstances, put};
//! use ardea_core::{Instance, RestoredState, StateChunk};
//!
//! let mut chunk = StateChunk::default();
//! for (instance, read) in [(0, 17), (1, 20)] {
//!     put(&mut chunk, "read", (instance, b""), &(2, read))?;
//! }
//! let mut siblings = PeerInstances::<(u32, u64)>::default();
//! let mut position = 0;
//! siblings.restore("read", &mut RestoredState::new(&chunk, &mut position, Instance::ONLY, 100))?;
//! assert_eq!(siblings.all(|(instances, _)| *instances)?, Some(vec![(2, 17), (2, 20)]));
//! # Ok::<(), ardea_core::Error>(())
//! ```

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::{RestoredEntry, RestoredState, StateChunk};
use crate::{Error, ErrorCode, Result};

/// Appends an entry of an instance; its key is the index of `instance`, then `rest`.
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

/// Returns the key of an entry of an instance.
pub fn key_of(instance: u32, rest: &[u8]) -> Vec<u8> {
    [&instance.to_be_bytes(), rest].concat()
}

/// Returns the instance that wrote an entry, and the rest of its key.
///
/// # Errors
/// If it was not written by [`put`].
pub fn written_by<'a>(entry: &RestoredEntry<'a>) -> Result<(u32, &'a [u8])> {
    match entry.key.split_first_chunk() {
        Some((instance, rest)) => Ok((u32::from_be_bytes(*instance), rest)),
        None => Err(unreadable(entry.state)),
    }
}

/// Returns the value of an entry.
///
/// # Errors
/// If it is not of this type.
pub fn value<T: DeserializeOwned>(entry: &RestoredEntry<'_>) -> Result<T> {
    serde_json::from_slice(entry.value).map_err(|error| unreadable(entry.state).because(error))
}

fn unreadable(state: &str) -> Error {
    Error::new(
        ErrorCode::BadRecord,
        format!("an entry of the state {state:?} can't be read"),
    )
    .hint("start from another checkpoint")
}

/// The restored values of all instances of a vertex, one each.
#[derive(Debug)]
pub struct PeerInstances<T>(BTreeMap<u32, T>);

impl<T> Default for PeerInstances<T> {
    fn default() -> Self {
        PeerInstances(BTreeMap::new())
    }
}

impl<T: DeserializeOwned> PeerInstances<T> {
    /// Adds the value of one instance.
    ///
    /// # Errors
    /// As [`written_by`] and [`value`].
    pub fn take(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        let (instance, _) = written_by(entry)?;
        self.0.insert(instance, value(entry)?);
        Ok(())
    }

    /// Adds the entries of `name`, the only state of the vertex.
    ///
    /// # Errors
    /// An entry of another state, or as [`take`](Self::take).
    pub fn restore(&mut self, name: &str, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != name {
                return Err(RestoredState::unknown(&entry));
            }
            self.take(&entry)?;
        }
        Ok(())
    }

    /// Returns the values in the order of the instances, `None` if there is none. `count` returns
    /// the number of instances recorded in a value.
    ///
    /// # Errors
    /// If the value of an instance is missing: its remaining work is unknown.
    pub fn all(&mut self, count: impl Fn(&T) -> u32) -> Result<Option<Vec<T>>> {
        let all = std::mem::take(&mut self.0);
        let came = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let are_whole = (0..)
            .zip(&all)
            .all(|(expected, (index, value))| *index == expected && count(value) == came);
        if !are_whole {
            let what =
                format!("the restored state of {came} instances is incomplete or inconsistent");
            return Err(
                Error::new(ErrorCode::BadRecord, what).hint("start from another checkpoint")
            );
        }
        Ok(Some(all.into_values().collect()).filter(|all: &Vec<T>| !all.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instance;

    fn written(entries: &[(u32, u32)]) -> PeerInstances<u32> {
        let mut chunk = StateChunk::default();
        for (instance, count) in entries {
            put(&mut chunk, "s", (*instance, b"x"), count).unwrap();
        }
        let mut position = 0;
        let state = RestoredState::new(&chunk, &mut position, Instance::ONLY, usize::MAX);
        let mut siblings = PeerInstances::default();
        for entry in state {
            assert_eq!(written_by(&entry).unwrap().1, b"x");
            siblings.take(&entry).unwrap();
        }
        siblings
    }

    #[test]
    fn an_entry_of_another_state_is_refused() {
        let mut chunk = StateChunk::default();
        put(&mut chunk, "s", (0, b""), &1u32).unwrap();
        let restore = |name| {
            let mut position = 0;
            let mut state = RestoredState::new(&chunk, &mut position, Instance::ONLY, usize::MAX);
            PeerInstances::<u32>::default().restore(name, &mut state)
        };
        assert!(restore("s").is_ok());
        assert_eq!(restore("t").unwrap_err().code(), ErrorCode::InvalidJob);
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
