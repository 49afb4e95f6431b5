//! Files that go along with a job.

use std::path::{Path, PathBuf};

/// Where a file is that the job was submitted with (`--file model.bin`): beside the program that runs, and where the job runs embedded, the
/// path as it is.
///
/// A path that isn't there in either place is given back as it is: whoever opens it says what is wrong.
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
