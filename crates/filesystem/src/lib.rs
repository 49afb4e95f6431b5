//! The features of file systems that the engine needs.
//!
//! * [`Permissions`]: mode, group and owner of a file, kept by the file that replaces it;
//! * [`make_folder`], [`no_folder`]: folders, and files in their place;
//! * [`rename_to_free`]: a rename that replaces nothing;
//! * [`probe`]: tries whether a folder has the [features](Feature) that a guarantee relies on,
//!   before anything is written there;
//! * [`Shown`]: paths in messages, of which nothing is lost;
//! * [`FileSystem`], [`System`]: the calls that a probe makes, so that a test can have them fail.
//!
//! # Invariants
//!
//! * A file that replaces another is never readable by more users than that was.
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
pub use folder::{make_folder, no_folder};
pub use permissions::Permissions;
pub use probe::{Feature, is_probe_file, lacks_locks, probe, probe_by};
pub use rename::rename_to_free;
pub use shown::{Shown, ShownPath};
