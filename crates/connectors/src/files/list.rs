//! Listing of the files that a path stands for.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Error, ErrorCode, Instance, Result};
use ardea_filesystem::Shown;

use super::part_file::PART_SUFFIX;

/// The suffix of a file that another program is writing.
const TEMPORARY_SUFFIX: &str = ".tmp";

/// The files of a path, listed once per start of the job, so that all instances agree on the
/// assignment.
#[derive(Debug)]
pub(super) struct Listing {
    path: PathBuf,
    suffix: Option<String>,
    /// The list for the current start, and the number of instances that have not requested the list
    /// yet.
    current: Mutex<Option<(Arc<[PathBuf]>, u32)>>,
}

impl Listing {
    pub fn new(path: PathBuf, suffix: Option<String>) -> Self {
        Listing {
            path,
            suffix,
            current: Mutex::new(None),
        }
    }

    /// Returns the files that a job started now would read. The result is empty for a directory
    /// without a match. If the path is not a directory, the result is the path itself.
    pub fn now(&self) -> Vec<PathBuf> {
        if !self.path.is_dir() {
            return vec![self.path.clone()];
        }
        list(&self.path, self.suffix.as_deref()).unwrap_or_default()
    }

    /// Checks that `left`, a restored unfinished file, is at the configured path or in its
    /// directory. Otherwise the job would not read its configured input.
    pub fn check(&self, left: &Path) -> Result<()> {
        let is_its = |left: &Path, path: &Path| left == path || left.parent() == Some(path);
        let whole = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if is_its(left, &self.path) || is_its(&whole(left), &whole(&self.path)) {
            return Ok(());
        }
        let (left, path) = (left.shown(), self.path.shown());
        Err(Error::new(
            ErrorCode::InvalidConfig,
            format!("the job has not finished reading {left}, but is now configured to read {path}"),
        )
        .hint("run it with its former input, or start it without state: set recovery.start_over in one process; on a cluster, submit it again"))
    }

    /// Returns the files that `instance` reads, in order.
    pub fn of(&self, instance: Instance) -> Result<Vec<PathBuf>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (files, to_come) = match current.take() {
            Some((files, to_come)) => (files, to_come - 1),
            None => (
                list(&self.path, self.suffix.as_deref())?.into(),
                instance.parallelism - 1,
            ),
        };
        if to_come > 0 {
            *current = Some((Arc::clone(&files), to_come));
        }
        let owned = (0u64..)
            .zip(files.iter())
            .filter(|(number, _)| instance.owns(*number));
        Ok(owned.map(|(_, file)| file.clone()).collect())
    }
}

/// Returns an error for reading `path`.
pub(super) fn cannot_read(path: &Path, error: std::io::Error) -> Error {
    Error::new(
        ErrorCode::ReadFailed,
        format!("cannot read {}", path.shown()),
    )
    .because(error)
    .hint("check that it exists and may be read")
}

/// Returns true if a file of this name is to be read: it is not hidden, has the suffix, and is not
/// being written.
pub(super) fn is_complete(name: &OsStr, suffix: Option<&str>) -> bool {
    let name = name.as_bytes();
    let is_being_written = [PART_SUFFIX, TEMPORARY_SUFFIX]
        .iter()
        .any(|ending| name.ends_with(ending.as_bytes()));
    !name.starts_with(b".")
        && !is_being_written
        && suffix.is_none_or(|suffix| name.ends_with(suffix.as_bytes()))
}

pub(super) fn list(path: &Path, suffix: Option<&str>) -> Result<Vec<PathBuf>> {
    let failed = |error| cannot_read(path, error);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let name = file.file_name().unwrap_or_default();
        let wanted = is_complete(name, suffix);
        if wanted
            && fs::metadata(&file)
                .map_err(|error| cannot_read(&file, error))?
                .is_file()
        {
            files.push(file);
        }
    }
    if files.is_empty() {
        let which = suffix
            .map(|suffix| format!(" that ends in {suffix:?}"))
            .unwrap_or_default();
        return Err(Error::new(
            ErrorCode::ReadFailed,
            format!("no file{which} in the directory {}", path.shown()),
        )
        .hint("check the path and the suffix; hidden files, subdirectories, `.part` and `.tmp` are not read"));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_share_a_directory_without_overlap_even_if_it_changes_while_they_start() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "b.csv",
            "a.csv",
            "c.csv",
            ".hidden.csv",
            "d.csv.part",
            "f.csv.tmp",
            "e.txt",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let listing = Listing::new(dir.path().to_path_buf(), Some(".csv".to_string()));
        let names = |index| {
            let files = listing
                .of(Instance {
                    index,
                    parallelism: 2,
                })
                .unwrap();
            files
                .iter()
                .map(|f| f.file_name().unwrap().to_str().unwrap().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(0), ["a.csv", "c.csv"]);
        fs::write(dir.path().join("a0.csv"), "").unwrap();
        assert_eq!(names(1), ["b.csv"]);
        assert_eq!(names(1), ["a0.csv", "c.csv"], "a new start lists again");
    }

    #[test]
    fn a_directory_without_a_fitting_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = list(dir.path(), Some(".csv")).unwrap_err();
        assert!(error.to_string().contains(".csv"), "{error}");
    }
}
