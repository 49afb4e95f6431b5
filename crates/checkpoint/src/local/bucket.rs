//! Snapshots and savepoints in a folder, or in a bucket of an object store, if this was built with the feature `s3`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::{DiskFolder, Folder};
use ardea_core::{Error, ErrorCode, Result, real_path};
use ardea_filesystem::no_folder;

/// What an address begins with.
const SCHEME: &str = "s3://";

/// The address that stands where a path could stand, if it is one.
pub fn address_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with(SCHEME))
}

/// Refuses an address that no process of this program could open, before anybody stores it; asks no store.
///
/// # Errors
/// `InvalidConfig` for one that makes no sense or holds credentials, which are not repeated; and for any, where this was built without the means.
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

/// Whether a place is a folder that isn't there. Of a bucket only its store could say.
pub fn is_missing(place: &Path) -> bool {
    address_of(place).is_none() && !place.is_dir()
}

/// A part of a place, which can be opened as one: a folder's folder, or what begins with that in a bucket. An address without a bucket stays as
/// it is, and is refused when it is opened.
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

/// A name as a segment of an address's path (RFC 3986, section 3.3), with nothing in it that would end that.
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

/// Refuses a savepoint in the place of the job's own snapshots, or in a part of that, which goes with it when somebody removes that.
///
/// # Errors
/// `WrongState`.
pub fn keep_apart(savepoint: &Path, own: &Path) -> Result<()> {
    if !is_within(savepoint, own) {
        return Ok(());
    }
    let (savepoint, own) = (savepoint.display(), own.display());
    let what =
        format!("{savepoint} is no place for a savepoint: {own} is that of the job's snapshots");
    Err(Error::new(ErrorCode::WrongState, what)
        .hint("give each savepoint a folder of its own, outside of that"))
}

/// Whether a place is that one, or a part of it. None of them need be there.
fn is_within(place: &Path, of: &Path) -> bool {
    match (address_of(place), address_of(of)) {
        (Some(place), Some(of)) => {
            // What stands behind these names the store, in more ways than one: of another one the name of a bucket is hardly the same.
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

/// Opens the place of snapshots, or of a savepoint that is to be written: a folder, which is made if it isn't there, or a part of a bucket.
///
/// # Errors
/// What either returns.
pub fn open_place(place: &Path) -> Result<Arc<dyn Folder>> {
    match address_of(place) {
        Some(address) => open(address),
        None => Ok(Arc::new(DiskFolder::open(place)?)),
    }
}

/// Opens a place as [`open_place`] does, for whoever is going to write there, and refuses one that cannot keep what is promised of a written file.
///
/// # Errors
/// `StoreUnsuitable` with what is missing; what [`open_place`] returns.
pub fn open_to_write(place: &Path) -> Result<Arc<dyn Folder>> {
    let folder = open_place(place)?;
    check_suitable(&*folder)?;
    Ok(folder)
}

/// Tries whether a place is suitable. One that cannot be written now may be later, and is none of the unsuitable ones.
pub(crate) fn check_suitable(folder: &dyn Folder) -> Result<()> {
    match folder.probe() {
        Err(error) if error.code() == ErrorCode::StoreUnsuitable => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Opens the place of a savepoint that is there; makes none.
///
/// # Errors
/// `ReadFailed` if there is no such folder; what either returns.
pub fn place_of_savepoint(place: &Path) -> Result<Arc<dyn Folder>> {
    if is_missing(place) {
        return Err(Error::new(ErrorCode::ReadFailed, no_folder(place))
            .hint("name the folder that a savepoint was written to"));
    }
    open_place(place)
}

/// Opens the folder at an address.
///
/// # Errors
/// As `S3Folder::open`; `InvalidConfig` where this was built without it.
#[cfg(feature = "s3")]
pub(crate) fn open(address: &str) -> Result<Arc<dyn Folder>> {
    Ok(Arc::new(crate::s3::S3Folder::open(address)?))
}

#[cfg(feature = "s3")]
fn check(address: &str) -> Result<()> {
    crate::s3::check_address(address)
}

/// The same, without the means.
#[cfg(not(feature = "s3"))]
pub(crate) fn open(address: &str) -> Result<Arc<dyn Folder>> {
    Err(unreachable_by_this(address))
}

#[cfg(not(feature = "s3"))]
fn check(address: &str) -> Result<()> {
    Err(unreachable_by_this(address))
}

/// Who reads it may not be who runs this: a host tells it to who submits a job.
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
    fn a_savepoint_is_kept_apart_from_the_snapshots_of_its_job() {
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
