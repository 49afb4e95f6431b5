//! Display of paths in messages.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path in readable form, created by [`Shown::shown`].
#[derive(Clone, Copy)]
pub struct ShownPath<'a>(&'a Path);

/// Lossless display of paths.
pub trait Shown {
    /// Returns the path for a message: as text, with bytes that are not UTF-8 as `\xFF`.
    ///
    /// ```
    /// use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};
    /// use ardea_filesystem::Shown;
    ///
    /// let path = Path::new(OsStr::from_bytes(b"/tmp/M\xFCnchen.csv"));
    /// assert_eq!(path.shown().to_string(), "/tmp/M\\xFCnchen.csv");
    /// ```
    fn shown(&self) -> ShownPath<'_>;
}

impl Shown for Path {
    fn shown(&self) -> ShownPath<'_> {
        ShownPath(self)
    }
}

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_os_str().as_bytes().utf8_chunks() {
            f.write_str(chunk.valid())?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02X}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
