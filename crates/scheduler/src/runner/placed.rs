//! One job's containers on this machine, as whoever places containers on machines sees them.

use ardea_control::ContainerRequest;
use ardea_core::Result;
use ardea_packing::ContainerId;
use serde::{Deserialize, Serialize};

use super::blocking;
use super::job::RunnerJob;
use super::recover::Locked;
use crate::RunningContainer;

/// A container that a runner keeps, whether it runs or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    /// What was asked for.
    pub(crate) request: ContainerRequest,
    /// Its latest life; zero if it has had none.
    pub(crate) incarnation: u64,
    /// Its process, if it runs.
    pub(crate) running: Option<RunningContainer>,
}

impl RunnerJob {
    /// Gives up a container that was started elsewhere meanwhile: stops its life of that number, or an older one.
    pub(crate) async fn release(&self, id: ContainerId, up_to: u64) -> Result<()> {
        let job = self.clone();
        let replaced = blocking(move || {
            let _lock = job.folder.lock()?;
            let latest = job.runner.life(&job.folder, id, Locked::No)?;
            if latest.is_some_and(|run| run.incarnation > up_to) {
                return Ok(false);
            }
            if let Some(mut file) = job.file()? {
                file.wanted.retain(|wanted| wanted.id != id);
                job.folder.set_job(&file)?;
            }
            Ok(true)
        })
        .await?;
        match replaced {
            true => self.settle(id, 0).await,
            false => Ok(()),
        }
    }

    /// The containers that should be here, and those that are.
    pub(crate) async fn held(&self) -> Result<Vec<Held>> {
        let job = self.clone();
        blocking(move || {
            let wanted = job.file_unlocked()?.map(|file| file.wanted);
            let mut held = Vec::new();
            for request in wanted.unwrap_or_default() {
                let id = request.id;
                let run = job.glance(id);
                held.push(Held {
                    request,
                    incarnation: run.as_ref().map_or(0, |run| run.incarnation),
                    running: run.and_then(|run| job.if_running(id, &run)),
                });
            }
            Ok(held)
        })
        .await
    }
}
