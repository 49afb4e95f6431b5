//! Finds the file again that was being followed, under whatever name it has by now.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::followed::{Followed, Identity, is_missing};
use crate::place::Place;

/// What has become of a file.
pub(super) enum Trace {
    /// There it is, where it had been read to.
    Found(Followed),
    /// It has less than what had been read of it, or something else in that place: it was truncated.
    Truncated(Followed),
    /// It is nowhere, and nothing had been read of it.
    New,
    /// It is nowhere.
    Lost,
}

/// Looks for a file that had `path`: there, or beside it, where those that rotate files leave them; at last for its content, which a copy has
/// as well.
pub(super) fn find(path: &Path, identity: Identity, place: &Place) -> io::Result<Trace> {
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

/// Looks through the folder of `path` for a file that goes on so.
pub(super) fn beside(
    path: &Path,
    identity: Identity,
    place: &Place,
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
        // One that goes while it is looked at is none of those that stay.
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
