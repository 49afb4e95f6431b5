//! The state of a component between its process and its host.

use std::thread;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Instance, Progress, RestoredState, Result,
    SnapshotRequest, SnapshotWriter, StateChunk, StateEntry,
};
use ardea_instance::protocol::{StatePartEntry, split_named_key, write_named_key};
use ardea_instance::{GuestError, GuestState};

use super::failed;
use crate::state::ComponentState;

/// The size of the chunks in which a snapshot is written.
const CHUNK_BYTES: usize = 256 << 10;

/// The wait before a state that has made no progress is called again.
const REST: Duration = Duration::from_millis(1);

/// The restored entries of a component that are not passed to it yet.
#[derive(Debug, Default)]
pub(super) struct RestoredEntries(StateChunk);

/// Returns the state of a component that checkpoints contain, if it has any.
pub(super) fn checkpointed(state: ComponentState<'_>) -> Option<&mut dyn Checkpointed> {
    match state {
        ComponentState::Checkpointed(state) => Some(state),
        ComponentState::Undeclared | ComponentState::Stateless => None,
    }
}

/// Writes the whole state of a component.
///
/// # Errors
/// Errors of the state; the connection to the host.
pub(super) fn save(state: ComponentState<'_>, out: &mut GuestState<'_>) -> Result<(), GuestError> {
    let Some(state) = checkpointed(state) else {
        return Ok(());
    };
    let request = SnapshotRequest {
        is_last: out.is_last(),
        ..SnapshotRequest::full(Epoch(out.epoch()))
    };
    state.take_snapshot(request).map_err(failed)?;
    if state.awaits_commit() {
        out.await_commit();
    }
    let (mut chunk, mut key) = (StateChunk::default(), Vec::new());
    loop {
        chunk.clear();
        let mut writer = SnapshotWriter::new(&mut chunk, CHUNK_BYTES);
        let progress = state.write_snapshot(&mut writer).map_err(failed)?;
        for entry in chunk.entries() {
            // A whole snapshot has no removed keys.
            let Some(value) = entry.value else { continue };
            key.clear();
            write_named_key(entry.state, entry.key, &mut key);
            out.put(StatePartEntry {
                partition: entry.partition,
                key: &key,
                value,
            })?;
        }
        if progress.done {
            return Ok(());
        }
        rest(progress);
    }
}

fn rest(progress: Progress) {
    if !progress.made {
        thread::sleep(REST);
    }
}

/// Calls a callback of a state until it is done.
///
/// # Errors
/// Those of the callback.
pub(super) fn until_done(mut call: impl FnMut() -> Result<Progress>) -> Result<(), GuestError> {
    loop {
        let progress = call().map_err(failed)?;
        if progress.done {
            return Ok(());
        }
        rest(progress);
    }
}

impl RestoredEntries {
    /// Adds an entry.
    ///
    /// # Errors
    /// An entry that names no state.
    pub(super) fn add(&mut self, entry: StatePartEntry<'_>) -> Result<(), GuestError> {
        let Some((state, key)) = split_named_key(entry.key) else {
            let what = "an entry of the state names no state";
            return Err(failed(Error::new(ErrorCode::BadRecord, what)));
        };
        let pushed = self.0.push(StateEntry {
            state,
            partition: entry.partition,
            key,
            value: Some(entry.value),
        });
        pushed.map_err(failed)
    }

    /// Passes all entries to a state, and completes its restore from `epoch`.
    ///
    /// # Errors
    /// Those of the state, and if it does not take all entries.
    pub(super) fn pass_on(
        &mut self,
        state: &mut dyn Checkpointed,
        (instance, epoch): (Instance, u64),
    ) -> Result<(), GuestError> {
        let entries = std::mem::take(&mut self.0);
        let mut position = 0;
        while position < entries.byte_len() {
            let before = position;
            let mut left = RestoredState::new(&entries, &mut position, instance, usize::MAX);
            state.restore(&mut left).map_err(failed)?;
            if position == before {
                let what = "the state of the component does not take the entries of its snapshot";
                let error = Error::new(ErrorCode::InvalidJob, what);
                return Err(failed(
                    error.hint("let `restore` take all entries that it gets"),
                ));
            }
        }
        until_done(|| state.on_restored(Epoch(epoch)))
    }
}
