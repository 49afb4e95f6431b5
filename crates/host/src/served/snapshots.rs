//! The snapshots of jobs with a guarantee, and the way out of safe mode.

use ardea_api::{Answer, RecoverRequest, SnapshotsView};
use ardea_archive::{Kept, Promise};
use ardea_control::{Command, EpochsCommand};
use ardea_core::{Epoch, Error, ErrorCode};
use ardea_master::JobView;

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
        let view = self.desk(job).await?.view().await?;
        let kept = self.kept(&view)?;
        Ok(looking(move || kept.look(check)).await??)
    }

    fn kept(&self, view: &JobView) -> Result<Kept, Error> {
        let promise = Promise::of(&view.submitted.definition)?;
        let epochs = view.epochs.as_ref();
        let promise = promise.ok_or_else(|| {
            let what = format!(
                "the job {:?} promises nothing, and has no snapshots",
                view.job.name
            );
            Error::new(ErrorCode::WrongState, what)
                .hint("submit it with --set guarantee=exactly-once")
        })?;
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
