//! Errors of the disk store.

use std::io;
use std::path::Path;

use ardea_core::{Error, ErrorCode};

/// Returns the error for a failed write.
pub(crate) fn unwritable(folder: &Path, cause: fjall::Error) -> Error {
    match cause {
        fjall::Error::Io(cause) => folder_error(folder, cause),
        cause => {
            let what = format!("state can't be written to {}", folder.display());
            Error::new(ErrorCode::WriteFailed, what)
                .because(cause)
                .hint("check the system's log for errors of this disk, or set state.folder to a folder on another disk")
        }
    }
}

/// Returns the error for a failed read.
pub(crate) fn unreadable(folder: &Path, cause: fjall::Error) -> Error {
    let what = format!("state can't be read back from {}", folder.display());
    Error::new(ErrorCode::ReadFailed, what)
        .because(cause)
        .hint("check the system's log for errors of this disk, or set state.folder to a folder on another disk")
}

/// Returns the error for a folder that can't be created or used.
pub(crate) fn folder_error(folder: &Path, cause: io::Error) -> Error {
    if cause.kind() == io::ErrorKind::StorageFull {
        return full(folder, 0);
    }
    let what = format!("state can't be stored in {}", folder.display());
    // A folder for temporary files may be cleaned: a retry creates it again.
    let is_gone = cause.kind() == io::ErrorKind::NotFound;
    let error = Error::new(ErrorCode::WriteFailed, what)
        .because(cause)
        .hint("state.folder has to name a folder on a local disk that this user may write to");
    match is_gone {
        true => error.transient(),
        false => error,
    }
}

/// Returns the error for a full disk.
pub(crate) fn full(folder: &Path, free: u64) -> Error {
    let what = format!(
        "the disk of {} has no room for the job's state: {} MiB are free",
        folder.display(),
        free >> 20
    );
    Error::new(ErrorCode::DiskFull, what)
        .hint("make room, name a folder on a larger disk by state.folder, or allow more memory by state.memory")
}
