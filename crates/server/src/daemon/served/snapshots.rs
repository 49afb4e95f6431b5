//! The snapshots of jobs with a guarantee, and the way out of safe mode.

use std::time::Duration;

use crate::leader::{JobDesk, JobView};
use ardea_checkpoint::cluster::{Archives, Kept, Place};
use ardea_checkpoint::local::LookedSnapshot;
use ardea_coordination::control::{Command, EpochsCommand, JobPhase};
use ardea_core::{Epoch, Error, ErrorCode};
use ardea_rest::{Answer, RecoverRequest, SnapshotsView};

use super::holding::{Doing, Held, Looks, Turn};
use super::savepoints::promise_of;
use super::{Served, looking};
use crate::daemon::{described, snapshot_view};

/// How long an epoch that ends for a check is waited for: of a job whose epochs don't end, what there is is checked.
const HELD_WITHIN: Duration = Duration::from_secs(10);

/// What a job is told that is to begin again.
pub(super) fn wanted(request: RecoverRequest) -> Command {
    Command::Epochs(match request {
        RecoverRequest {
            from_nothing: true, ..
        } => EpochsCommand::GoBackTo(None),
        RecoverRequest {
            from_epoch: Some(epoch),
            ..
        } => EpochsCommand::GoBackTo(Some(Epoch(epoch))),
        RecoverRequest { .. } => EpochsCommand::Retry,
    })
}

impl Served {
    /// The snapshots of a job that is led here; with `check` all that they consist of is read.
    pub(super) async fn look_at_snapshots(&self, job: &str, check: bool) -> Answer<SnapshotsView> {
        let desk = self.desk(job).await?;
        let view = desk.view().await?;
        if check && view.phase == JobPhase::Running {
            let turn = Turn::of(&self.turns, &view, Doing::Checking)?;
            if let Some(seen) = look_at_held(&desk, view, turn, &self.archives).await {
                return seen;
            }
        }
        let mut looks = Looks::begin();
        loop {
            let view = desk.view().await?;
            let kept = kept(&view, &self.archives)?;
            let (place, committed) = (kept.promise.place.to_string(), kept.committed);
            let seen = looking(move || kept.look(check)).await??;
            // Of a job that runs, what was the newest one may have been followed by others while it was read.
            match gone(&seen) {
                Some(epoch) if looks.go_on(epoch) => {}
                Some(epoch) if newest(&desk.view().await?) != Some(epoch) => {
                    let what = format!(
                        "the snapshots of {job} are followed by others before they are read"
                    );
                    let error = Error::new(ErrorCode::WrongState, what);
                    return Err(error
                        .hint("try again; epochs that end less often leave more time")
                        .into());
                }
                _ => return Ok(snapshots_view(&view, place, committed, (check, &seen))),
            }
        }
    }

    /// Has the hosts of the cluster keep snapshots in memory, if some are to be there.
    pub(super) async fn have_place(&self, place: &Place) -> Result<(), Error> {
        match place.is_in_memory() {
            true => ardea_grid::cluster::want(&*self.jobs.state, &self.shelf).await,
            false => Ok(()),
        }
    }
}

/// Reads all of a job's snapshots, one of which is held meanwhile, as that takes longer than it is the newest one; none if no epoch ends for
/// it soon, or somebody has let it go.
async fn look_at_held(
    desk: &JobDesk,
    view: JobView,
    turn: Turn,
    archives: &Archives,
) -> Option<Answer<SnapshotsView>> {
    let held = Held::within(HELD_WITHIN, (desk.clone(), view), turn).await?;
    let epoch = held.epoch().0;
    let seen = async {
        let view = desk.view().await?;
        let kept = Kept {
            held: Some(epoch),
            ..kept(&view, archives)?
        };
        let (place, committed) = (kept.promise.place.to_string(), kept.committed);
        let seen = looking(move || kept.look(true)).await??;
        let is_whole = seen.iter().all(|it| it.report.is_ok());
        let told = snapshots_view(&view, place, committed, (true, &seen));
        Answer::Ok((is_whole, told))
    };
    match seen.await {
        Ok((false, _)) if !held.stays().await => None,
        seen => Some(seen.map(|(_, told)| told)),
    }
}

/// Returns the snapshots of a job as the REST interface shows them; `checked` tells whether all of
/// their bytes were read.
fn snapshots_view(
    view: &JobView,
    folder: String,
    committed: Option<u64>,
    (checked, snapshots): (bool, &[LookedSnapshot]),
) -> SnapshotsView {
    SnapshotsView {
        job: view.job.name.clone(),
        folder,
        state: match described::leader_changes(view) {
            true => "its leader is changing".to_string(),
            false => described::summary(view).phase.as_str().to_string(),
        },
        held_by: None,
        committed,
        checked,
        snapshots: snapshots.iter().map(snapshot_view).collect(),
    }
}

/// Returns the epoch of a snapshot that should be there, and is not.
fn gone(seen: &[LookedSnapshot]) -> Option<Epoch> {
    let is_gone = |it: &&LookedSnapshot| {
        let error = it.report.as_ref().err();
        error.is_some_and(|error| error.code() == ErrorCode::NoSuchSnapshot)
    };
    seen.iter().find(is_gone).map(|it| it.epoch)
}

fn newest(view: &JobView) -> Option<Epoch> {
    let epochs = view.epochs.as_ref()?;
    epochs.committed.map(Epoch)
}

fn kept(view: &JobView, archives: &Archives) -> Result<Kept, Error> {
    let promise = promise_of(view)?;
    let epochs = view.epochs.as_ref();
    Ok(Kept {
        told: archives.told(&view.job),
        shelter: archives.shelter(),
        job: view.job.clone(),
        promise,
        snapshots: epochs.map_or_else(Vec::new, |epochs| epochs.snapshots.clone()),
        committed: epochs.and_then(|epochs| epochs.committed),
        held: None,
    })
}
