//! Sources and sinks for files: lines, CSV and JSON lines, plain or compressed, bounded or
//! unbounded.
//!
//! Reading: [`lines`], [`csv()`], [`json_lines`], or [`read()`] with a custom format. A path names
//! a file or a directory, or is a pattern of file names: `*` stands for any characters, and `?` for
//! one. The files of a directory are read in the order of their names and
//! distributed over the instances, which share large files. Gzip and zstd are detected by the first
//! bytes of a file. [`FileSource::follow`] tails a growing file; [`FileSource::watch`] also reads
//! files that are added to the directory later.
//!
//! With the feature `s3`, the address of an object or of a prefix in a bucket takes the place of a
//! path, such as `s3://bucket/prefix?endpoint=http://host:port`; see the crate `ardea_bucket`.
//!
//! Writing: [`write_lines`], [`write_csv`], [`write_json_lines`], or [`write()`]; [`write_batches`]
//! for batches of records. A file is named `….part` until it is complete, so readers never see a
//! partial file.
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

#[cfg(feature = "s3")]
mod bucket;
mod checked;
mod claim;
mod decompressed_files;
mod fingerprint;
mod finished_file;
mod follow;
mod list;
mod location;
mod name_pattern;
mod open;
mod output;
mod output_content;
mod part_file;
mod plan;
mod read;
mod special_file;
mod watch;
mod write;

pub use decompressed_files::{first_listed, listed, local_files, unpacked};
pub use follow::FollowSource;
pub use output_content::OutputContent;
pub use part_file::{Compression, PartFile};
pub(crate) use part_file::{cannot_lock, cannot_write};
pub(crate) use read::block_reader::BlockPositions;
pub(crate) use read::blocks::FileBlocks;
pub use read::{FileSource, csv, json_lines, lines, read};
pub use special_file::ReadyEvent;
pub use watch::WatchSource;
pub use write::{FileSink, write, write_batches, write_csv, write_json_lines, write_lines};
