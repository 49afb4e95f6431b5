//! The end of a job on this machine.

use ardea_coordination::control::{JobRef, Order};
use ardea_core::{ErrorCode, Result};

use super::folders::JobFolder;
use super::job::{RunnerJob, superseded};
use super::leftovers;
use super::records::{self, cannot};
use super::recover::Locked;
use super::{Runner, blocking, now_ms};

impl RunnerJob {
    /// Stops all containers, and has none started any more. What they wrote is kept for a while; nothing else is left.
    pub(crate) async fn kill(&self, order: Order) -> Result<()> {
        let job = self.clone();
        let ids = blocking(move || {
            let _lock = job.folder.lock()?;
            let mut file = match job.file_for(order.epoch) {
                Ok(file) if order < file.newest => {
                    return Err(superseded("a newer call was heard"));
                }
                Ok(file) => file,
                // That it was killed before is no reason not to look whether something is left.
                Err(error) => match job.file()? {
                    Some(file) if file.killed_at.is_some() && order >= file.newest => file,
                    _ => return Err(error),
                },
            };
            file.newest = order;
            file.wanted.clear();
            file.killed_at.get_or_insert_with(now_ms);
            job.folder.set_job(&file)?;
            job.folder.containers()
        })
        .await?;
        let stopped = self.for_each(ids.clone(), |job, id| async move {
            let folder = job.folder.container(id);
            let lock = folder.clone();
            let _lock = blocking(move || lock.lock()).await?;
            if let Some((run, Some(process))) =
                job.runner.look(&job.folder, id, Locked::Yes).await?
                && !process.has_ended()
            {
                let grace = job.runner.0.config.stop_grace;
                job.stop(id, run, process, grace).await?;
            }
            Ok(())
        });
        stopped.await?;
        let folder = self.folder.clone();
        blocking(move || {
            leftovers::end_all(&leftovers::any_container(folder.path())).map_err(|error| {
                let code = ErrorCode::SchedulerUnavailable;
                cannot(code, "end what was left of", folder.path(), error)
            })?;
            // How its containers have ended stays as well: others may just be reading it.
            let works = ids.into_iter().map(|id| folder.container(id).work());
            works
                .into_iter()
                .try_for_each(|work| records::remove(&work))
        })
        .await
    }
}

impl Runner {
    /// Ends what is here of a job that is over, as it is for those who have heard that it was killed.
    ///
    /// # Errors
    ///
    /// When something can't be ended or removed.
    pub async fn end(&self, job: &JobRef) -> Result<()> {
        let folder = JobFolder::of(&self.0.config.folder, job);
        let Some(file) = blocking(move || folder.job()).await? else {
            return Ok(());
        };
        let (job, _events) = self.job(file.launch).await?;
        job.kill(file.newest).await
    }
}
