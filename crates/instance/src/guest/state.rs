//! The state of an instance of the job's own program, between its process and its host.

use std::thread;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Instance, Progress, RestoredState, Result,
    SnapshotRequest, SnapshotWriter, StateChunk, StateEntry,
};

use super::own_program::guest_failure;
use super::{GuestError, GuestState};
use crate::protocol::{StatePartEntry, split_named_key, write_named_key};

/// The size of the chunks in which a snapshot is written.
const CHUNK_BYTES: usize = 256 << 10;

/// The wait before a callback that has made no progress is repeated.
pub(crate) const REST: Duration = Duration::from_millis(1);

/// Restored entries that are not passed to their state yet.
#[derive(Debug, Default)]
pub struct RestoredEntries(StateChunk);

/// Writes all of a state.
///
/// # Errors
/// Errors of the state; the connection to the host.
pub fn save_state(
    state: &mut dyn Checkpointed,
    out: &mut GuestState<'_>,
) -> Result<(), GuestError> {
    let request = SnapshotRequest {
        is_last: out.is_last(),
        ..SnapshotRequest::full(Epoch(out.epoch()))
    };
    state.take_snapshot(request).map_err(guest_failure)?;
    if state.awaits_commit() {
        out.await_commit();
    }
    let (mut chunk, mut key) = (StateChunk::default(), Vec::new());
    loop {
        chunk.clear();
        let mut writer = SnapshotWriter::new(&mut chunk, CHUNK_BYTES);
        let written = state.write_snapshot(&mut writer);
        let progress = written.map_err(guest_failure)?;
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
pub fn until_done(mut call: impl FnMut() -> Result<Progress>) -> Result<(), GuestError> {
    loop {
        let progress = call().map_err(guest_failure)?;
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
    pub fn add(&mut self, entry: StatePartEntry<'_>) -> Result<(), GuestError> {
        let Some((state, key)) = split_named_key(entry.key) else {
            let what = "an entry of the state names no state";
            return Err(guest_failure(Error::new(ErrorCode::BadRecord, what)));
        };
        let pushed = self.0.push(StateEntry {
            state,
            partition: entry.partition,
            key,
            value: Some(entry.value),
        });
        pushed.map_err(guest_failure)
    }

    /// Passes all entries to a state, and completes its restore from `epoch`.
    ///
    /// # Errors
    /// Those of the state, and if it does not take all entries.
    pub fn pass_on(
        &mut self,
        state: &mut dyn Checkpointed,
        (instance, epoch): (Instance, u64),
    ) -> Result<(), GuestError> {
        let entries = std::mem::take(&mut self.0);
        let mut position = 0;
        while position < entries.byte_len() {
            let before = position;
            let mut left = RestoredState::new(&entries, &mut position, instance, usize::MAX);
            state.restore(&mut left).map_err(guest_failure)?;
            if position == before {
                let what = "a state does not take the entries of its snapshot";
                let error = Error::new(ErrorCode::InvalidJob, what);
                return Err(guest_failure(
                    error.hint("let `restore` take all entries that it gets"),
                ));
            }
        }
        until_done(|| state.on_restored(Epoch(epoch)))
    }
}
