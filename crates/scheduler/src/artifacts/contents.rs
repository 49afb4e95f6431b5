//! What goes into a package.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};

use crate::artifacts::entry_name::{check_link, entry_name};
use crate::artifacts::failure::unreadable;

/// Files by their names within the package.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Sorted by name, so that a folder comes before what is in it.
    pub(crate) entries: BTreeMap<String, Origin>,
}

/// Where an entry comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Folder,
    File(PathBuf),
    Link(String),
}

impl Contents {
    /// Nothing yet.
    pub fn new() -> Self {
        Contents::default()
    }

    /// Everything in a folder, with its subfolders.
    ///
    /// # Errors
    /// As [`folder`](Self::folder).
    pub fn of_folder(path: impl AsRef<Path>) -> Result<Self> {
        Contents::new().folder("", path)
    }

    /// Adds one file under a name such as `data/rates.csv`. A link is followed.
    ///
    /// # Errors
    /// [`ReadFailed`](ErrorCode::ReadFailed) if it isn't there or is no file, [`PackageRefused`](ErrorCode::PackageRefused) if
    /// the name leads out of the package or is given already.
    pub fn file(mut self, name: &str, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let metadata = fs::metadata(path).map_err(|error| unreadable(path, error))?;
        if !metadata.is_file() {
            return Err(refused(name, "it is no file").hint("add folders with `folder`"));
        }
        self.insert(name, Origin::File(path.to_path_buf()))?;
        Ok(self)
    }

    /// Adds everything in a folder, under a name or, with an empty one, at the top. Links within it stay links.
    ///
    /// # Errors
    /// [`ReadFailed`](ErrorCode::ReadFailed) for what can't be read, [`PackageRefused`](ErrorCode::PackageRefused) for what is
    /// neither file nor folder, links that lead out, and names that are no text or are given already.
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

    /// The names of all files, folders and links, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    fn insert(&mut self, name: &str, origin: Origin) -> Result<()> {
        let name = entry_name(name).map_err(|why| refused(name, why))?;
        for (at, _) in name.match_indices('/') {
            let above = name[..at].to_string();
            if *self.entries.entry(above).or_insert(Origin::Folder) != Origin::Folder {
                return Err(refused(&name, "what lies above it is no folder"));
            }
        }
        match self.entries.entry(name) {
            Entry::Vacant(place) => {
                place.insert(origin);
            }
            // A folder may be named twice.
            Entry::Occupied(known)
                if *known.get() == Origin::Folder && origin == Origin::Folder => {}
            Entry::Occupied(known) => return Err(refused(known.key(), "its name is given twice")),
        }
        Ok(())
    }
}

/// An entry can't be part of a package.
pub(crate) fn refused(name: &str, why: &str) -> Error {
    let what = format!("{name:?} can't be part of a package: {why}");
    Error::new(ErrorCode::PackageRefused, what)
}
