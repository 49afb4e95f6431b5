//! A device or a pipe, which is written as it is and may keep its writer waiting.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::Shown;
use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;

use super::part_file::cannot_write;
use crate::ready::{TURN, not_now, writable};

/// How often a pipe without a reader is looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// What a writer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// A pipe's reader: there is none yet.
    Reader,
    /// Room: the reader of a pipe or a device has not taken what it was given before.
    Room,
}

/// A device or a pipe, open for writing.
pub(super) struct SpecialFile {
    file: File,
    /// Whether to go on waiting for its reader.
    go_on: Box<dyn Fn(Awaited) -> bool + Send>,
}

impl SpecialFile {
    /// Opens a device, or a pipe when it has a reader, which is waited for as long as `go_on` says.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if it can't be opened, [`ErrorCode::Cancelled`] if `go_on` said no.
    pub fn open(path: &Path, go_on: impl Fn(Awaited) -> bool + Send + 'static) -> Result<Self> {
        let is_pipe = |metadata: fs::Metadata| metadata.file_type().is_fifo();
        let is_pipe = fs::metadata(path).is_ok_and(is_pipe);
        let mut options = OpenOptions::new();
        options.write(true);
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
        loop {
            match options.open(path) {
                // What the system says of a pipe without a reader.
                Err(error) if is_pipe && Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                    if !go_on(Awaited::Reader) {
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
    /// [`ErrorCode::WriteFailed`], also if the reader has gone, or [`ErrorCode::OutputClosed`] if this is standard output by
    /// another name; [`ErrorCode::Cancelled`] if the reader does not read and is not to be waited for any longer.
    pub fn write(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let failed = |error| cannot_write(path, error);
        let mut left = bytes;
        while !left.is_empty() {
            if !(self.go_on)(Awaited::Room) {
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
                    return Err(reader_gone(path, &self.file));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

/// Nobody promised to read all of a pipe in a file's place; of standard output it is normal that a reader has seen enough.
fn reader_gone(path: &Path, file: &File) -> Error {
    let is_stdout = match (fstat(file), fstat(io::stdout())) {
        (Ok(ours), Ok(stdout)) => (ours.st_dev, ours.st_ino) == (stdout.st_dev, stdout.st_ino),
        _ => false,
    };
    let code = if is_stdout {
        ErrorCode::OutputClosed
    } else {
        ErrorCode::WriteFailed
    };
    let what = format!(
        "the reader of {} went away before all was written",
        path.shown()
    );
    Error::new(code, what).hint("keep the reader open until the last record has been written")
}

fn given_up(path: &Path, why: &str) -> Error {
    let what = format!("writing {} was given up: {why}", path.shown());
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
        let error = PartFile::create(path.clone(), Compression::None, move |awaited| {
            awaited == Awaited::Reader && asked.fetch_add(1, Ordering::SeqCst) < 2
        });
        let error = error.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Cancelled);
        assert!(error.to_string().contains("has no reader"), "{error}");

        let reader = {
            let path = path.clone();
            thread::spawn(move || fs::read(path).unwrap())
        };
        let mut file = PartFile::create(path, Compression::None, |_| true).unwrap();
        let sent = vec![7; 300_000];
        file.write(&sent).unwrap();
        file.finish(true).unwrap();
        assert_eq!(reader.join().unwrap(), sent);
    }

    #[test]
    fn a_reader_that_goes_away_has_not_got_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        crate::testing::named_pipe(&path);
        let options = OpenOptions::new().read(true).write(true).open(&path);
        let reader = options.unwrap();
        let mut file = PartFile::create(path, Compression::None, |_| true).unwrap();
        drop(reader);
        let error = file.write(b"x").unwrap_err();
        assert_eq!(error.code(), ErrorCode::WriteFailed);
        assert!(error.to_string().contains("went away"), "{error}");
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
        let go_on = move |_| asked.fetch_add(1, Ordering::SeqCst) < 6;
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
