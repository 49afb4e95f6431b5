//! Savepoints of jobs with a processing guarantee, and their state schemas.

use std::path::PathBuf;
use std::sync::Arc;

use crate::leader::{CommandError, JobHandle, JobView};
use ardea_checkpoint::cluster::{
    CheckpointConfig, JobStateSchema, SavepointManifest, address_of, kept_states, save, states_of,
};
use ardea_coordination::control::FinalState;
use ardea_core::{Error, ErrorCode};
use ardea_grid::cluster::GridStoreClient;
use ardea_rest::{Answer, Phase, SavepointRequest, SavepointView, StatesView};

use super::checkpoint_pin::{PinGuard, PinPurpose, RetryLoop, final_state, pin, release};
use super::{ClusterService, run_blocking};

impl ClusterService {
    /// Completes an epoch and writes its savepoint. The write continues even if the client
    /// disconnects.
    pub(super) async fn save(&self, job: &str, request: SavepointRequest) -> Answer<SavepointView> {
        let to = PathBuf::from(&request.to);
        if !to.is_absolute() && address_of(&to).is_none() {
            let what = format!(
                "{} is a relative path, which differs between processes",
                request.to
            );
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("use an absolute path of a folder that the job's hosts share, or s3://bucket/prefix")
                .into());
        }
        let desk = self.desk(job).await?;
        let view = desk.view().await?;
        let promise = promise_of(&view)?;
        let turn = PinGuard::of(&self.pins, &view, PinPurpose::Saving)?;
        let (shelter, asked) = (self.archives.shelter(), desk.clone());
        let place = to.clone();
        let saving = tokio::spawn(async move {
            let saved = write(&desk, &view, (promise, shelter), to).await;
            drop(turn);
            saved
        });
        let manifest = match saving.await.map_err(cut_off)? {
            Ok(manifest) => manifest,
            Err(NotSaved::Undone(undone)) => return Err(self.command_error(&asked, undone).await),
            Err(NotSaved::Failed(error)) => return Err(error.into()),
        };
        Ok(SavepointView {
            job: job.to_string(),
            place: place.display().to_string(),
            epoch: manifest.checkpoint.epoch.0,
            manifest: as_json(&manifest)?,
        })
    }

    /// Returns the state schema of a job led here.
    pub(super) async fn states_of_job(&self, job: &str) -> Answer<StatesView> {
        let desk = self.desk(job).await?;
        let mut looks = RetryLoop::begin();
        loop {
            let view = desk.view().await?;
            let (promise, told) = (promise_of(&view)?, remembered(&view));
            let told_of = |epoch: u64, states: &JobStateSchema| -> Answer<StatesView> {
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
            match run_blocking(look_at).await? {
                // A newer checkpoint has replaced the one being read.
                Err(error)
                    if error.code() == ErrorCode::NoSuchCheckpoint && looks.go_on(kept.epoch) => {}
                states => return told_of(kept.epoch.0, &states?),
            }
        }
    }
}

/// The reason why a savepoint was not written.
enum NotSaved {
    /// The command to complete an epoch failed.
    Undone(CommandError),
    Failed(Error),
}

/// Completes an epoch, unless the job is in safe mode, and writes its savepoint.
async fn write(
    desk: &JobHandle,
    view: &JobView,
    (promise, shelter): (CheckpointConfig, Option<Arc<dyn GridStoreClient>>),
    to: PathBuf,
) -> Result<SavepointManifest, NotSaved> {
    let kept = match view.description.summary.phase {
        // No epochs are completed in safe mode, so the committed checkpoint stays.
        Phase::SafeMode => newest_committed(view),
        _ => pin(desk, view).await.map_err(NotSaved::Undone)?,
    };
    let kept = kept.ok_or_else(|| {
        let what = format!("there is no checkpoint of {:?} to save", view.job.name);
        let error = Error::new(ErrorCode::NoSuchCheckpoint, what);
        NotSaved::Failed(error.hint("try again when its first epoch has been committed"))
    })?;
    let (of, states) = (view.job.clone(), remembered(view));
    let work = move || save((&promise, shelter.as_ref()), &of, kept, &states, &to);
    let written = tokio::task::spawn_blocking(work).await;
    // If the release fails, the next savepoint releases the checkpoint.
    release(desk, kept.epoch).await;
    let written = written.unwrap_or_else(|error| Err(cut_off(error)));
    written.map_err(NotSaved::Failed)
}

/// The hint for a job without a processing guarantee.
const HOW_TO_PROMISE: &str = "submit it with --set guarantee=exactly-once";

/// Returns the checkpoint configuration of a job; fails if the job has no processing guarantee.
pub(super) fn promise_of(view: &JobView) -> Result<CheckpointConfig, Error> {
    let promise = CheckpointConfig::of(&view.submitted.definition)?;
    promise.ok_or_else(|| {
        let what = format!(
            "the job {:?} has no processing guarantee, and no checkpoints",
            view.job.name
        );
        Error::new(ErrorCode::WrongState, what).hint(HOW_TO_PROMISE)
    })
}

/// Returns the checkpoint of the latest committed epoch.
pub(super) fn newest_committed(view: &JobView) -> Option<FinalState> {
    let committed = view.description.epochs.as_ref()?.committed?;
    let mut checkpoints = view.checkpoints.iter();
    let kept = checkpoints.find(|(_, epoch)| *epoch == committed);
    kept.map(|kept| final_state(*kept))
}

fn remembered(view: &JobView) -> JobStateSchema {
    let vertices = view.demand.vertices.iter();
    states_of(vertices.map(|vertex| (vertex.name.as_str(), &vertex.attributes)))
}

fn as_json(value: &impl serde::Serialize) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value).map_err(|error| {
        Error::new(ErrorCode::Internal, "a response can't be encoded as JSON").because(error)
    })
}

fn cut_off(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorCode::Internal, "writing the savepoint was interrupted").because(error)
}
