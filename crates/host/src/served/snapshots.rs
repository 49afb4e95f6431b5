//! The snapshots of jobs with a guarantee, and the way out of safe mode.

use std::time::Duration;

use ardea_api::{Answer, RecoverRequest, SnapshotsView};
use ardea_archive::{Archives, Kept, Place};
use ardea_control::{Command, EpochsCommand, JobPhase};
use ardea_core::{Epoch, Error, ErrorCode};
use ardea_master::{JobDesk, JobView};
use tokio::time::timeout;

use super::savepoints::{Looks, Turn, forget, hold, promise_of};
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
        // To read all of a snapshot takes longer than it is the newest one.
        if check
            && view.phase == JobPhase::Running
            && let Ok(turn) = Turn::of(&self.saving, &view)
        {
            let (archives, held) = (self.archives.clone(), desk.clone());
            let looking = tokio::spawn(async move {
                let seen = look_at_held(&held, &view, &archives).await;
                drop(turn);
                seen
            });
            if let Ok(Some(seen)) = looking.await {
                return seen;
            }
        }
        let looks = Looks::begin();
        let gone = ErrorCode::NoSuchSnapshot.as_str();
        loop {
            let kept = kept(&desk.view().await?, &self.archives)?;
            let seen = looking(move || kept.look(check)).await??;
            // Of a job that runs, what was the newest one may have been followed by others while it was read.
            let mut damages = seen.snapshots.iter().filter_map(|it| it.damage.as_ref());
            if !damages.any(|it| it.code == gone) || !looks.go_on() {
                return Ok(seen);
            }
            let now = desk.view().await?;
            if now.epochs.and_then(|epochs| epochs.committed) == seen.committed {
                return Ok(seen);
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

/// Reads all of a job's snapshots, one of which is held meanwhile; none if no epoch ends for that soon, and so none is held.
async fn look_at_held(
    desk: &JobDesk,
    view: &JobView,
    archives: &Archives,
) -> Option<Answer<SnapshotsView>> {
    let held = timeout(HELD_WITHIN, hold(desk, view)).await;
    let held = held.ok()?.ok()??;
    let seen = async {
        let now = desk.view().await?;
        let kept = Kept {
            held: Some(held.epoch.0),
            ..kept(&now, archives)?
        };
        Answer::Ok(looking(move || kept.look(true)).await??)
    };
    let seen = seen.await;
    forget(desk, held.epoch).await;
    Some(seen)
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
        state: described::summary(view).phase.as_str().to_string(),
    })
}
