//! One process at a time has a job's folder.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};

/// The file whose lock it is. It stays: whoever removed it might remove another's.
const NAME: &str = "ardea.lock";

/// Held for as long as this process has the folder. The kernel lets go of it when the process ends, however that happens.
#[derive(Debug)]
pub(crate) struct FolderLock {
    /// Its lock goes with it.
    _file: File,
}

impl FolderLock {
    /// Takes the folder for this process.
    ///
    /// # Errors
    /// `WrongState` if another process has it, with what that has said of itself; `WriteFailed` if it can't be locked.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        let failed = |error: io::Error| {
            let what = format!("{} can't be locked", path.display());
            Error::new(ErrorCode::WriteFailed, what)
                .because(error)
                .hint("check the path and its permissions")
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = text_of(&mut file).unwrap_or_default();
                return Err(taken(folder, holder.trim()));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(this_process().as_bytes()));
        // Who holds it is told to people only: a full disk keeps nobody from holding it.
        drop(written);
        Ok(FolderLock { _file: file })
    }

    /// Who has the folder, if anybody has it; changes nothing.
    pub(crate) fn holder(folder: &Path) -> Option<String> {
        let mut file = File::open(folder.join(NAME)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                let holder = text_of(&mut file).unwrap_or_default();
                Some(holder.trim().to_string())
            }
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

fn taken(folder: &Path, holder: &str) -> Error {
    let whose = match holder {
        "" => "another process".to_string(),
        holder => format!("another process ({holder})"),
    };
    let what = format!("{} is in use by {whose}", folder.display());
    Error::new(ErrorCode::WrongState, what)
        .hint("wait until that has ended, or give this job a folder of its own")
}

fn text_of(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.take(1_000).read_to_string(&mut text)?;
    Ok(text)
}

/// What this process says of itself.
fn this_process() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name);
    let name = name.map_or("a program".into(), |name| name.to_string_lossy());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let place = match host.trim() {
        "" => String::new(),
        host => format!(" on {host}"),
    };
    format!("{name}, process {}{place}\n", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_second_is_told_who_has_it_and_the_next_one_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(FolderLock::holder(folder.path()), None);
        let lock = FolderLock::take(folder.path()).unwrap();
        let error = FolderLock::take(folder.path()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongState);
        let process = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&process), "{error}");
        let holder = FolderLock::holder(folder.path()).unwrap();
        assert!(holder.contains(&process), "{holder}");
        drop(lock);
        assert_eq!(FolderLock::holder(folder.path()), None);
        FolderLock::take(folder.path()).unwrap();
    }
}
