//! The files that the output of a process goes to: rotated, bounded, and read by position.
//!
//! An output is a sequence of bytes that a process, and the processes that take its place later,
//! append to a file. When the file has reached a size it becomes `NAME.1`, the one of that name
//! `NAME.2`, and so on; the oldest goes. A position is the number of bytes before a place since the
//! output's beginning, so it stays the same when files are renamed, and a reader that finds the
//! oldest byte behind its position knows how many bytes were left out.
//!
//! * [`OutputBounds`]: the size of a file, and the number of files.
//! * [`OutputFiles`]: one output. [`open`](OutputFiles::open) it for a new process,
//!   [`read`](OutputFiles::read) it.
//! * [`OutputStart`], [`attend`]: a process rotates the files behind its own standard output and
//!   standard error, without a pipe or another process between, so that nothing ever waits for a
//!   reader and nothing depends on the process that started it.
//!
//! ```
//! use std::io::Write;
//!
//! use ardea_output::{OutputBounds, OutputFiles, Wanted};
//!
//! # fn main() -> std::io::Result<()> {
//! # let folder = tempfile::tempdir()?;
//! let bounds = OutputBounds { file_bytes: 10, files: 2 };
//! let output = OutputFiles::new(folder.path(), "stdout.log");
//! for line in ["one line\n", "two lines\n", "three lines\n"] {
//!     output.open(&bounds)?.write_all(line.as_bytes())?;
//! }
//! let piece = output.read(Wanted::From(0), 100)?;
//! assert_eq!((piece.at, &piece.bytes[..]), (0, &b"one line\ntwo lines\nthree lines\n"[..]));
//! output.open(&bounds)?.write_all(b"four lines\n")?;
//! let piece = output.read(Wanted::From(0), 100)?;
//! assert_eq!((piece.at, &piece.bytes[..]), (19, &b"three lines\nfour lines\n"[..]));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod attend;
mod bounds;
mod files;
mod piece;
mod rotate;

pub use attend::{OUTPUT_VARIABLE, OutputCounts, OutputStart, Role, attend, counts};
pub use bounds::OutputBounds;
pub use files::OutputFiles;
pub use piece::{Piece, Wanted, last_words};
pub use rotate::SeenSizes;
