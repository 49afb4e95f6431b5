//! What goes wrong with a disk, in words.

use std::io;
use std::path::Path;

use ardea_core::{Error, ErrorCode};

/// What can't be written.
pub(crate) fn unwritable(folder: &Path, cause: fjall::Error) -> Error {
    match cause {
        fjall::Error::Io(cause) => of_folder(folder, cause),
        cause => {
            let what = format!("state can't be written to {}", folder.display());
            Error::new(ErrorCode::WriteFailed, what)
                .because(cause)
                .hint("look what the system says of this disk; state.folder names another one")
        }
    }
}

/// What can't be read.
pub(crate) fn unreadable(folder: &Path, cause: fjall::Error) -> Error {
    let what = format!("state can't be read back from {}", folder.display());
    Error::new(ErrorCode::ReadFailed, what)
        .because(cause)
        .hint("look what the system says of this disk; state.folder names another one")
}

/// A folder that can't be made, or used.
pub(crate) fn of_folder(folder: &Path, cause: io::Error) -> Error {
    if cause.kind() == io::ErrorKind::StorageFull {
        return full(folder, 0);
    }
    let what = format!("state can't be put into {}", folder.display());
    // A folder for temporary files may be cleaned: another attempt makes it again.
    let is_gone = cause.kind() == io::ErrorKind::NotFound;
    let error = Error::new(ErrorCode::WriteFailed, what)
        .because(cause)
        .hint("state.folder has to name a folder on a local disk that this user may write to");
    match is_gone {
        true => error.transient(),
        false => error,
    }
}

/// A disk without room.
pub(crate) fn full(folder: &Path, free: u64) -> Error {
    let what = format!(
        "the disk of {} has no room for the job's state: {} MiB are free",
        folder.display(),
        free >> 20
    );
    Error::new(ErrorCode::DiskFull, what)
        .hint("make room, name a folder on a larger disk by state.folder, or allow more memory by state.memory")
}
