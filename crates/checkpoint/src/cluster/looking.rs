//! The snapshots of a job, for people who look at them.

use std::sync::Arc;

use crate::local::{LookedSnapshot, is_missing, open_place};
use crate::store::{Folder, Snapshot, SnapshotId, SnapshotReport};
use ardea_coordination::control::JobRef;
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_grid::cluster::Shelter;

use crate::cluster::probe::{find_place, lost};
use crate::cluster::{Place, Promise, Told};

/// Which snapshots of a job are looked at.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The job.
    pub job: JobRef,
    /// What it promises.
    pub promise: Promise,
    /// The snapshots that its record has, by generation and epoch, the oldest first.
    pub snapshots: Vec<(u64, u64)>,
    /// The newest committed epoch.
    pub committed: Option<u64>,
    /// The epoch whose snapshot is held while others follow; without one even the newest may go while it is read.
    pub held: Option<u64>,
    /// What its snapshots don't tell.
    pub told: Told,
    /// Where they are, if they are in no folder.
    pub shelter: Option<Arc<dyn Shelter>>,
}

impl Kept {
    /// Reads the manifests, and with `check` all that they refer to, which costs reading it. Changes nothing.
    ///
    /// # Errors
    /// If the folder isn't there. What is wrong with a snapshot is told as such.
    pub fn look(&self, check: bool) -> Result<Vec<LookedSnapshot>> {
        let folder = self.folder()?;
        let look_at = |(generation, epoch): &(u64, u64)| {
            let epoch = Epoch(*epoch);
            let id = SnapshotId::new(*generation, epoch);
            let report = self.report(&folder, id, check)?;
            let told = self.told.of(epoch);
            Some(LookedSnapshot {
                epoch,
                report,
                took: told.took,
                aligned: told.aligned,
            })
        };
        Ok(self.snapshots.iter().filter_map(look_at).collect())
    }

    fn folder(&self) -> Result<Arc<dyn Folder>> {
        match &self.promise.place {
            Place::Folder(folder) | Place::Both(folder) if is_missing(folder) => {
                let what = format!("there is no folder {} here", folder.display());
                Err(Error::new(ErrorCode::ReadFailed, what)
                    .hint("mount it on every host under the same path"))
            }
            Place::Folder(folder) => open_place(folder),
            place => find_place(place, &self.job, self.shelter.as_ref()),
        }
    }

    /// What a snapshot consists of; nothing if it has been removed since it was recorded, as those are that newer ones follow.
    fn report(
        &self,
        folder: &Arc<dyn Folder>,
        id: SnapshotId,
        check: bool,
    ) -> Option<Result<SnapshotReport>> {
        let open = || Snapshot::open(Arc::clone(folder), &self.job.name, id);
        let report = open().and_then(|snapshot| {
            if check {
                snapshot.verify()?;
            }
            Ok(snapshot.report())
        });
        let report = report.map_err(|error| match open() {
            // Its manifest goes first, then what it consists of, which was being read.
            Err(gone) if gone.code() == ErrorCode::NoSuchSnapshot => gone,
            _ => error,
        });
        let stays = self.held.or(self.committed) == Some(id.epoch.0);
        match report {
            Err(error) if !stays && error.code() == ErrorCode::NoSuchSnapshot => None,
            report => Some(report.map_err(|error| lost(&self.promise.place, error))),
        }
    }
}
