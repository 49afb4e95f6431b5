//! A probe for free space in a folder that has refused a write.

use crate::store::{FileName, FileState, ObjectStore};
use ardea_core::{Error, ErrorCode, Result};

/// The size of the probe file, that of a few blocks.
const PROBE_BYTES: usize = 256 << 10;

/// Returns true if the error means that the store does not accept writes, which may be temporary.
pub(crate) fn is_of_disk(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::DiskFull | ErrorCode::WriteFailed)
}

/// Writes and removes a probe file, with a name unique to this writer.
///
/// # Errors
/// The error of the write.
pub(crate) fn look_for_room(folder: &dyn ObjectStore, writer: u64) -> Result<()> {
    let Some(name) = FileName::new(format!("room-{writer:016x}.probe")) else {
        return Ok(());
    };
    let written = folder.write(&name, &[0; PROBE_BYTES]);
    let removed = folder.remove(&[(name, FileState::Whole)]);
    written.and(removed)
}
