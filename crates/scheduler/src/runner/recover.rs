//! Records that are damaged, or gone: put aside, told, and made anew of what else is known.
//!
//! A container's own process is found by its environment, which says whose and which life it is, so it goes on as if nothing had
//! happened. Where there is none the container is started anew as one that has died, after all that its lives have left behind has been
//! ended: so there are never two lives of it. What is wanted of a job is what the lives of its containers were started for.

use std::path::{Path, PathBuf};

use ardea_coordination::control::{ContainerRequest, Order};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{Error, ErrorCode, Result};

use super::folders::JobFolder;
use super::job::RunnerJob;
use super::leftovers::{self, OwnProcess};
use super::records::{self, Found, JobFile, RunFile, cannot};
use super::{Inner, Runner};
use crate::ContainerEvent;

/// How many remarks on a job are kept for whoever asks for it next.
const MOST_REMARKS: usize = 100;

/// Whether whoever looks at a container has locked it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Locked {
    /// Nobody else changes it meanwhile.
    Yes,
    /// Somebody else may.
    No,
}

impl Runner {
    /// A container's latest life; none if it had none, or if nothing is known of it. Blocks.
    pub(super) fn life(
        &self,
        job: &JobFolder,
        id: ContainerId,
        locked: Locked,
    ) -> Result<Option<RunFile>> {
        let container = job.container(id);
        match container.run()? {
            Found::Whole(run) => return Ok(Some(run)),
            Found::Nothing if !container.has_lived() => return Ok(None),
            _ => {}
        }
        let lock = match locked {
            Locked::Yes => None,
            Locked::No => container.try_lock()?,
        };
        let is_locked = locked == Locked::Yes || lock.is_some();
        match container.run()? {
            Found::Whole(run) => Ok(Some(run)),
            found if is_locked => self.recover(job, id, found),
            // Whoever has it mends the record, or is just writing it: nothing is changed here. A process that runs is known all the same, or
            // else it would be taken for one to be started anew.
            _ => self.unrecorded(job, id),
        }
    }

    /// What the record of a container's process would say, if one runs.
    fn unrecorded(&self, job: &JobFolder, id: ContainerId) -> Result<Option<RunFile>> {
        let container = job.container(id);
        let own = leftovers::own_process(container.path()).map_err(|error| {
            let code = ErrorCode::SchedulerUnavailable;
            cannot(code, "look for the process of", container.path(), error)
        })?;
        own.map(|own| self.run_file(job, id, own)).transpose()
    }

    /// Makes a container's record anew, of the process that runs. Under its lock.
    fn recover(
        &self,
        job: &JobFolder,
        id: ContainerId,
        found: Found<RunFile>,
    ) -> Result<Option<RunFile>> {
        let container = job.container(id);
        let path = container.run_path();
        let run = self.unrecorded(job, id)?;
        let what = match found {
            Found::Damaged(why) => {
                let aside = self.0.put_aside(&path)?;
                format!("{}; it is {} now", why.without_hint(), aside.display())
            }
            // That there is nothing any more is news once, and nothing to a container that has ended.
            _ if run.is_none() => return Ok(None),
            _ => format!("{} is gone", path.display()),
        };
        let then = match &run {
            Some(run) => {
                container.set_run(run)?;
                format!(
                    "process {} is its own, as it says itself",
                    run.process.pid()
                )
            }
            None => "no process of it runs".to_string(),
        };
        self.0.remark(job, Some(id), format!("{what}, and {then}"));
        Ok(run)
    }

    fn run_file(&self, job: &JobFolder, id: ContainerId, own: OwnProcess) -> Result<RunFile> {
        Ok(RunFile {
            incarnation: own.incarnation,
            // For which call it was started is not known: it is not started again for one that was heard.
            asked: match records::look::<JobFile>(&job.job_path())? {
                Found::Whole(file) => file.newest,
                _ => Order::default(),
            },
            process: own.process,
            stderr_from: 0,
            cgroup: self.0.limits.existing(&group_name(job, id)),
            request: own.request,
        })
    }

    /// The containers that should be there, and the highest mastership that was heard, as far as the containers tell. A working folder
    /// is removed when a container is not wanted any more.
    fn wanted_of_containers(&self, job: &JobFolder) -> Result<(Order, Vec<ContainerRequest>)> {
        let mut newest = Order::default();
        let mut wanted = Vec::new();
        for id in job.containers()? {
            let Some(run) = self.life(job, id, Locked::No)? else {
                continue;
            };
            newest.epoch = newest.epoch.max(run.asked.epoch);
            if job.container(id).work().is_dir() {
                wanted.push(run.request.unwrap_or(ContainerRequest {
                    id,
                    required: Resources::ZERO,
                    attributes: Default::default(),
                }));
            }
        }
        Ok((newest, wanted))
    }

    /// The containers that should be there of a job; none if it was killed. Changes nothing of the job. Blocks.
    pub(super) fn wanted(&self, job: &JobFolder) -> Result<Vec<ContainerRequest>> {
        match records::look::<JobFile>(&job.job_path())? {
            Found::Whole(file) => Ok(file.wanted),
            Found::Nothing | Found::Damaged(_) => Ok(self.wanted_of_containers(job)?.1),
        }
    }
}

impl RunnerJob {
    /// What is wanted of the job. Under the job's lock. Blocks.
    pub(super) fn file(&self) -> Result<Option<JobFile>> {
        let (job, path) = (&self.folder, self.folder.job_path());
        let found = records::look(&path)?;
        let what = match found {
            Found::Whole(file) => return Ok(Some(file)),
            Found::Nothing if !self.has_containers()? => return Ok(None),
            Found::Nothing => format!("{} is gone", path.display()),
            Found::Damaged(why) => {
                let aside = self.runner.0.put_aside(&path)?;
                format!("{}; it is {} now", why.without_hint(), aside.display())
            }
        };
        let (newest, wanted) = self.runner.wanted_of_containers(job)?;
        let ids: Vec<String> = wanted.iter().map(|it| it.id.to_string()).collect();
        let file = JobFile {
            launch: (*self.launch).clone(),
            newest,
            wanted,
            killed_at: None,
        };
        job.set_job(&file)?;
        let then = match &ids[..] {
            [] => "no container of it is here".to_string(),
            ids => format!("it is written anew with containers {}", ids.join(", ")),
        };
        self.runner
            .0
            .remark(job, None, format!("{what}, and {then}"));
        Ok(Some(file))
    }

    /// The same, for those who have not locked the job.
    pub(super) fn file_unlocked(&self) -> Result<Option<JobFile>> {
        match records::look(&self.folder.job_path())? {
            Found::Whole(file) => Ok(Some(file)),
            Found::Nothing if !self.has_containers()? => Ok(None),
            _ => {
                let _lock = self.folder.lock()?;
                self.file()
            }
        }
    }

    fn has_containers(&self) -> Result<bool> {
        let ids = self.folder.containers()?;
        let mut containers = ids.into_iter().map(|id| self.folder.container(id));
        Ok(containers.any(|container| container.has_lived()))
    }
}

impl Inner {
    /// Gives a damaged record another name, which is told by whoever does it.
    pub(super) fn put_aside(&self, path: &Path) -> Result<PathBuf> {
        let aside = records::put_aside(path)?;
        let told = (aside.clone(), records::changed_ms(&aside).unwrap_or(0));
        self.live().told.insert(told);
        Ok(aside)
    }

    /// Tells of damaged records that others on this machine have put aside: they may not be who is asked for the job. Blocks.
    pub(super) fn tell_put_aside(&self, job: &JobFolder) -> Result<()> {
        let containers = job.containers()?.into_iter();
        let records = containers.map(|id| (Some(id), job.container(id).run_path()));
        for (container, path) in records.chain([(None, job.job_path())]) {
            let aside = records::aside(&path);
            let Some(changed) = records::changed_ms(&aside) else {
                continue;
            };
            if self.live().told.insert((aside.clone(), changed)) {
                let text = format!(
                    "{} was damaged; it is {} now",
                    path.display(),
                    aside.display()
                );
                self.remark(job, container, text);
            }
        }
        Ok(())
    }

    /// Tells what a person may want to know of a job here, now or when somebody asks for the job next.
    pub(super) fn remark(&self, job: &JobFolder, container: Option<ContainerId>, text: String) {
        let notice = ContainerEvent::Notice { container, text };
        if self.tell(job, &notice) {
            return;
        }
        let mut live = self.live();
        let remarks = live.remarks.entry(job.clone()).or_default();
        if remarks.len() < MOST_REMARKS && !remarks.contains(&notice) {
            remarks.push(notice);
        }
    }

    /// What could not be done about a job, or a container of it, and hinders no other.
    pub(super) fn remark_failure(&self, job: &JobFolder, id: Option<ContainerId>, error: &Error) {
        self.remark(job, id, error.to_string());
    }
}

/// The name of a container's control group.
pub(super) fn group_name(job: &JobFolder, id: ContainerId) -> String {
    let job = job.path().file_name().unwrap_or_default();
    format!("ardea-{}-{id}", job.to_string_lossy())
}
