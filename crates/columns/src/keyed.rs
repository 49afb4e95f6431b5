//! Steps with a state per key: rolling aggregates and removal of duplicates.

mod distinct;
mod rolling;

#[cfg(test)]
mod tests;

use ardea_codec::{StateValue, state_codec_of};
use ardea_core::{Error, ErrorCode, Result};
use ardea_state::{KeyedState, StateCodecs};

pub use distinct::ColumnDistinctP;
pub use rolling::ColumnRollingP;

use crate::key::{EncodedKeys, GroupKey};

/// The maximum number of keys that expire per call.
const EXPIRED_PER_CALL: usize = 4096;

/// Returns the serializers of a state by key.
pub(crate) fn state_codecs<S: StateValue>() -> Option<StateCodecs<GroupKey, S>> {
    Some(StateCodecs::new(state_codec_of()?, state_codec_of()?))
}

/// Creates the state of a step, which may be larger than memory.
fn keyed_state<S: StateValue>() -> KeyedState<GroupKey, S> {
    let mut state = KeyedState::default();
    state.allow_spilling();
    if let Some(codecs) = state_codecs() {
        state.set_codecs(codecs);
    }
    state
}

/// Appends the slot of the key of each record to `slots`. A new key has the value `create()`.
///
/// # Errors
/// A key cannot be read from disk.
fn find_slots<S>(
    state: &mut KeyedState<GroupKey, S>,
    keys: &EncodedKeys,
    slots: &mut Vec<u32>,
    create: impl Fn() -> S,
) -> Result<()> {
    let mut failed = Ok(());
    keys.group(0..keys.len(), slots, |key| match state.slot(key, &create) {
        Ok(slot) => slot,
        Err(error) => {
            failed = Err(error);
            u32::MAX
        }
    });
    failed
}

#[cold]
fn missing_state() -> Error {
    Error::new(ErrorCode::Internal, "a key has no state")
}
