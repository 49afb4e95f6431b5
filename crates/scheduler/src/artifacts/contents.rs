//! The contents of a package to be written.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};

use crate::artifacts::entry_name::{check_link, entry_name};
use crate::artifacts::failure::unreadable;

/// The contents of a package to be packed: files, folders and links by their names within the
/// package.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// The entries, sorted by name, so that a folder comes before its contents.
    pub(crate) entries: BTreeMap<String, Origin>,
}

/// The origin on disk of an entry of the package.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Folder,
    File(PathBuf),
    Link(String),
}

impl Contents {
    /// Creates empty contents.
    pub fn new() -> Self {
        Contents::default()
    }

    /// Creates contents from a folder with its subfolders.
    ///
    /// # Errors
    /// Those of [`folder`](Self::folder).
    pub fn of_folder(path: impl AsRef<Path>) -> Result<Self> {
        Contents::new().folder("", path)
    }

    /// Adds one file under a name such as `data/rates.csv`. Links are followed.
    ///
    /// # Errors
    /// [`ReadFailed`](ErrorCode::ReadFailed) if `path` is missing or no file,
    /// [`PackageRefused`](ErrorCode::PackageRefused) if the name leads out of the package or is in
    /// use.
    pub fn file(mut self, name: &str, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let metadata = fs::metadata(path).map_err(|error| unreadable(path, error))?;
        if !metadata.is_file() {
            return Err(refused(name, "it is no file").hint("add folders with `folder`"));
        }
        self.insert(name, Origin::File(path.to_path_buf()))?;
        Ok(self)
    }

    /// Adds the contents of a folder under a name, or at the top if the name is empty. Links in the
    /// folder stay links.
    ///
    /// # Errors
    /// [`ReadFailed`](ErrorCode::ReadFailed) for unreadable files,
    /// [`PackageRefused`](ErrorCode::PackageRefused) for special files, links that lead out of the
    /// folder, and names that are not UTF-8 or in use.
    pub fn folder(mut self, name: &str, path: impl AsRef<Path>) -> Result<Self> {
        if !name.is_empty() {
            self.insert(name, Origin::Folder)?;
        }
        let mut left = vec![(name.to_string(), path.as_ref().to_path_buf())];
        while let Some((above, folder)) = left.pop() {
            for entry in fs::read_dir(&folder).map_err(|error| unreadable(&folder, error))? {
                let path = entry.map_err(|error| unreadable(&folder, error))?.path();
                let own = path.file_name().and_then(|name| name.to_str());
                let own = own.ok_or_else(|| {
                    refused(&path.to_string_lossy(), "its name is not valid UTF-8")
                })?;
                let name = if above.is_empty() {
                    own.to_string()
                } else {
                    format!("{above}/{own}")
                };
                let metadata =
                    fs::symlink_metadata(&path).map_err(|error| unreadable(&path, error))?;
                if metadata.is_dir() {
                    self.insert(&name, Origin::Folder)?;
                    left.push((name, path));
                } else if metadata.is_file() {
                    self.insert(&name, Origin::File(path))?;
                } else if metadata.is_symlink() {
                    let target = fs::read_link(&path).map_err(|error| unreadable(&path, error))?;
                    let target = target.to_str();
                    let target =
                        target.ok_or_else(|| refused(&name, "its target is not valid UTF-8"))?;
                    check_link(&name, target).map_err(|why| refused(&name, why))?;
                    self.insert(&name, Origin::Link(target.to_string()))?;
                } else {
                    return Err(refused(
                        &name,
                        "it is neither a file, nor a folder, nor a link",
                    ));
                }
            }
        }
        Ok(self)
    }

    /// Returns the names of all files, folders and links, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    fn insert(&mut self, name: &str, origin: Origin) -> Result<()> {
        let name = entry_name(name).map_err(|why| refused(name, why))?;
        for (at, _) in name.match_indices('/') {
            let above = name[..at].to_string();
            if *self.entries.entry(above).or_insert(Origin::Folder) != Origin::Folder {
                return Err(refused(&name, "its parent is no folder"));
            }
        }
        match self.entries.entry(name) {
            Entry::Vacant(place) => {
                place.insert(origin);
            }
            // A folder may be added twice.
            Entry::Occupied(known)
                if *known.get() == Origin::Folder && origin == Origin::Folder => {}
            Entry::Occupied(known) => return Err(refused(known.key(), "its name is given twice")),
        }
        Ok(())
    }
}

/// Creates the error for an entry that can't be part of a package.
pub(crate) fn refused(name: &str, why: &str) -> Error {
    let what = format!("{name:?} can't be part of a package: {why}");
    Error::new(ErrorCode::PackageRefused, what)
}
