//! Files: lines, CSV and JSON lines, plain or compressed, once or for ever; and the same way out.
//!
//! Reading: [`lines`], [`csv()`], [`json_lines`], or [`read()`] with a format of your own. A path names a file or a
//! directory, whose files are read in the order of their names, split over the instances. Files that gzip or zstd
//! compressed are known by their first bytes. [`FileSource::follow`] makes the source go on when the file grows,
//! [`FileSource::watch`] when the directory gets other files.
//!
//! Writing: [`write_lines`], [`write_csv`], [`write_json_lines`], or [`write()`]. A file being written is named `….part`
//! until it is whole, so a reader never sees half a file.
//!
//! ```
//! use ardea_connectors::files;
//! use ardea_core::{Bounded, OnError, Source};
//!
//! #[derive(serde::Deserialize)]
//! struct Flight { carrier: String, delay: Option<i32> }
//!
//! let flights: Source<Flight, Bounded> = files::csv("flights.csv.gz").on_error(OnError::Fail).build();
//! let log = files::lines("/var/log/syslog").follow().build();
//! ```

mod checked;
mod claim;
mod fingerprint;
mod follow;
mod list;
mod open;
mod part_file;
mod plan;
mod read;
mod special_file;
mod unpacked;
mod watch;
mod whole;
mod write;

pub use follow::FollowSource;
pub use part_file::{Compression, PartFile};
pub(crate) use part_file::{cannot_lock, cannot_write};
pub use read::{FileSource, csv, json_lines, lines, read};
pub use special_file::Awaited;
pub use unpacked::{listed, unpacked};
pub use watch::WatchSource;
pub use write::{FileSink, write, write_csv, write_json_lines, write_lines};
