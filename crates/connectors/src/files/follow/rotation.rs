//! Search for a followed file after a restore, by its path or under another name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::followed::{Followed, Identity, is_missing};
use crate::stream_position::StreamPosition;

/// The result of the search for a followed file.
pub(super) enum Trace {
    /// The file was found and is open at the restored position.
    Found(Followed),
    /// The file was found but truncated: it is shorter, or the bytes before the position differ.
    Truncated(Followed),
    /// The file was not found, but nothing had been read from it.
    New,
    /// Not found.
    Lost,
}

/// Searches for a file that had `path`: first at the path, then in its directory, where rotation
/// tools move files, and last by content, which also finds a copy.
pub(super) fn find(path: &Path, identity: Identity, place: &StreamPosition) -> io::Result<Trace> {
    let here = match Followed::open(path) {
        Err(error) if is_missing(&error) => None,
        opened => opened?,
    };
    if let Some(mut here) = here {
        if identity.is_of_same(&here.identity) {
            return Ok(match here.goes_on_at(identity.began, place)? {
                true => Trace::Found(here),
                false => Trace::Truncated(here),
            });
        }
        if let Some(found) = beside(path, identity, place)? {
            return Ok(Trace::Found(found));
        }
        if !place.before.is_empty() && here.goes_on_at(identity.began, place)? {
            return Ok(Trace::Found(here));
        }
    } else if let Some(found) = beside(path, identity, place)? {
        return Ok(Trace::Found(found));
    }
    let is_new = place.offset == 0;
    Ok(if is_new { Trace::New } else { Trace::Lost })
}

/// Searches the directory of `path` for a file with this identity and position.
pub(super) fn beside(
    path: &Path,
    identity: Identity,
    place: &StreamPosition,
) -> io::Result<Option<Followed>> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let entries = match fs::read_dir(folder.unwrap_or(Path::new("."))) {
        Err(error) if is_missing(&error) => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let other: PathBuf = entry?.path();
        // A file removed meanwhile is skipped.
        let is_it = |metadata: fs::Metadata| identity.is_of(&metadata);
        if !fs::symlink_metadata(&other).is_ok_and(is_it) {
            continue;
        }
        if let Ok(Some(mut file)) = Followed::open(&other)
            && file.goes_on_at(identity.began, place)?
        {
            return Ok(Some(file));
        }
    }
    Ok(None)
}
