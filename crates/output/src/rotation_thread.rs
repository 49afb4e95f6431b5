//! A thread that rotates the files behind the process's own standard output and standard error.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use filedescriptor::{FileDescriptor, StdioDescriptor};
use serde::{Deserialize, Serialize};

use crate::{OutputBounds, OutputFiles, SeenSizes};

/// The environment variable with the [`OutputStart`] of a process, as JSON.
pub const OUTPUT_VARIABLE: &str = "ARDEA_OUTPUT";

/// The poll interval for a file that grows.
const ACTIVE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The poll interval for a file that does not grow.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The number of polls between two checks of rotated files.
const OLD_FILES_POLLS: u32 = 10;

/// The files behind the standard output and standard error of a process, and their bounds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputStart {
    /// The current file of standard output.
    pub stdout: PathBuf,
    /// The current file of standard error; may be the same file.
    pub stderr: PathBuf,
    /// The bounds of each of the two outputs.
    pub bounds: OutputBounds,
}

impl OutputStart {
    /// Returns the value of [`OUTPUT_VARIABLE`] for a new process.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`] for a path that is not UTF-8.
    pub fn to_variable(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| {
            let what = "the paths of a process's output can't be written";
            Error::new(ErrorCode::Internal, what).because(error)
        })
    }

    /// Returns the value from the environment; `None` if the process was started without it.
    fn from_environment() -> Option<Self> {
        let text = std::env::var(OUTPUT_VARIABLE).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// The byte counts of one output since this process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutputCounts {
    /// Bytes written by this process and others.
    pub written_bytes: u64,
    /// Bytes dropped: written before and no longer stored.
    pub dropped_bytes: u64,
}

struct OutputCounters {
    written: AtomicU64,
    dropped: AtomicU64,
}

impl OutputCounters {
    const fn new() -> Self {
        OutputCounters {
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }
}

/// The counters of standard output and of standard error.
static COUNTERS: [OutputCounters; 2] = [OutputCounters::new(), OutputCounters::new()];

/// Returns the counts of standard output and of standard error. They are zero in a process that did
/// not call [`start_rotation`] or was started without [`OUTPUT_VARIABLE`].
pub fn counts() -> [OutputCounts; 2] {
    [&COUNTERS[0], &COUNTERS[1]].map(|counters| OutputCounts {
        written_bytes: counters.written.load(Ordering::Relaxed),
        dropped_bytes: counters.dropped.load(Ordering::Relaxed),
    })
}

/// Starts a thread that keeps the output files of this process within their bounds until the
/// process ends. Does nothing if the process was started without [`OUTPUT_VARIABLE`].
///
/// Output never waits for this thread: bytes are written to a file, and a full file is exchanged
/// for a new one with one system call between two writes.
///
/// # Errors
///
/// [`ErrorCode::LimitReached`] if the system refuses a thread.
pub fn start_rotation() -> Result<()> {
    let Some(start) = OutputStart::from_environment() else {
        return Ok(());
    };
    let mut attended = BoundedOutput::of(&start);
    if attended.is_empty() {
        return Ok(());
    }
    let thread = std::thread::Builder::new().name("ardea-output".into());
    let started = thread.spawn(move || {
        let mut looks = 0_u32;
        loop {
            looks = looks.wrapping_add(1);
            let mut grows = false;
            for output in &mut attended {
                grows |= output.look(looks.is_multiple_of(OLD_FILES_POLLS));
            }
            std::thread::sleep(if grows {
                ACTIVE_POLL_INTERVAL
            } else {
                IDLE_POLL_INTERVAL
            });
        }
    });
    started.map(drop).map_err(|error| {
        let what = "cannot start the thread that bounds this process's output";
        Error::new(ErrorCode::LimitReached, what)
            .because(error)
            .hint("raise the limit of threads for this process")
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn with<T>(self, look: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        match self {
            Stream::Stdout => look(io::stdout().as_fd()),
            Stream::Stderr => look(io::stderr().as_fd()),
        }
    }

    /// Returns the inode and the size of the file behind the stream.
    fn poll(self) -> io::Result<(u64, u64)> {
        let stat = self.with(|fd| rustix::fs::fstat(fd))?;
        Ok((stat.st_ino, u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Redirects the stream to this file.
    fn redirect(self, file: &File) -> io::Result<()> {
        let descriptor = match self {
            Stream::Stdout => StdioDescriptor::Stdout,
            Stream::Stderr => StdioDescriptor::Stderr,
        };
        FileDescriptor::redirect_stdio(file, descriptor)
            .map(drop)
            .map_err(io::Error::other)
    }
}

/// An output of this process that is kept within its bounds.
struct BoundedOutput {
    files: OutputFiles,
    bounds: OutputBounds,
    /// The streams that write to the files, one or both.
    streams: Vec<Stream>,
    counters: &'static OutputCounters,
    inode: u64,
    /// The size at the last poll.
    bytes: u64,
    seen: SeenSizes,
}

impl BoundedOutput {
    /// Returns the outputs of this process that write to the files named by `start`.
    fn of(start: &OutputStart) -> Vec<Self> {
        let mut all: Vec<BoundedOutput> = Vec::new();
        let streams = [
            (Stream::Stdout, &start.stdout),
            (Stream::Stderr, &start.stderr),
        ];
        for ((stream, path), counters) in streams.into_iter().zip(&COUNTERS) {
            let Some(files) = OutputFiles::at(path) else {
                continue;
            };
            let Ok((inode, bytes)) = stream.poll() else {
                continue;
            };
            if let Some(same) = all.iter_mut().find(|it| it.inode == inode) {
                same.streams.push(stream);
                continue;
            }
            if std::fs::metadata(files.path()).is_ok_and(|there| there.ino() == inode) {
                all.push(BoundedOutput {
                    files,
                    bounds: start.bounds,
                    streams: vec![stream],
                    counters,
                    inode,
                    bytes,
                    seen: SeenSizes::default(),
                });
            }
        }
        all
    }

    /// Polls the size of the current file, and rotates the file if it has reached its bound.
    /// Returns true if the file has grown. `at_old_ones` includes the rotated files in the check.
    fn look(&mut self, at_old_ones: bool) -> bool {
        let Some(Ok((_, bytes))) = self.streams.first().map(|stream| stream.poll()) else {
            return false;
        };
        let grown = bytes.saturating_sub(self.bytes);
        self.bytes = bytes;
        self.counters.written.fetch_add(grown, Ordering::Relaxed);
        if at_old_ones && let Ok(left_out) = self.files.truncate_old(&self.bounds, &mut self.seen) {
            self.count_dropped(left_out);
        }
        if bytes >= self.bounds.file_bytes {
            self.rotate();
        }
        grown > 0
    }

    /// Switches to a new file. If none can be created, as on a full disk, the current one is
    /// emptied when it is too large.
    fn rotate(&mut self) {
        let rotated = self.files.rotate(&self.bounds);
        let Ok(rotated) = rotated else {
            if let Ok(left_out) = self.files.truncate_current(&self.bounds, &mut self.seen) {
                self.count_dropped(left_out);
            }
            return;
        };
        let redirected = self.redirect(&rotated.new);
        // Positions can be computed without the record too.
        let _ = self.files.record_previous(&rotated);
        if redirected {
            let late = rotated.bytes_before().saturating_sub(self.bytes);
            self.counters.written.fetch_add(late, Ordering::Relaxed);
            (self.inode, self.bytes) = (rotated.new.metadata().map_or(0, |new| new.ino()), 0);
        }
        self.count_dropped(rotated.left_out);
    }

    fn redirect(&self, file: &File) -> bool {
        let streams = self.streams.iter();
        streams
            .map(|stream| stream.redirect(file))
            .all(|redirected| redirected.is_ok())
    }

    /// Counts dropped bytes. The first time a notice is written to the output.
    fn count_dropped(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let before = self.counters.dropped.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 {
            let least = self
                .bounds
                .file_bytes
                .saturating_mul(u64::from(self.bounds.files).saturating_sub(1));
            // If the notice cannot be written, the counter still shows the loss.
            let _ = writeln!(
                io::stderr(),
                "the oldest part of {} is dropped from now on: at least the last {least} bytes are kept (cluster.log_size, cluster.log_files)",
                self.files.path().display()
            );
        }
    }
}
