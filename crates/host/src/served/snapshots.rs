//! The snapshots of jobs with a guarantee, and the way out of safe mode.

use ardea_api::{Answer, RecoverRequest, SnapshotsView};
use ardea_archive::{Kept, Place};
use ardea_control::{Command, EpochsCommand};
use ardea_core::{Epoch, Error, ErrorCode};
use ardea_master::JobView;

use super::savepoints::{Looks, promise_of};
use super::{Served, looking};
use crate::described;

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
        let looks = Looks::begin();
        let gone = ErrorCode::NoSuchSnapshot.as_str();
        loop {
            let kept = self.kept(&desk.view().await?)?;
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

    fn kept(&self, view: &JobView) -> Result<Kept, Error> {
        let promise = promise_of(view)?;
        let epochs = view.epochs.as_ref();
        Ok(Kept {
            told: self.archives.told(&view.job),
            shelter: self.archives.shelter(),
            job: view.job.clone(),
            promise,
            snapshots: epochs.map_or_else(Vec::new, |epochs| epochs.snapshots.clone()),
            committed: epochs.and_then(|epochs| epochs.committed),
            state: described::summary(view).phase.as_str().to_string(),
        })
    }
}
