//! A process that rotates the files behind its own standard output and standard error.

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

/// The variable in which a process finds its [`OutputStart`], as JSON.
pub const OUTPUT_VARIABLE: &str = "ARDEA_OUTPUT";

/// The time between two looks at a file that grows.
const LOOK_SOON: Duration = Duration::from_millis(10);

/// The time between two looks at one that does not.
const LOOK_LATER: Duration = Duration::from_millis(100);

/// Every so many looks, files that were put aside are looked at as well.
const LOOKS_AT_OLD_FILES: u32 = 10;

/// The files behind the standard output and standard error of a process, and their bounds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputStart {
    /// The current file of standard output.
    pub stdout: PathBuf,
    /// The current file of standard error; it may be the same one.
    pub stderr: PathBuf,
    /// The bounds of each of the two.
    pub bounds: OutputBounds,
}

impl OutputStart {
    /// Returns the value of [`OUTPUT_VARIABLE`] for a process that is about to be started.
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

    /// Returns what the environment says, or `None` if the process was not started with such files.
    fn from_environment() -> Option<Self> {
        let text = std::env::var(OUTPUT_VARIABLE).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// The part of a process among those that write to the same files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It rotates the files.
    Rotates,
    /// Its parent rotates the files. It goes on in the new one.
    Follows,
}

/// The number of bytes of one output in this process's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutputCounts {
    /// Written, by this process and others.
    pub written_bytes: u64,
    /// Left out: written before, and not kept any more.
    pub left_out_bytes: u64,
}

/// The counters of one output.
struct Counters {
    written: AtomicU64,
    left_out: AtomicU64,
}

impl Counters {
    const fn new() -> Self {
        Counters {
            written: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }
}

/// Of standard output, and of standard error.
static COUNTERS: [Counters; 2] = [Counters::new(), Counters::new()];

/// Returns the counts of standard output and of standard error. They are zero in a process that
/// does not [`attend`] to its output.
pub fn counts() -> [OutputCounts; 2] {
    [&COUNTERS[0], &COUNTERS[1]].map(|counters| OutputCounts {
        written_bytes: counters.written.load(Ordering::Relaxed),
        left_out_bytes: counters.left_out.load(Ordering::Relaxed),
    })
}

/// Starts a thread that keeps the files behind this process's output within their bounds, if it was
/// started with such files, until the process ends.
///
/// Output never waits for that thread: bytes are written to a file, and a full file is exchanged
/// for a new one with one system call between two writes. A process that was started by hand, whose
/// output goes elsewhere, is left alone.
///
/// # Errors
///
/// [`ErrorCode::LimitReached`] if the system refuses a thread.
pub fn attend(role: Role) -> Result<()> {
    let Some(start) = OutputStart::from_environment() else {
        return Ok(());
    };
    let mut attended = Attended::of(&start, role);
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
                grows |= output.look(looks.is_multiple_of(LOOKS_AT_OLD_FILES));
            }
            std::thread::sleep(if grows { LOOK_SOON } else { LOOK_LATER });
        }
    });
    started.map(drop).map_err(|error| {
        let what = "cannot start the thread that bounds this process's output";
        Error::new(ErrorCode::LimitReached, what)
            .because(error)
            .hint("raise the limit of threads for this process")
    })
}

/// A standard stream.
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

    /// Returns the inode and the size of the file behind it.
    fn look(self) -> io::Result<(u64, u64)> {
        let stat = self.with(|fd| rustix::fs::fstat(fd))?;
        Ok((stat.st_ino, u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Makes it go to this file.
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
struct Attended {
    files: OutputFiles,
    bounds: OutputBounds,
    role: Role,
    /// The streams that go there, one or both.
    streams: Vec<Stream>,
    counters: &'static Counters,
    inode: u64,
    /// The size at the last look.
    bytes: u64,
    seen: SeenSizes,
}

impl Attended {
    /// Returns the outputs of this process that go to the files that the start names.
    fn of(start: &OutputStart, role: Role) -> Vec<Self> {
        let mut all: Vec<Attended> = Vec::new();
        let streams = [
            (Stream::Stdout, &start.stdout),
            (Stream::Stderr, &start.stderr),
        ];
        for ((stream, path), counters) in streams.into_iter().zip(&COUNTERS) {
            let Some(files) = OutputFiles::at(path) else {
                continue;
            };
            let Ok((inode, bytes)) = stream.look() else {
                continue;
            };
            if let Some(same) = all.iter_mut().find(|it| it.inode == inode) {
                same.streams.push(stream);
                continue;
            }
            // The parent may have rotated the file since this process was started.
            let oldest = match role {
                Role::Follows => start.bounds.files,
                _ => 0,
            };
            let is_at =
                |age| std::fs::metadata(files.aged(age)).is_ok_and(|there| there.ino() == inode);
            let is_there = (0..=oldest).any(is_at);
            if is_there {
                all.push(Attended {
                    files,
                    bounds: start.bounds,
                    role,
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

    /// Looks at the file once, and rotates it if it has reached its size. Returns whether it has
    /// grown.
    fn look(&mut self, at_old_ones: bool) -> bool {
        let Some(Ok((_, bytes))) = self.streams.first().map(|stream| stream.look()) else {
            return false;
        };
        let grown = bytes.saturating_sub(self.bytes);
        self.bytes = bytes;
        self.counters.written.fetch_add(grown, Ordering::Relaxed);
        if self.role == Role::Follows {
            self.follow();
            return grown > 0;
        }
        if at_old_ones && let Ok(left_out) = self.files.cut_old(&self.bounds, &mut self.seen) {
            self.leaves_out(left_out);
        }
        if bytes >= self.bounds.file_bytes {
            self.rotate();
        }
        grown > 0
    }

    /// Goes on in a new file. Where none can be begun, as on a full disk, the present one is
    /// emptied.
    fn rotate(&mut self) {
        let rotated = self.files.rotate(&self.bounds);
        let Ok(rotated) = rotated else {
            if let Ok(left_out) = self.files.cut_current(&self.bounds, &mut self.seen) {
                self.leaves_out(left_out);
            }
            return;
        };
        let redirected = self.redirect(&rotated.new);
        // The positions can be told all the same.
        let _ = self.files.settle(&rotated);
        if redirected {
            let late = rotated.bytes_before().saturating_sub(self.bytes);
            self.counters.written.fetch_add(late, Ordering::Relaxed);
            (self.inode, self.bytes) = (rotated.new.metadata().map_or(0, |new| new.ino()), 0);
        }
        self.leaves_out(rotated.left_out);
    }

    /// Goes on in the file that the parent has begun.
    fn follow(&mut self) {
        let current = std::fs::metadata(self.files.path());
        if current.is_ok_and(|there| there.ino() != self.inode)
            && let Ok(file) = self.files.append()
            && self.redirect(&file)
            && let Ok(there) = file.metadata()
        {
            (self.inode, self.bytes) = (there.ino(), there.len());
        }
    }

    fn redirect(&self, file: &File) -> bool {
        let streams = self.streams.iter();
        streams
            .map(|stream| stream.redirect(file))
            .all(|redirected| redirected.is_ok())
    }

    /// Counts what was left out. The first time the output itself says so.
    fn leaves_out(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let before = self.counters.left_out.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 {
            let least = self
                .bounds
                .file_bytes
                .saturating_mul(u64::from(self.bounds.files).saturating_sub(1));
            // If it can't be written the count says it.
            let _ = writeln!(
                io::stderr(),
                "of {} the oldest is left out from now on: at least the last {least} bytes are kept (cluster.log_size, cluster.log_files)",
                self.files.path().display()
            );
        }
    }
}
