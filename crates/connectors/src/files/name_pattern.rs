//! Patterns of file names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The pattern of a path whose last part contains `*`, for any characters, or `?`, for one byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamePattern<'a>(&'a [u8]);

impl<'a> NamePattern<'a> {
    /// Returns the pattern of a path; `None` if it has none, or a local file has this name.
    pub fn of(path: &'a Path) -> Option<Self> {
        NamePattern::in_name(path).filter(|_| fs::symlink_metadata(path).is_err())
    }

    /// Returns the pattern of a path; `None` if it has none.
    pub fn in_name(path: &'a Path) -> Option<Self> {
        let name = path.file_name()?.as_bytes();
        let is_pattern = name.iter().any(|byte| matches!(byte, b'*' | b'?'));
        is_pattern.then_some(NamePattern(name))
    }

    /// Returns true if a file name matches.
    pub fn matches(&self, name: &OsStr) -> bool {
        let (pattern, name) = (self.0, name.as_bytes());
        let (mut at, mut seen) = (0, 0);
        // The last star, and the number of bytes up to the end of what it matches.
        let mut star = None;
        while seen < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    star = Some((at, seen));
                    at += 1;
                }
                Some(byte) if *byte == b'?' || *byte == name[seen] => {
                    (at, seen) = (at + 1, seen + 1);
                }
                _ => match &mut star {
                    None => return false,
                    Some((star, matched)) => {
                        *matched += 1;
                        (at, seen) = (*star + 1, *matched);
                    }
                },
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}
