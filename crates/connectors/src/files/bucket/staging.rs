//! The parts of unpublished objects.
//!
//! They are objects below `.ardea-staging/` beside the output, in an area of each run of an
//! instance. Sources that read the folder of the output do not see them.

use std::collections::HashSet;

use ardea_bucket::RequestError;
use ardea_core::{Result, unique_number};
use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use serde::{Deserialize, Serialize};

use super::parent_of;
use super::upload::UploadClient;

/// The name of the folder with the areas.
const FOLDER: &str = ".ardea-staging";

/// The parts of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct StagedParts {
    /// The keys of the parts, in order.
    pub parts: Vec<String>,
    pub bytes: u64,
}

impl StagedParts {
    pub fn paths(&self) -> Vec<ObjectPath> {
        let parts = self.parts.iter();
        let path = |key: &String| {
            ObjectPath::parse(key).unwrap_or_else(|_| ObjectPath::from(key.as_str()))
        };
        parts.map(path).collect()
    }
}

/// The area of a run, which one instance at a time uses.
#[derive(Clone, Debug)]
pub(super) struct StagingArea(ObjectPath);

impl StagingArea {
    /// Returns the area of a run for an object of the output.
    pub fn of_run(object: &ObjectPath, run: u64) -> Self {
        let area = parent_of(object).join(FOLDER);
        StagingArea(area.join(format!("{run:016x}")))
    }

    pub fn path(&self) -> &ObjectPath {
        &self.0
    }

    /// Returns the key of another part. No attempt overwrites a part of another one.
    pub fn next_key(&self) -> ObjectPath {
        self.0.clone().join(format!("{:016x}", unique_number()))
    }

    /// Removes the parts that earlier attempts uploaded after their last snapshot: those not in
    /// `kept`. Parts that the store does not list or remove remain.
    ///
    /// # Errors
    /// [`ErrorCode::Cancelled`](ardea_core::ErrorCode::Cancelled) if the job is cancelled meanwhile.
    pub fn clean(&self, client: &UploadClient, kept: &HashSet<String>) -> Result<()> {
        let area = self.0.clone();
        let listed = client.bucket.start(move |store| {
            let area = area.clone();
            async move { store.list_with_delimiter(Some(&area)).await }
        });
        let cancelled = || client.unwritten(&self.0, RequestError::Cancelled);
        let objects = match client.wait(&listed) {
            Ok(listed) => listed.objects,
            Err(RequestError::Cancelled) => return Err(cancelled()),
            Err(RequestError::Refused(_)) => return Ok(()),
        };
        let keys = objects.into_iter().map(|object| object.location);
        let unused: Vec<_> = keys.filter(|key| !kept.contains(key.as_ref())).collect();
        if unused.is_empty() {
            return Ok(());
        }
        match client.wait(&client.bucket.start_removal(unused)) {
            Err(RequestError::Cancelled) => Err(cancelled()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_run_are_in_a_folder_beside_the_output() {
        let key_of = |object: &str| {
            let area = StagingArea::of_run(&ObjectPath::from(object), 0xab);
            area.next_key().to_string()
        };
        let area = "year/.ardea-staging/00000000000000ab/";
        assert!(key_of("year/out.txt").starts_with(area));
        assert!(key_of("out.txt").starts_with(".ardea-staging/00000000000000ab/"));
        assert_ne!(key_of("out.txt"), key_of("out.txt"));
    }
}
