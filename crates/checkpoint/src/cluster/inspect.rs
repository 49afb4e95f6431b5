//! Inspection of a cluster job's checkpoints.

use std::sync::Arc;

use crate::local::{CheckpointInspection, is_missing, open_place};
use crate::store::{Checkpoint, CheckpointId, CheckpointReport, ObjectStore};
use ardea_coordination::control::JobRef;
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_grid::cluster::GridStoreClient;

use crate::cluster::location_check::{find_place, lost};
use crate::cluster::{CheckpointConfig, CheckpointLocation, CommitStatsLog};

/// The checkpoints of a cluster job, to be inspected.
#[derive(Clone, Debug)]
pub struct CheckpointSource {
    /// The job.
    pub job: JobRef,
    /// The checkpoint settings of the job.
    pub promise: CheckpointConfig,
    /// The checkpoints in the job's record, as generation and epoch, oldest first.
    pub checkpoints: Vec<(u64, u64)>,
    /// The newest committed epoch.
    pub committed: Option<u64>,
    /// The epoch whose checkpoint is pinned while newer ones follow. If `None`, even the newest
    /// checkpoint may be removed while it is read.
    pub held: Option<u64>,
    /// Statistics of the job's epochs that are not in its checkpoints.
    pub told: CommitStatsLog,
    /// The client of the memory of hosts, for checkpoints that are not in a folder.
    pub shelter: Option<Arc<dyn GridStoreClient>>,
}

impl CheckpointSource {
    /// Reads the manifests of the checkpoints. If `check` is true, also verifies all files that
    /// they refer to. Changes nothing.
    ///
    /// # Errors
    /// If the folder does not exist. The error of a single checkpoint is in its entry of the
    /// result.
    pub fn look(&self, check: bool) -> Result<Vec<CheckpointInspection>> {
        let folder = self.folder()?;
        let look_at = |(generation, epoch): &(u64, u64)| {
            let epoch = Epoch(*epoch);
            let id = CheckpointId::new(*generation, epoch);
            let report = self.report(&folder, id, check)?;
            let told = self.told.of(epoch);
            Some(CheckpointInspection {
                epoch,
                report,
                took: told.took,
                aligned: told.aligned,
            })
        };
        Ok(self.checkpoints.iter().filter_map(look_at).collect())
    }

    fn folder(&self) -> Result<Arc<dyn ObjectStore>> {
        match &self.promise.place {
            CheckpointLocation::Folder(folder) | CheckpointLocation::Both(folder)
                if is_missing(folder) =>
            {
                let what = format!("there is no folder {} here", folder.display());
                Err(Error::new(ErrorCode::ReadFailed, what)
                    .hint("mount it on every host under the same path"))
            }
            CheckpointLocation::Folder(folder) => open_place(folder),
            place => find_place(place, &self.job, self.shelter.as_ref()),
        }
    }

    /// Returns the contents of a checkpoint; `None` if it was removed after newer ones were
    /// recorded.
    fn report(
        &self,
        folder: &Arc<dyn ObjectStore>,
        id: CheckpointId,
        check: bool,
    ) -> Option<Result<CheckpointReport>> {
        let open = || Checkpoint::open(Arc::clone(folder), &self.job.name, id);
        let report = open().and_then(|checkpoint| {
            if check {
                checkpoint.verify()?;
            }
            Ok(checkpoint.report())
        });
        let report = report.map_err(|error| match open() {
            // The manifest is removed first, then the files that were being read.
            Err(gone) if gone.code() == ErrorCode::NoSuchCheckpoint => gone,
            _ => error,
        });
        let stays = self.held.or(self.committed) == Some(id.epoch.0);
        match report {
            Err(error) if !stays && error.code() == ErrorCode::NoSuchCheckpoint => None,
            report => Some(report.map_err(|error| lost(&self.promise.place, error))),
        }
    }
}
