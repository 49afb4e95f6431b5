//! A rename that replaces nothing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Renames `from` to `to`, unless `to` exists. Returns false in that case, and changes nothing.
///
/// The rename is one step if the file system supports a rename that replaces nothing, and two steps
/// if it supports only hard links. After a crash between the two steps the file has both names, and
/// the next call repairs that.
///
/// # Errors
/// The system's error, also if the file system supports neither.
pub fn rename_to_free(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // The file system does not support the call.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_to_free(from, to),
        Err(error) => Err(error.into()),
    }
}

fn link_to_free(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let (ours, its) = (fs::symlink_metadata(from)?, fs::symlink_metadata(to)?);
            if (ours.dev(), ours.ino()) != (its.dev(), its.ino()) {
                return Ok(false);
            }
        }
        linked => linked?,
    }
    fs::remove_file(from).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_left_alone_both_ways() {
        for rename in [rename_to_free, link_to_free] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            fs::write(at("mine"), "mine").unwrap();
            fs::write(at("taken"), "theirs").unwrap();
            std::os::unix::fs::symlink("nothing", at("link")).unwrap();
            for name in ["taken", "link"] {
                assert!(!rename(&at("mine"), &at(name)).unwrap());
            }
            assert!(rename(&at("mine"), &at("free")).unwrap());
            assert_eq!(fs::read(at("taken")).unwrap(), b"theirs");
            assert_eq!(fs::read(at("free")).unwrap(), b"mine");
            assert!(!at("mine").exists() && !at("nothing").exists());
        }
    }

    #[test]
    fn a_file_that_got_its_name_by_half_gets_no_second_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("part"), "mine").unwrap();
        fs::hard_link(at("part"), at("whole")).unwrap();
        assert!(link_to_free(&at("part"), &at("whole")).unwrap());
        assert!(!at("part").exists());
        assert_eq!(fs::read(at("whole")).unwrap(), b"mine");
    }
}
