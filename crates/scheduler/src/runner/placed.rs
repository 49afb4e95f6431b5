//! Containers on this machine, as whoever places containers on machines sees them: those of one job, and those of all.

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

impl Runner {
    /// What is here of all jobs: the containers that should be, and those that have yet to stop.
    pub(crate) async fn holds(&self) -> Result<Vec<HeldContainer>> {
        let runner = self.clone();
        blocking(move || {
            let mut holds = Vec::new();
            for folder in JobFolder::all(&runner.0.config.folder)? {
                // A job that can't be looked at hinders no other.
                holds.extend(runner.holds_of(&folder).unwrap_or_default());
            }
            Ok(holds)
        })
        .await
    }

    /// The jobs of which there should be containers here, or have yet to stop.
    ///
    /// # Errors
    ///
    /// When the runner's folder can't be read. A job that can't be looked at is passed over.
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
            // A working folder is removed when a container has stopped that is not wanted any more.
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
            // That it is there is what counts.
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
