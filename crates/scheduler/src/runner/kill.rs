//! The end of a job on this machine.

use ardea_coordination::control::{JobRef, Order};
use ardea_core::{ErrorCode, Result};

use super::folders::JobFolder;
use super::job::{RunnerJob, superseded};
use super::orphans;
use super::records::{self, cannot};
use super::recover::Locked;
use super::{Runner, blocking, now_ms};

impl RunnerJob {
    /// Stops all containers of the job, and prevents further starts. The output is retained within
    /// the limits; all other files are removed.
    pub(crate) async fn kill(&self, order: Order) -> Result<()> {
        let job = self.clone();
        let ids = blocking(move || {
            let _lock = job.folder.lock()?;
            let mut file = match job.file_for(order.epoch) {
                Ok(file) if order < file.newest => {
                    return Err(superseded("a newer call was received"));
                }
                Ok(file) => file,
                // A job that was killed before is checked for leftover processes again.
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
            if let Some((run, Some(process))) = job
                .runner
                .find_process(&job.folder, id, Locked::Yes)
                .await?
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
            orphans::kill_all(&orphans::any_container(folder.path())).map_err(|error| {
                let code = ErrorCode::SchedulerUnavailable;
                cannot(code, "end the leftover processes of", folder.path(), error)
            })?;
            // The records `end.json` are retained too, because they may be read concurrently.
            let works = ids.into_iter().map(|id| folder.container(id).work());
            works
                .into_iter()
                .try_for_each(|work| records::remove(&work))
        })
        .await
    }
}

impl Runner {
    /// Ends a finished job on this machine, as a kill order would do.
    ///
    /// # Errors
    ///
    /// If a container can't be ended or a file can't be removed.
    pub async fn end(&self, job: &JobRef) -> Result<()> {
        let folder = JobFolder::of(&self.0.config.folder, job);
        let Some(file) = blocking(move || folder.job()).await? else {
            return Ok(());
        };
        let (job, _events) = self.job(file.launch).await?;
        job.kill(file.newest).await
    }
}
