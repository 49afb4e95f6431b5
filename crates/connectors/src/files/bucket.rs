//! Files that are objects of a bucket.

mod encoder;
mod object_reader;
mod object_status;
mod output;
mod output_state;
mod staging;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_bucket::{Bucket, BucketPrefix, RequestError, failed, is_missing, is_unavailable};
use ardea_core::{Error, ErrorCode, JobSignals, Result};
use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};

use super::list::{cannot_read, is_complete, no_such_file};
use super::name_pattern::NamePattern;
pub(super) use object_reader::{ObjectReader, ReadAhead};
use object_status::ObjectStatus;
pub(super) use output::BucketOutput;

/// The objects at an address: one object, or those directly below a prefix.
#[derive(Debug)]
pub(in crate::files) struct BucketFiles {
    address: BucketPrefix,
    /// The client, created by the first request.
    client: Mutex<Option<Arc<Bucket>>>,
}

/// A listed object.
#[derive(Clone, Debug)]
pub(in crate::files) struct ObjectEntry {
    pub path: PathBuf,
    pub bytes: u64,
}

impl BucketFiles {
    /// Parses an address. Makes no request.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the address is malformed or contains credentials.
    pub fn at(path: &Path) -> Result<Self> {
        let Some(address) = path.to_str() else {
            let what = format!("the address {} is not UTF-8", path.display());
            return Err(Error::new(ErrorCode::InvalidConfig, what).hint("write it in UTF-8"));
        };
        Ok(BucketFiles {
            address: BucketPrefix::parse(address)?,
            client: Mutex::new(None),
        })
    }

    /// Returns the address without endpoint and region.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.address.place())
    }

    /// Returns the path of an object.
    pub fn path_of(&self, object: &ObjectPath) -> PathBuf {
        PathBuf::from(format!("s3://{}/{object}", self.address.bucket))
    }

    /// Returns the address of a path of an object, with endpoint and region.
    pub fn address_of(&self, path: &Path) -> PathBuf {
        let mut address = path.as_os_str().to_os_string();
        address.push(self.address.parameters());
        address.into()
    }

    /// Returns the object of a path.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the path is not in this bucket.
    pub fn object_of(&self, path: &Path) -> Result<ObjectPath> {
        let begin = format!("s3://{}/", self.address.bucket);
        let key = path.to_str().and_then(|path| path.strip_prefix(&begin));
        let object = key.and_then(|key| ObjectPath::parse(key).ok());
        object.ok_or_else(|| {
            let what = format!("{} is not an object of {begin}", path.display());
            Error::new(ErrorCode::InvalidConfig, what).hint("read with the address of its bucket")
        })
    }

    /// Returns the client.
    pub fn client(&self) -> Result<Arc<Bucket>> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client {
            return Ok(Arc::clone(client));
        }
        let opened = Arc::new(Bucket::open(&self.address, None, "files-s3")?);
        *client = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Lists the object at the address, or those directly below it whose names end in `suffix`, in
    /// the order of their names. If the last part of the address is a pattern, lists the objects
    /// whose names match.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if there is no such object, if the store denies access, or if it
    /// has not answered within twenty seconds.
    pub fn list(&self, suffix: Option<&str>) -> Result<Vec<ObjectEntry>> {
        let client = self.client()?;
        let prefix = self.address.prefix.clone();
        if !prefix.as_ref().is_empty() {
            let (store, object) = (client.store(), prefix.clone());
            match client.wait(async move { store.head(&object).await })? {
                Ok(found) => {
                    return Ok(vec![ObjectEntry {
                        path: self.path_of(&found.location),
                        bytes: found.size,
                    }]);
                }
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(self.refused(&self.path(), &error)),
            }
        }
        let path = self.path();
        let pattern = NamePattern::in_name(&path).filter(|_| !prefix.as_ref().is_empty());
        let folder = match pattern {
            None => prefix,
            Some(_) => parent_of(&prefix),
        };
        let store = client.store();
        let listed = client.wait(async move { store.list_with_delimiter(Some(&folder)).await })?;
        let listed = listed.map_err(|error| self.refused(&path, &error))?;
        let objects = listed.objects.into_iter().filter(|object| {
            let name = object.location.filename().unwrap_or_default();
            is_complete(name.as_ref(), suffix)
                && pattern.is_none_or(|pattern| pattern.matches(name.as_ref()))
        });
        let mut objects: Vec<_> = objects
            .map(|object| ObjectEntry {
                path: self.path_of(&object.location),
                bytes: object.size,
            })
            .collect();
        if objects.is_empty() {
            return Err(no_such_file(&path, suffix));
        }
        objects.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(objects)
    }

    /// Opens an object for reading. Waits while the store is unavailable.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if there is no such object, or if the store denies access;
    /// [`ErrorCode::Cancelled`] if the job is cancelled meanwhile.
    pub fn open(
        &self,
        path: &Path,
        ahead: ReadAhead,
        signals: &Arc<JobSignals>,
    ) -> Result<ObjectReader> {
        let client = self.client()?;
        let object = self.object_of(path)?;
        let location = object.clone();
        let found = client.request(&|| !signals.is_cancelled(), move |store| {
            let location = location.clone();
            async move { store.head(&location).await }
        });
        let found = found.map_err(|error| self.unreadable(path, error))?;
        Ok(ObjectReader::new(client, &found, ahead, signals))
    }

    /// Returns the first bytes of an object, at most `count`.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn head(&self, path: &Path, count: u64) -> Result<Bytes> {
        let client = self.client()?;
        let (store, object) = (client.store(), self.object_of(path)?);
        let read = client.wait(async move { store.get_range(&object, 0..count).await })?;
        read.map_err(|error| self.refused(path, &error))
    }

    /// Returns the error of a request for a path.
    pub fn unreadable(&self, path: &Path, error: RequestError) -> Error {
        match error {
            RequestError::Cancelled => Error::new(
                ErrorCode::Cancelled,
                format!("reading {} was cancelled", path.display()),
            ),
            RequestError::Refused(error) => self.refused(path, &error),
        }
    }

    fn refused(&self, path: &Path, error: &StoreError) -> Error {
        if is_missing(error) {
            return cannot_read(path, std::io::ErrorKind::NotFound.into());
        }
        let bucket = format!("s3://{}", self.address.bucket);
        let failed = failed(
            ErrorCode::ReadFailed,
            &path.display().to_string(),
            &bucket,
            error,
        );
        match is_unavailable(error) {
            true => failed,
            false => failed.permanent(),
        }
    }
}

/// Returns the prefix that contains an object.
fn parent_of(object: &ObjectPath) -> ObjectPath {
    let parent = object.as_ref().rsplit_once('/');
    parent
        .and_then(|(parent, _)| ObjectPath::parse(parent).ok())
        .unwrap_or_default()
}

/// Returns true if the error of a request for an object means that it does not exist. The answer to
/// this kind of request does not say whether its bucket exists.
fn is_not_found(error: &StoreError) -> bool {
    matches!(error, StoreError::NotFound { .. })
}
