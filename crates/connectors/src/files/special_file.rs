//! Devices and pipes as output, which are written directly and may block.

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
use crate::fd_poll::{TURN, not_now, writable};

/// The poll interval for a pipe without a reader.
const PAUSE: Duration = Duration::from_millis(50);

/// The event that a writer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadyEvent {
    /// A pipe gets a reader.
    Reader,
    /// The reader of a pipe or a device accepts more bytes.
    Room,
}

/// A device or a pipe, open for writing.
pub(super) struct SpecialFile {
    file: File,
    /// Returns false to stop waiting.
    go_on: Box<dyn Fn(ReadyEvent) -> bool + Send>,
}

impl SpecialFile {
    /// Opens a device or a pipe. Waits for the reader of a pipe as long as `go_on` returns true.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the file cannot be opened, [`ErrorCode::Cancelled`] if `go_on`
    /// returned false.
    pub fn open(path: &Path, go_on: impl Fn(ReadyEvent) -> bool + Send + 'static) -> Result<Self> {
        let is_pipe = |metadata: fs::Metadata| metadata.file_type().is_fifo();
        let is_pipe = fs::metadata(path).is_ok_and(is_pipe);
        let mut options = OpenOptions::new();
        options.write(true);
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
        loop {
            match options.open(path) {
                // The error for a pipe without a reader.
                Err(error) if is_pipe && Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                    if !go_on(ReadyEvent::Reader) {
                        return Err(aborted(path, "it has no reader"));
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

    /// Writes all bytes to the file, whose path is `path`. Waits in short intervals and checks
    /// `go_on` between them.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`], also if the reader has closed the pipe;
    /// [`ErrorCode::OutputClosed`] if the pipe is standard output; [`ErrorCode::Cancelled`] if
    /// `go_on` returned false while the pipe was full.
    pub fn write(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let failed = |error| cannot_write(path, error);
        let mut left = bytes;
        while !left.is_empty() {
            if !(self.go_on)(ReadyEvent::Room) {
                return Err(aborted(path, "its reader has not taken all of it"));
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

/// Returns the error for a pipe closed by its reader. The reader of standard output may close
/// early; on another pipe the output is incomplete.
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
        "the reader of {} went away before all records were written",
        path.shown()
    );
    Error::new(code, what).hint("keep the reader open until the last record has been written")
}

fn aborted(path: &Path, why: &str) -> Error {
    let what = format!("writing {} was cancelled: {why}", path.shown());
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
            awaited == ReadyEvent::Reader && asked.fetch_add(1, Ordering::SeqCst) < 2
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
        // Opening a pipe for both directions does not block.
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
