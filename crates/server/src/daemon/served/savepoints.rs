//! Savepoints of jobs with a guarantee, and what those remember.

use std::path::PathBuf;
use std::sync::Arc;

use crate::leader::{JobDesk, JobView, Undone};
use ardea_checkpoint::cluster::{
    JobStates, Promise, SavepointManifest, address_of, kept_states, save, states_of,
};
use ardea_coordination::control::{Generation, JobPhase, LeftState};
use ardea_core::{Epoch, Error, ErrorCode};
use ardea_grid::cluster::Shelter;
use ardea_rest::{Answer, SavepointRequest, SavepointView, StatesView};

use super::holding::{Doing, Looks, Turn, forget, hold};
use super::{Served, looking};

impl Served {
    /// Has an epoch ended for a savepoint, and writes that. What was begun is done to its end, whoever still waits for it.
    pub(super) async fn save(&self, job: &str, request: SavepointRequest) -> Answer<SavepointView> {
        let to = PathBuf::from(&request.to);
        if !to.is_absolute() && address_of(&to).is_none() {
            let what = format!("{} is another folder for each process", request.to);
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("name a folder from the root on, which the job's hosts see, or s3://bucket/prefix")
                .into());
        }
        let desk = self.desk(job).await?;
        let view = desk.view().await?;
        let promise = promise_of(&view)?;
        let turn = Turn::of(&self.turns, &view, Doing::Saving)?;
        let (shelter, asked) = (self.archives.shelter(), desk.clone());
        let place = to.clone();
        let saving = tokio::spawn(async move {
            let saved = write(&desk, &view, (promise, shelter), to).await;
            drop(turn);
            saved
        });
        let manifest = match saving.await.map_err(cut_off)? {
            Ok(manifest) => manifest,
            Err(NotSaved::Undone(undone)) => return Err(self.why_undone(&asked, undone).await),
            Err(NotSaved::Failed(error)) => return Err(error.into()),
        };
        Ok(SavepointView {
            job: job.to_string(),
            place: place.display().to_string(),
            epoch: manifest.snapshot.epoch.0,
            manifest: as_json(&manifest)?,
        })
    }

    /// What a job that is led here remembers.
    pub(super) async fn states_of_job(&self, job: &str) -> Answer<StatesView> {
        let desk = self.desk(job).await?;
        let mut looks = Looks::begin();
        loop {
            let view = desk.view().await?;
            let (promise, told) = (promise_of(&view)?, remembered(&view));
            let told_of = |epoch: u64, states: &JobStates| -> Answer<StatesView> {
                Ok(StatesView {
                    job: job.to_string(),
                    epoch,
                    states: as_json(states)?,
                })
            };
            let Some(kept) = newest_committed(&view) else {
                return told_of(0, &told);
            };
            let (of, shelter) = (view.job, self.archives.shelter());
            let look_at = move || kept_states((&promise, shelter.as_ref()), &of, kept, &told);
            match looking(look_at).await? {
                // It has been followed by newer ones.
                Err(error)
                    if error.code() == ErrorCode::NoSuchSnapshot && looks.go_on(kept.epoch) => {}
                states => return told_of(kept.epoch.0, &states?),
            }
        }
    }
}

/// Why there is no savepoint.
enum NotSaved {
    /// No epoch was ended for it.
    Undone(Undone),
    Failed(Error),
}

/// Has an epoch ended, unless the job is in safe mode, and writes a savepoint of that.
async fn write(
    desk: &JobDesk,
    view: &JobView,
    (promise, shelter): (Promise, Option<Arc<dyn Shelter>>),
    to: PathBuf,
) -> Result<SavepointManifest, NotSaved> {
    let kept = match view.phase {
        // No epoch ends; what is committed stays what it is.
        JobPhase::SafeMode(_) => newest_committed(view),
        _ => hold(desk, view).await.map_err(NotSaved::Undone)?,
    };
    let kept = kept.ok_or_else(|| {
        let what = format!("there is no snapshot of {:?} to be saved", view.job.name);
        let error = Error::new(ErrorCode::NoSuchSnapshot, what);
        NotSaved::Failed(error.hint("try again when an epoch of it has been committed"))
    })?;
    let (of, states) = (view.job.clone(), remembered(view));
    let work = move || save((&promise, shelter.as_ref()), &of, kept, &states, &to);
    let written = tokio::task::spawn_blocking(work).await;
    // The next savepoint does it, if this can't.
    forget(desk, kept.epoch).await;
    let written = written.unwrap_or_else(|error| Err(cut_off(error)));
    written.map_err(NotSaved::Failed)
}

/// What helps a job that promises nothing.
const HOW_TO_PROMISE: &str =
    "submit it with --set guarantee=exactly-once; topologies can't, they have acks instead";

/// What a job promises; refuses one that promises nothing.
pub(super) fn promise_of(view: &JobView) -> Result<Promise, Error> {
    let promise = Promise::of(&view.submitted.definition)?;
    promise.ok_or_else(|| {
        let what = format!(
            "the job {:?} promises nothing, and has no snapshots",
            view.job.name
        );
        Error::new(ErrorCode::WrongState, what).hint(HOW_TO_PROMISE)
    })
}

/// The snapshot of the newest committed epoch.
pub(super) fn newest_committed(view: &JobView) -> Option<LeftState> {
    let epochs = view.epochs.as_ref()?;
    let committed = epochs.committed?;
    let mut snapshots = epochs.snapshots.iter();
    let (generation, epoch) = snapshots.find(|(_, epoch)| *epoch == committed)?;
    Some(LeftState {
        generation: Generation(*generation),
        epoch: Epoch(*epoch),
    })
}

fn remembered(view: &JobView) -> JobStates {
    let vertices = view.vertices.iter();
    states_of(vertices.map(|vertex| (vertex.name.as_str(), &vertex.attributes)))
}

fn as_json(value: &impl serde::Serialize) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorCode::Internal, "this is no JSON").because(error))
}

fn cut_off(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorCode::Internal, "writing the savepoint was cut off").because(error)
}
