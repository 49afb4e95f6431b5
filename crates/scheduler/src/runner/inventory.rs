//! The inventories of containers on this machine, for placement: that of one job, and that of all
//! jobs.

use std::collections::BTreeMap;

use ardea_coordination::control::{ContainerRequest, JobRef};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::Result;
use serde::{Deserialize, Serialize};

use super::folders::JobFolder;
use super::job::RunnerJob;
use super::recover::Locked;
use super::{Runner, blocking};
use crate::{HeldContainer, RunningContainer};

/// A container assigned to a runner, running or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerEntry {
    /// The requested container.
    pub(crate) request: ContainerRequest,
    /// The container's latest incarnation; zero if the container was never started.
    pub(crate) incarnation: u64,
    /// The container's process, if it runs.
    pub(crate) running: Option<RunningContainer>,
}

impl Runner {
    /// Returns the containers of all jobs: the requested ones, and those that still have to stop.
    pub(crate) async fn holds(&self) -> Result<Vec<HeldContainer>> {
        let runner = self.clone();
        blocking(move || {
            let mut holds = Vec::new();
            for folder in JobFolder::all(&runner.0.config.folder)? {
                // An unreadable job does not affect others.
                holds.extend(runner.holds_of(&folder).unwrap_or_default());
            }
            Ok(holds)
        })
        .await
    }

    /// Returns the jobs with containers that are requested on this machine or still have to stop.
    ///
    /// # Errors
    ///
    /// If the runner's folder can't be read. Unreadable jobs are skipped.
    pub async fn jobs(&self) -> Result<Vec<JobRef>> {
        let runner = self.clone();
        blocking(move || {
            let folders = JobFolder::all(&runner.0.config.folder)?.into_iter();
            let has_any = |folder: &JobFolder| {
                let held = runner.holds_of(folder);
                held.is_ok_and(|held| !held.is_empty())
            };
            let held = folders.filter(has_any);
            let files = held.filter_map(|folder| folder.job().ok()?);
            Ok(files.map(|file| file.launch.job().clone()).collect())
        })
        .await
    }

    fn holds_of(&self, folder: &JobFolder) -> Result<Vec<HeldContainer>> {
        let mut requests = self.wanted(folder)?;
        for id in folder.containers()? {
            // The working folder of an unrequested container is removed when it has stopped.
            let is_wanted = requests.iter().any(|request| request.id == id);
            if !is_wanted && folder.container(id).work().is_dir() {
                requests.push(ContainerRequest {
                    id,
                    required: Resources::ZERO,
                    attributes: BTreeMap::new(),
                });
            }
        }
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        requests.sort_by_key(|request| request.id);
        let name = match folder.job() {
            Ok(Some(file)) => file.launch.job().name.clone(),
            // The job's container counts, even if the folder's name must replace the job's name.
            Ok(None) | Err(_) => folder.name(),
        };
        let held = requests.into_iter().map(|request| HeldContainer {
            job: name.clone(),
            request,
        });
        Ok(held.collect())
    }
}

impl RunnerJob {
    /// Removes a container that another machine has started in the meantime. Stops its incarnation
    /// here if that is at most `up_to`.
    pub(crate) async fn release(&self, id: ContainerId, up_to: u64) -> Result<()> {
        let job = self.clone();
        let replaced = blocking(move || {
            let _lock = job.folder.lock()?;
            let latest = job.runner.find_incarnation(&job.folder, id, Locked::No)?;
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
            true => self.reconcile(id, 0).await,
            false => Ok(()),
        }
    }

    /// Returns the job's requested containers and running containers.
    pub(crate) async fn held(&self) -> Result<Vec<ContainerEntry>> {
        let job = self.clone();
        blocking(move || {
            let wanted = job.file_unlocked()?.map(|file| file.wanted);
            let mut held = Vec::new();
            for request in wanted.unwrap_or_default() {
                let id = request.id;
                let run = job.latest_incarnation(id);
                held.push(ContainerEntry {
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
