//! A device or a pipe, which is written as it is and may keep its writer waiting.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::part_file::cannot_write;
use crate::ready::{TURN, not_now, writable};

/// How often a pipe without a reader is looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// A device or a pipe, open for writing.
pub(super) struct SpecialFile {
    file: File,
    /// Whether to go on waiting for its reader.
    go_on: Box<dyn Fn() -> bool + Send>,
}

impl SpecialFile {
    /// Opens a device, or a pipe when it has a reader, which is waited for as long as `go_on` says.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if it can't be opened, [`ErrorCode::Cancelled`] if `go_on` said no.
    pub fn open(path: &Path, go_on: impl Fn() -> bool + Send + 'static) -> Result<Self> {
        let is_pipe = |metadata: fs::Metadata| metadata.file_type().is_fifo();
        let is_pipe = fs::metadata(path).is_ok_and(is_pipe);
        let mut options = OpenOptions::new();
        options.write(true);
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
        loop {
            match options.open(path) {
                // What the system says of a pipe without a reader.
                Err(error) if is_pipe && Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                    if !go_on() {
                        return Err(given_up(path, "it has no reader"));
                    }
                    thread::sleep(PAUSE);
                }
                opened => {
                    return Ok(SpecialFile {
                        file: opened.map_err(|error| cannot_write(path, error))?,
                        go_on: Box::new(go_on),
                    });
                }
            }
        }
    }

    /// Writes all of it to the file, whose path is `path`; waits in turns, and looks between two whether to go on.
    ///
    /// # Errors
    /// [`ErrorCode::OutputClosed`] if the reader has gone, [`ErrorCode::Cancelled`] if it does not read and is not to be waited
    /// for any longer, else [`ErrorCode::WriteFailed`].
    pub fn write(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let failed = |error| cannot_write(path, error);
        let mut left = bytes;
        while !left.is_empty() {
            if !(self.go_on)() {
                return Err(given_up(path, "its reader has not taken all of it"));
            }
            if !writable(&self.file, TURN).map_err(failed)? {
                continue;
            }
            match self.file.write(left) {
                Ok(0) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Ok(count) => left = &left[count..],
                Err(error) if not_now(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    let what = format!("the reader of {} has gone", path.display());
                    return Err(Error::new(ErrorCode::OutputClosed, what)
                        .hint("keep the reader open until the last record has been written"));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

fn given_up(path: &Path, why: &str) -> Error {
    let what = format!("writing {} was given up: {why}", path.display());
    Error::new(ErrorCode::Cancelled, what)
        .hint("have a program read it while the job runs, or write to a plain file")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::files::{Compression, PartFile};

    #[test]
    fn a_pipe_is_waited_for_until_it_has_a_reader_or_nobody_wants_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        crate::testing::named_pipe(&path);
        let asked = AtomicU32::new(0);
        let error = PartFile::create(path.clone(), Compression::None, move || {
            asked.fetch_add(1, Ordering::SeqCst) < 2
        });
        let error = error.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Cancelled);
        assert!(error.to_string().contains("has no reader"), "{error}");

        let reader = {
            let path = path.clone();
            thread::spawn(move || fs::read(path).unwrap())
        };
        let mut file = PartFile::create(path, Compression::None, || true).unwrap();
        let sent = vec![7; 300_000];
        file.write(&sent).unwrap();
        file.finish(true).unwrap();
        assert_eq!(reader.join().unwrap(), sent);
    }

    #[test]
    fn a_reader_that_does_not_read_is_not_said_to_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        crate::testing::named_pipe(&path);
        // The system opens a pipe for both at once without waiting.
        let options = OpenOptions::new().read(true).write(true).open(&path);
        let _reader = options.unwrap();
        let asked = AtomicU32::new(0);
        let go_on = move || asked.fetch_add(1, Ordering::SeqCst) < 6;
        let mut file = PartFile::create(path, Compression::None, go_on).unwrap();
        let error = loop {
            if let Err(error) = file.write(&[7; 60_000]) {
                break error;
            }
        };
        assert_eq!(error.code(), ErrorCode::Cancelled);
        assert!(error.to_string().contains("has not taken all"), "{error}");
    }
}
