//! Files that are shipped with a job.

use std::path::{Path, PathBuf};

/// Returns the path of a file that the job was submitted with (`--file model.bin`): beside the
/// running program, or the path as given if the job runs embedded.
///
/// A path that exists in neither place is returned unchanged, so that opening it reports the error.
pub fn packaged(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    if path.exists() {
        return path.to_path_buf();
    }
    let beside = std::env::current_exe()
        .ok()
        .and_then(|program| Some(program.parent()?.join(path.file_name()?)));
    match beside {
        Some(beside) if beside.exists() => beside,
        _ => path.to_path_buf(),
    }
}
