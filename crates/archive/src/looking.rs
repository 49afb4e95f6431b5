//! The snapshots of a job, for people who look at them.

use std::sync::Arc;
use std::time::Duration;

use ardea_api::{DamageView, SnapshotVertexView, SnapshotView, SnapshotsView};
use ardea_control::JobRef;
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_recovery::{LookedSnapshot, is_missing, open_place};
use ardea_shelter::Shelter;
use ardea_snapshot::{Folder, Snapshot, SnapshotId, SnapshotReport, VertexReport};

use crate::probe::{find_place, lost};
use crate::{Place, Promise, Told};

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
    /// What the job is doing, in a word.
    pub state: String,
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
    pub fn look(&self, check: bool) -> Result<SnapshotsView> {
        let folder = self.folder()?;
        let look_at = |(generation, epoch): &(u64, u64)| {
            let epoch = Epoch(*epoch);
            let id = SnapshotId::new(*generation, epoch);
            let report = self.report(&folder, id, check)?;
            let told = self.told.of(epoch);
            Some(view_of(&LookedSnapshot {
                epoch,
                report,
                took: told.took,
                aligned: told.aligned,
            }))
        };
        Ok(SnapshotsView {
            job: self.job.name.clone(),
            folder: self.promise.place.to_string(),
            state: self.state.clone(),
            held_by: None,
            committed: self.committed,
            checked: check,
            snapshots: self.snapshots.iter().filter_map(look_at).collect(),
        })
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

/// A snapshot, in the words of the REST interface.
pub fn view_of(snapshot: &LookedSnapshot) -> SnapshotView {
    let report = match &snapshot.report {
        Ok(report) => report,
        Err(error) => {
            return SnapshotView {
                epoch: snapshot.epoch.0,
                damage: Some(DamageView {
                    code: error.code().as_str().to_string(),
                    message: error.message().to_string(),
                }),
                ..SnapshotView::default()
            };
        }
    };
    SnapshotView {
        epoch: snapshot.epoch.0,
        damage: None,
        generation: Some(report.id.generation),
        based_on: report.base.map(|base| base.epoch.0),
        committed_at: Some(report.at.to_string()),
        took_ms: Some(millis(snapshot.took.unwrap_or_else(|| report.took()))),
        written_bytes: report.bytes(),
        state_bytes: report.state_bytes(),
        vertices: vertices(report, snapshot),
    }
}

fn vertices(report: &SnapshotReport, snapshot: &LookedSnapshot) -> Vec<SnapshotVertexView> {
    let vertices = report.vertices.iter().map(|vertex: &VertexReport| {
        let aligned = snapshot.aligned.get(&vertex.vertex).copied();
        SnapshotVertexView {
            name: vertex.vertex.clone(),
            instances: vertex.instances,
            full: vertex.full,
            increments: vertex.increments,
            unchanged: vertex.unchanged,
            entries: vertex.entries,
            written_bytes: vertex.bytes,
            state_bytes: vertex.state_bytes,
            layers: u64::try_from(vertex.layers).unwrap_or(u64::MAX),
            took_ms: millis(vertex.took),
            aligned_ms: aligned.map(millis),
        }
    });
    vertices.collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
