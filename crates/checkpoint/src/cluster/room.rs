//! Whether a folder takes something again that has refused it.

use crate::store::{FileName, FileState, Folder};
use ardea_core::{Error, ErrorCode, Result};

/// What is written to see whether there is room: as much as a few blocks.
const PROBE_BYTES: usize = 256 << 10;

/// Whether it says that something can't be written, which may be otherwise soon.
pub(crate) fn is_of_disk(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::DiskFull | ErrorCode::WriteFailed)
}

/// Looks, under a name that is this writer's alone.
///
/// # Errors
/// Why nothing can be written.
pub(crate) fn look_for_room(folder: &dyn Folder, writer: u64) -> Result<()> {
    let Some(name) = FileName::new(format!("room-{writer:016x}.probe")) else {
        return Ok(());
    };
    let written = folder.write(&name, &[0; PROBE_BYTES]);
    let removed = folder.remove(&[(name, FileState::Whole)]);
    written.and(removed)
}
