//! The snapshots of jobs with a guarantee, and the way out of safe mode.

use std::time::Duration;

use ardea_api::{Answer, RecoverRequest, SnapshotView, SnapshotsView};
use ardea_archive::{Archives, Kept, Place};
use ardea_control::{Command, EpochsCommand, JobPhase};
use ardea_core::{Epoch, Error, ErrorCode};
use ardea_master::{JobDesk, JobView};

use super::holding::{Doing, Held, Looks, Turn};
use super::savepoints::promise_of;
use super::{Served, looking};
use crate::described;

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
            let kept = kept(&desk.view().await?, &self.archives)?;
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
                _ => return Ok(seen),
            }
        }
    }

    /// Has the hosts of the cluster keep snapshots in memory, if some are to be there.
    pub(super) async fn have_place(&self, place: &Place) -> Result<(), Error> {
        match place.is_in_memory() {
            true => ardea_shelter::want(&*self.jobs.state, &self.shelf).await,
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
        let kept = Kept {
            held: Some(epoch),
            ..kept(&desk.view().await?, archives)?
        };
        Answer::Ok(looking(move || kept.look(true)).await??)
    };
    let seen = seen.await;
    let is_whole = |seen: &SnapshotsView| seen.snapshots.iter().all(|it| it.damage.is_none());
    match seen {
        Ok(seen) if !is_whole(&seen) && !held.stays().await => None,
        seen => Some(seen),
    }
}

/// The snapshot that should be there, and is not.
fn gone(seen: &SnapshotsView) -> Option<Epoch> {
    let code = ErrorCode::NoSuchSnapshot.as_str();
    let is_gone = |it: &&SnapshotView| it.damage.as_ref().is_some_and(|it| it.code == code);
    seen.snapshots
        .iter()
        .find(is_gone)
        .map(|it| Epoch(it.epoch))
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
        state: match described::leader_changes(view) {
            true => "its leader is changing".to_string(),
            false => described::summary(view).phase.as_str().to_string(),
        },
    })
}
