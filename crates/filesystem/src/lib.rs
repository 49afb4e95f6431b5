//! File system features required by the engine.
//!
//! * [`Permissions`]: mode, group and owner of a file, passed on to the file that replaces it;
//! * [`create_folder`], [`missing_folder`]: folders, and files in their place;
//! * [`rename_to_free`]: a rename that replaces nothing;
//! * [`probe`]: a check that a folder has the [features](Feature) required by a guarantee, before
//!   any data is written there;
//! * [`Shown`]: lossless display of paths in messages;
//! * [`FileSystem`], [`System`]: the calls of a probe, which a test can replace with failing ones.
//!
//! # Invariants
//!
//! * A file that replaces another is never readable by more users than the replaced one.
//! * A probe leaves no file behind, unless its process is killed.
//!
//! # Example
//!
//! ```
//! use ardea_filesystem::{Feature, probe};
//!
//! # let folder = tempfile::tempdir()?;
//! probe(folder.path(), &[Feature::Locks, Feature::Rename], "the output of a job")?;
//! assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod calls;
mod folder;
mod permissions;
mod probe;
mod rename;
mod shown;

pub use calls::{FileSystem, System};
pub use folder::{create_folder, missing_folder};
pub use permissions::Permissions;
pub use probe::{Feature, is_probe_file, lacks_locks, probe, probe_with};
pub use rename::rename_to_free;
pub use shown::{Shown, ShownPath};
