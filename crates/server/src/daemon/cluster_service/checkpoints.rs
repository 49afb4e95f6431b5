//! Checkpoints of jobs with a processing guarantee, and recovery from safe mode.

use std::time::Duration;

use crate::leader::{JobHandle, JobView};
use ardea_checkpoint::cluster::{CheckpointLocation, CheckpointSource, JobCheckpointStores};
use ardea_checkpoint::local::CheckpointInspection;
use ardea_coordination::control::{CheckpointCommand, Command};
use ardea_core::{Epoch, Error, ErrorCode};
use ardea_rest::{Answer, CheckpointsView, Phase, RecoverRequest};

use super::checkpoint_pin::{PinGuard, PinPurpose, PinnedCheckpoint, RetryLoop};
use super::savepoints::promise_of;
use super::{ClusterService, run_blocking};
use crate::daemon::{checkpoint_view, describe};

/// Maximum wait for an epoch whose checkpoint is pinned during a check. After this time the
/// existing checkpoints are checked without a pin.
const HELD_WITHIN: Duration = Duration::from_secs(10);

/// Converts a request for recovery from safe mode to a command for the leader.
pub(super) fn wanted(request: RecoverRequest) -> Command {
    Command::Epochs(match request {
        RecoverRequest {
            from_nothing: true, ..
        } => CheckpointCommand::GoBackTo(None),
        RecoverRequest {
            from_epoch: Some(epoch),
            ..
        } => CheckpointCommand::GoBackTo(Some(Epoch(epoch))),
        RecoverRequest { .. } => CheckpointCommand::Retry,
    })
}

impl ClusterService {
    /// Returns the checkpoints of a job led by this host. With `check`, all bytes of the
    /// checkpoints are read.
    pub(super) async fn read_checkpoints(&self, job: &str, check: bool) -> Answer<CheckpointsView> {
        let desk = self.desk(job).await?;
        let view = desk.view().await?;
        if check && view.description.summary.phase == Phase::Running {
            let turn = PinGuard::of(&self.pins, &view, PinPurpose::Checking)?;
            if let Some(seen) = check_pinned(&desk, view, turn, &self.archives).await {
                return seen;
            }
        }
        let mut looks = RetryLoop::begin();
        loop {
            let view = desk.view().await?;
            let kept = kept(&view, &self.archives)?;
            let (place, committed) = (kept.promise.place.to_string(), kept.committed);
            let seen = run_blocking(move || kept.look(check)).await??;
            // In a running job, a newer checkpoint may have replaced the missing one during the
            // read.
            match gone(&seen) {
                Some(epoch) if looks.go_on(epoch) => {}
                Some(epoch) if newest(&desk.view().await?) != Some(epoch) => {
                    let what = format!(
                        "the checkpoints of {job} are replaced by newer ones before they can be read"
                    );
                    let error = Error::new(ErrorCode::WrongState, what);
                    return Err(error
                        .hint("try again, or increase checkpoints.every")
                        .into());
                }
                _ => return Ok(checkpoints_view(&view, place, committed, (check, &seen))),
            }
        }
    }

    /// Starts the in-memory checkpoint store of the cluster's hosts, if the location is in memory.
    pub(super) async fn have_place(&self, place: &CheckpointLocation) -> Result<(), Error> {
        match place.is_in_memory() {
            true => ardea_grid::cluster::request_grid(&*self.jobs.state, &self.grid_store).await,
            false => Ok(()),
        }
    }
}

/// Reads all checkpoints of a job while one of them is pinned, because the read takes longer than
/// an epoch. Returns `None` if no epoch is committed within [`HELD_WITHIN`], or a new leader has
/// released the pin.
async fn check_pinned(
    desk: &JobHandle,
    view: JobView,
    turn: PinGuard,
    archives: &JobCheckpointStores,
) -> Option<Answer<CheckpointsView>> {
    let held = PinnedCheckpoint::within(HELD_WITHIN, (desk.clone(), view), turn).await?;
    let epoch = held.epoch().0;
    let seen = async {
        let view = desk.view().await?;
        let kept = CheckpointSource {
            held: Some(epoch),
            ..kept(&view, archives)?
        };
        let (place, committed) = (kept.promise.place.to_string(), kept.committed);
        let seen = run_blocking(move || kept.look(true)).await??;
        let is_whole = seen.iter().all(|it| it.report.is_ok());
        let told = checkpoints_view(&view, place, committed, (true, &seen));
        Answer::Ok((is_whole, told))
    };
    match seen.await {
        Ok((false, _)) if !held.stays().await => None,
        seen => Some(seen.map(|(_, told)| told)),
    }
}

/// Converts the checkpoints of a job for the REST interface; `checked` is true if all of their
/// bytes were read.
fn checkpoints_view(
    view: &JobView,
    folder: String,
    committed: Option<u64>,
    (checked, checkpoints): (bool, &[CheckpointInspection]),
) -> CheckpointsView {
    CheckpointsView {
        job: view.job.name.clone(),
        folder,
        state: match describe::leader_changes(view) {
            true => "its leader is changing".to_string(),
            false => view.description.summary.phase.as_str().to_string(),
        },
        held_by: None,
        committed,
        checked,
        checkpoints: checkpoints.iter().map(checkpoint_view).collect(),
    }
}

/// Returns the epoch of a recorded checkpoint that is missing in the store, if there is one.
fn gone(seen: &[CheckpointInspection]) -> Option<Epoch> {
    let is_gone = |it: &&CheckpointInspection| {
        let error = it.report.as_ref().err();
        error.is_some_and(|error| error.code() == ErrorCode::NoSuchCheckpoint)
    };
    seen.iter().find(is_gone).map(|it| it.epoch)
}

fn newest(view: &JobView) -> Option<Epoch> {
    committed(view).map(Epoch)
}

fn committed(view: &JobView) -> Option<u64> {
    view.description.epochs.as_ref()?.committed
}

fn kept(view: &JobView, archives: &JobCheckpointStores) -> Result<CheckpointSource, Error> {
    let promise = promise_of(view)?;
    Ok(CheckpointSource {
        told: archives.stats(&view.job),
        shelter: archives.shelter(),
        job: view.job.clone(),
        promise,
        checkpoints: view.checkpoints.clone(),
        committed: committed(view),
        held: None,
    })
}
