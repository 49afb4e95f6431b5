//! Recovery of damaged or missing records. A damaged record is renamed and reported, and its
//! content is rebuilt from other sources.
//!
//! A container's main process is found by its environment, which contains the container and the
//! incarnation, and continues unaffected. A container without a main process counts as ended. It is
//! restarted after all leftover processes of its incarnations were killed, so two incarnations
//! never run at once. A job's requested containers are recovered from the records of their
//! incarnations.

use std::path::{Path, PathBuf};

use ardea_coordination::control::{ContainerRequest, Order};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{Error, ErrorCode, Result};

use super::folders::JobFolder;
use super::job::RunnerJob;
use super::orphans::{self, MainProcess};
use super::records::{self, JobFile, RecordState, RunFile, cannot};
use super::{Inner, Runner};
use crate::ContainerEvent;

/// The maximum number of notices retained for the job's next subscriber.
const MOST_REMARKS: usize = 100;

/// A statement of the caller about the container's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Locked {
    /// The caller holds the container's lock.
    Yes,
    /// The caller does not hold the lock, so the container may change concurrently.
    No,
}

impl Runner {
    /// Returns a container's latest incarnation. Returns `None` if the container was never started
    /// or its incarnation is unknown. Blocks.
    pub(super) fn find_incarnation(
        &self,
        job: &JobFolder,
        id: ContainerId,
        locked: Locked,
    ) -> Result<Option<RunFile>> {
        let container = job.container(id);
        match container.run()? {
            RecordState::Valid(run) => return Ok(Some(run)),
            RecordState::Missing if !container.has_lived() => return Ok(None),
            _ => {}
        }
        let lock = match locked {
            Locked::Yes => None,
            Locked::No => container.try_lock()?,
        };
        let is_locked = locked == Locked::Yes || lock.is_some();
        match container.run()? {
            RecordState::Valid(run) => Ok(Some(run)),
            found if is_locked => self.recover(job, id, found),
            // The holder of the lock is writing or repairs the record, so this call changes
            // nothing. It must still find a running process; otherwise the container would be
            // started again.
            _ => self.unrecorded(job, id),
        }
    }

    /// Rebuilds the record of a container's running process, without writing the record.
    fn unrecorded(&self, job: &JobFolder, id: ContainerId) -> Result<Option<RunFile>> {
        let container = job.container(id);
        let own = orphans::find_main_process(container.path()).map_err(|error| {
            let code = ErrorCode::SchedulerUnavailable;
            cannot(code, "look for the process of", container.path(), error)
        })?;
        own.map(|own| self.run_file(job, id, own)).transpose()
    }

    /// Rewrites a container's record from its running process. The container's lock must be held.
    fn recover(
        &self,
        job: &JobFolder,
        id: ContainerId,
        found: RecordState<RunFile>,
    ) -> Result<Option<RunFile>> {
        let container = job.container(id);
        let path = container.run_path();
        let run = self.unrecorded(job, id)?;
        let what = match found {
            RecordState::Damaged(why) => {
                let aside = self.0.put_aside(&path)?;
                format!("{}; it is {} now", why.without_hint(), aside.display())
            }
            // A missing record is reported only if a process runs.
            _ if run.is_none() => return Ok(None),
            _ => format!("{} is gone", path.display()),
        };
        let then = match &run {
            Some(run) => {
                container.set_run(run)?;
                format!(
                    "process {} was identified by its environment",
                    run.process.pid()
                )
            }
            None => "no process of it runs".to_string(),
        };
        self.0.notify(job, Some(id), format!("{what}, and {then}"));
        Ok(run)
    }

    fn run_file(&self, job: &JobFolder, id: ContainerId, own: MainProcess) -> Result<RunFile> {
        Ok(RunFile {
            incarnation: own.incarnation,
            // The call for which the process was started is unknown, so it counts as started for
            // the newest call.
            asked: match records::read_state::<JobFile>(&job.job_path())? {
                RecordState::Valid(file) => file.newest,
                _ => Order::default(),
            },
            process: own.process,
            stderr_from: 0,
            cgroup: self.0.limits.existing(&group_name(job, id)),
            request: own.request,
        })
    }

    /// Recovers the requested containers, and the epoch of the latest leader, from the containers'
    /// folders. A container counts as requested if its working folder exists, because the folder of
    /// an unrequested container is removed.
    fn recover_requests(&self, job: &JobFolder) -> Result<(Order, Vec<ContainerRequest>)> {
        let mut newest = Order::default();
        let mut wanted = Vec::new();
        for id in job.containers()? {
            let Some(run) = self.find_incarnation(job, id, Locked::No)? else {
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

    /// Returns the requested containers of a job; none if the job was killed. Does not change the
    /// job's record. Blocks.
    pub(super) fn wanted(&self, job: &JobFolder) -> Result<Vec<ContainerRequest>> {
        match records::read_state::<JobFile>(&job.job_path())? {
            RecordState::Valid(file) => Ok(file.wanted),
            RecordState::Missing | RecordState::Damaged(_) => Ok(self.recover_requests(job)?.1),
        }
    }
}

impl RunnerJob {
    /// Returns the job's record. A damaged or missing record is recovered first. The job's lock
    /// must be held. Blocks.
    pub(super) fn file(&self) -> Result<Option<JobFile>> {
        let (job, path) = (&self.folder, self.folder.job_path());
        let found = records::read_state(&path)?;
        let what = match found {
            RecordState::Valid(file) => return Ok(Some(file)),
            RecordState::Missing if !self.has_containers()? => return Ok(None),
            RecordState::Missing => format!("{} is gone", path.display()),
            RecordState::Damaged(why) => {
                let aside = self.runner.0.put_aside(&path)?;
                format!("{}; it is {} now", why.without_hint(), aside.display())
            }
        };
        let (newest, wanted) = self.runner.recover_requests(job)?;
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
            ids => format!("it was rewritten with containers {}", ids.join(", ")),
        };
        self.runner
            .0
            .notify(job, None, format!("{what}, and {then}"));
        Ok(Some(file))
    }

    /// Like [`file`](Self::file), for callers that do not hold the job's lock.
    pub(super) fn file_unlocked(&self) -> Result<Option<JobFile>> {
        match records::read_state(&self.folder.job_path())? {
            RecordState::Valid(file) => Ok(Some(file)),
            RecordState::Missing if !self.has_containers()? => Ok(None),
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
    /// Renames a damaged record. Returns the new path, and records that this runner reports the
    /// damage.
    pub(super) fn put_aside(&self, path: &Path) -> Result<PathBuf> {
        let aside = records::put_aside(path)?;
        let told = (aside.clone(), records::changed_ms(&aside).unwrap_or(0));
        self.live().reported.insert(told);
        Ok(aside)
    }

    /// Reports damaged records that other runners on this machine have renamed. Those runners may
    /// have no subscriber to the job. Blocks.
    pub(super) fn report_set_aside(&self, job: &JobFolder) -> Result<()> {
        let containers = job.containers()?.into_iter();
        let records = containers.map(|id| (Some(id), job.container(id).run_path()));
        for (container, path) in records.chain([(None, job.job_path())]) {
            let aside = records::aside(&path);
            let Some(changed) = records::changed_ms(&aside) else {
                continue;
            };
            if self.live().reported.insert((aside.clone(), changed)) {
                let text = format!(
                    "{} was damaged; it is {} now",
                    path.display(),
                    aside.display()
                );
                self.notify(job, container, text);
            }
        }
        Ok(())
    }

    /// Sends a notice about a job to the job's subscribers. Without a subscriber, the notice is
    /// retained for the next one.
    pub(super) fn notify(&self, job: &JobFolder, container: Option<ContainerId>, text: String) {
        let notice = ContainerEvent::Notice { container, text };
        if self.send_event(job, &notice) {
            return;
        }
        let mut live = self.live();
        let remarks = live.remarks.entry(job.clone()).or_default();
        if remarks.len() < MOST_REMARKS && !remarks.contains(&notice) {
            remarks.push(notice);
        }
    }

    /// Reports a failure that concerns a job or container and does not affect others.
    pub(super) fn notify_failure(&self, job: &JobFolder, id: Option<ContainerId>, error: &Error) {
        self.notify(job, id, error.to_string());
    }
}

/// Returns the name of a container's control group.
pub(super) fn group_name(job: &JobFolder, id: ContainerId) -> String {
    let job = job.path().file_name().unwrap_or_default();
    format!("ardea-{}-{id}", job.to_string_lossy())
}
