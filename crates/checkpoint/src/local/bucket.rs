//! Locations of checkpoints and savepoints: a directory, or with the feature `s3` a prefix in a
//! bucket of an object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::{LocalDirStore, ObjectStore};
use ardea_core::{Error, ErrorCode, Result, real_path};
use ardea_filesystem::missing_folder;

/// The scheme of an object store address.
const SCHEME: &str = "s3://";

/// Returns `path` as text if it is an object store address, otherwise `None`.
pub fn address_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with(SCHEME))
}

/// Checks the syntax of an address, before the address is stored. Does not contact the object
/// store.
///
/// # Errors
/// `InvalidConfig` if the address is malformed or contains credentials, or if this program was
/// built without the feature `s3`. The error does not repeat the credentials.
pub fn check_address(address: &str) -> Result<()> {
    let authority = address.strip_prefix(SCHEME).unwrap_or(address);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(
            Error::new(ErrorCode::InvalidConfig, "s3://… holds credentials")
                .hint("give them in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"),
        );
    }
    check(address)
}

/// Returns true if `place` is the path of a directory that does not exist. Returns false for an
/// object store address.
pub fn is_missing(place: &Path) -> bool {
    address_of(place).is_none() && !place.is_dir()
}

/// Returns a sub-location of `place`: a subdirectory, or a longer prefix in the same bucket. An
/// address without a bucket is returned unchanged; opening it fails.
///
/// ```
/// use std::path::Path;
/// use ardea_checkpoint::local::part_of;
///
/// assert_eq!(part_of(Path::new("/mnt/state"), "words"), Path::new("/mnt/state/words"));
/// let bucket = Path::new("s3://states/jobs/?endpoint=http://[::1]:9000");
/// let part = part_of(bucket, "words #1");
/// assert_eq!(part, Path::new("s3://states/jobs/words%20%231?endpoint=http://[::1]:9000"));
/// ```
pub fn part_of(place: &Path, name: &str) -> PathBuf {
    let Some(address) = address_of(place) else {
        return place.join(name);
    };
    let (prefix, rest) = address.split_at(address.find(['?', '#']).unwrap_or(address.len()));
    match prefix.trim_end_matches('/') {
        prefix if prefix.len() > SCHEME.len() => {
            format!("{prefix}/{}{rest}", as_segment(name)).into()
        }
        _ => place.to_path_buf(),
    }
}

/// Encodes a name as a path segment of a URI (RFC 3986, section 3.3).
fn as_segment(name: &str) -> String {
    let mut segment = String::new();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => segment.push(byte.into()),
            false => segment += &format!("%{byte:02X}"),
        }
    }
    segment
}

/// Checks that the savepoint location is not the job's `own` checkpoint location or a part of it. A
/// savepoint there would be deleted with the job.
///
/// # Errors
/// `WrongState` if the savepoint location is within `own`.
pub fn keep_apart(savepoint: &Path, own: &Path) -> Result<()> {
    if !is_within(savepoint, own) {
        return Ok(());
    }
    let (savepoint, own) = (savepoint.display(), own.display());
    let what = format!(
        "{savepoint} can't be used for a savepoint: it is within {own}, the location of the job's checkpoints"
    );
    Err(Error::new(ErrorCode::WrongState, what)
        .hint("give each savepoint a folder of its own, outside of that"))
}

/// Returns true if `place` is `of` or a sub-location of `of`. Neither location needs to exist.
fn is_within(place: &Path, of: &Path) -> bool {
    match (address_of(place), address_of(of)) {
        (Some(place), Some(of)) => {
            // The query part of an address names the store and can be spelled in several ways.
            // Equal paths are therefore taken to be in the same store.
            let path = |address: &str| {
                let end = address.find(['?', '#']).unwrap_or(address.len());
                format!("{}/", address[..end].trim_end_matches('/'))
            };
            path(place).starts_with(&path(of))
        }
        (None, None) => real_path(place).starts_with(real_path(of)),
        _ => false,
    }
}

/// Opens the location of checkpoints, or of a savepoint to be written. A directory is created if
/// missing.
///
/// # Errors
/// Those of [`LocalDirStore::open`] or of the object store.
pub fn open_place(place: &Path) -> Result<Arc<dyn ObjectStore>> {
    match address_of(place) {
        Some(address) => open(address),
        None => Ok(Arc::new(LocalDirStore::open(place)?)),
    }
}

/// Opens a location like [`open_place`], and checks that the store can keep the guarantees for
/// written files.
///
/// # Errors
/// `StoreUnsuitable` with the missing property; those of [`open_place`].
pub fn open_to_write(place: &Path) -> Result<Arc<dyn ObjectStore>> {
    let folder = open_place(place)?;
    check_suitable(&*folder)?;
    Ok(folder)
}

/// Probes the store. Returns only the error `StoreUnsuitable`: a store that is not writable now may
/// become writable later.
pub(crate) fn check_suitable(folder: &dyn ObjectStore) -> Result<()> {
    match folder.probe() {
        Err(error) if error.code() == ErrorCode::StoreUnsuitable => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Opens the location of an existing savepoint. Never creates a directory.
///
/// # Errors
/// `ReadFailed` if the directory does not exist; those of [`open_place`].
pub fn place_of_savepoint(place: &Path) -> Result<Arc<dyn ObjectStore>> {
    if is_missing(place) {
        return Err(Error::new(ErrorCode::ReadFailed, missing_folder(place))
            .hint("name the folder that a savepoint was written to"));
    }
    open_place(place)
}

/// Opens the object store at an address.
///
/// # Errors
/// Those of `S3Store::open`; `InvalidConfig` if built without the feature `s3`.
#[cfg(feature = "s3")]
pub(crate) fn open(address: &str) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(crate::s3::S3Store::open(address)?))
}

#[cfg(feature = "s3")]
fn check(address: &str) -> Result<()> {
    crate::s3::check_address(address)
}

/// Refuses every address, since this program was built without the feature `s3`.
#[cfg(not(feature = "s3"))]
pub(crate) fn open(address: &str) -> Result<Arc<dyn ObjectStore>> {
    Err(unreachable_by_this(address))
}

#[cfg(not(feature = "s3"))]
fn check(address: &str) -> Result<()> {
    Err(unreachable_by_this(address))
}

/// Returns the error of an address that this program cannot open. It names the program, since a
/// host may return it to a client on another machine.
#[cfg(not(feature = "s3"))]
fn unreachable_by_this(address: &str) -> Error {
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_name());
    let program = program.unwrap_or_default().to_string_lossy();
    let what =
        format!("{address} is in an object store, and the program {program} was built without one");
    Error::new(ErrorCode::InvalidConfig, what)
        .hint("build it with the feature `s3` of ardea, or name a folder")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_savepoint_is_kept_apart_from_the_checkpoints_of_its_job() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir(at("state")).unwrap();
        std::os::unix::fs::symlink(at("state"), at("link")).unwrap();
        for inside in [
            "state",
            "state/saved",
            "link/saved",
            "state/../state/saved/x",
            "missing/../state/saved",
        ] {
            let error = keep_apart(&at(inside), &at("state")).unwrap_err();
            assert_eq!(error.code(), ErrorCode::WrongState, "{inside}");
        }
        for outside in ["saved", "state-saved", "state/../saved"] {
            keep_apart(&at(outside), &at("state")).unwrap();
        }
        let own = Path::new("s3://states/jobs/words?region=x");
        for (to, is_inside) in [
            ("s3://states/jobs/words/saved?region=x", true),
            ("s3://states/jobs/words/", true),
            ("s3://states/jobs/words-saved?region=x", false),
            ("s3://states/saved?region=x", false),
            ("saved", false),
        ] {
            assert_eq!(keep_apart(Path::new(to), own).is_err(), is_inside, "{to}");
        }
    }
}
