//! The files of a process's output: rotated, bounded, and readable by position.
//!
//! An output is a sequence of bytes that a process and its later replacements append to a file. A
//! file that has reached its size becomes `NAME.1`, the previous `NAME.1` becomes `NAME.2`, and so
//! on; the oldest is removed. A position is the number of bytes since the start of the output, so
//! it does not change when files are renamed. If the oldest stored byte is after the position of a
//! reader, the bytes in between were dropped.
//!
//! * [`OutputBounds`]: the size of a file, and the number of files.
//! * [`OutputFiles`]: one output. [`open`](OutputFiles::open) it for a new process,
//!   [`read`](OutputFiles::read) it.
//! * [`OutputStart`], [`start_rotation`]: a process rotates the files behind its own standard
//!   output and standard error. There is no pipe and no other process in between, so output never
//!   waits for a reader and does not depend on the parent process.
//!
//! ```
//! use std::io::Write;
//!
//! use ardea_output::{OutputBounds, OutputFiles, ReadFrom};
//!
//! # fn main() -> std::io::Result<()> {
//! # let folder = tempfile::tempdir()?;
//! let bounds = OutputBounds { file_bytes: 10, files: 2 };
//! let output = OutputFiles::new(folder.path(), "stdout.log");
//! for line in ["one line\n", "two lines\n", "three lines\n"] {
//!     output.open(&bounds)?.write_all(line.as_bytes())?;
//! }
//! let piece = output.read(ReadFrom::From(0), 100)?;
//! assert_eq!((piece.at, &piece.bytes[..]), (0, &b"one line\ntwo lines\nthree lines\n"[..]));
//! output.open(&bounds)?.write_all(b"four lines\n")?;
//! let piece = output.read(ReadFrom::From(0), 100)?;
//! assert_eq!((piece.at, &piece.bytes[..]), (19, &b"three lines\nfour lines\n"[..]));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod bounds;
mod files;
mod piece;
mod rotate;
mod rotation_thread;

pub use bounds::OutputBounds;
pub use files::OutputFiles;
pub use piece::{OutputPiece, ReadFrom, last_lines};
pub use rotate::SeenSizes;
pub use rotation_thread::{OUTPUT_VARIABLE, OutputCounts, OutputStart, counts, start_rotation};
