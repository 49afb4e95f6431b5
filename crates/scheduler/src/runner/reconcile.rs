//! Reconciliation of a container with the newest request: starts the container, leaves it running,
//! or stops it. Runs under the container's lock.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use ardea_coordination::control::{ContainerRequest, Order, WORKER_START_VARIABLE};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_output::OUTPUT_VARIABLE;

use super::folders::ContainerFolder;
use super::job::{RunnerJob, superseded};
use super::orphans::{self, MARK_VARIABLE};
use super::process::ProcessHandle;
use super::record_then_start::{GatedProcess, Start};
use super::records::{self, RunFile, cannot};
use super::recover::{Locked, group_name};
use super::{blocking, ending, limits, now_ms, output, watch};
use crate::{ContainerEvent, LogFile, Unpacked};

/// The maximum time for the end of a killed process. It is exceeded only if a disk does not
/// respond.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The grace period of a process that is being replaced. It is short, because such a process often
/// hangs and the job waits for the new one.
const REPLACE_GRACE: Duration = Duration::from_secs(1);

impl RunnerJob {
    /// Reconciles a container with the newest call. A container that has died is not started twice
    /// for one call, because the leader decides about its restart.
    pub(super) async fn reconcile(&self, id: ContainerId, floor: u64) -> Result<()> {
        let _lock = self.lock(id).await?;
        let job = self.clone();
        let Some(file) = blocking(move || job.file_unlocked()).await? else {
            return Ok(());
        };
        let wanted = file.wanted(id).filter(|_| file.killed_at.is_none());
        let found = self
            .runner
            .find_process(&self.folder, id, Locked::Yes)
            .await?;
        let latest = found.as_ref().map(|(run, _)| run.clone());
        let alive = found.and_then(|(run, process)| {
            let process = process.filter(|process| !process.has_ended())?;
            Some((run, process))
        });
        match (wanted, alive) {
            (Some(_), Some((run, process))) => {
                // Another runner on this machine may have started the container.
                self.runner.watch(&self.folder, id, run, process);
                Ok(())
            }
            (Some(_), None) if latest.as_ref().is_some_and(|run| run.asked >= file.newest) => {
                Ok(())
            }
            (Some(request), None) => {
                let started = self.start(file.newest, request.clone(), floor, latest);
                started.await.map(|_| ())
            }
            (None, alive) => {
                if let Some((run, process)) = alive {
                    let grace = self.runner.0.config.stop_grace;
                    self.stop(id, run, process, grace).await?;
                }
                // The record with the incarnation stays, because a container of this id may be
                // requested again.
                let work = self.folder.container(id).work();
                blocking(move || records::remove(&work)).await
            }
        }
    }

    /// Stops the process and starts it again, unless that was done for this call or a newer call.
    /// Returns the incarnation.
    pub(super) async fn start_again(
        &self,
        order: Order,
        request: ContainerRequest,
        floor: u64,
    ) -> Result<u64> {
        let id = request.id;
        let _lock = self.lock(id).await?;
        let job = self.clone();
        let killed = blocking(move || job.file_unlocked()).await?;
        if killed.is_none_or(|file| file.wanted(id).is_none()) {
            return Err(superseded("the container is no longer requested"));
        }
        let found = self
            .runner
            .find_process(&self.folder, id, Locked::Yes)
            .await?;
        let latest = found.as_ref().map(|(run, _)| run.clone());
        if let Some(run) = latest.as_ref().filter(|run| run.asked >= order) {
            return Ok(run.incarnation);
        }
        if let Some((run, Some(process))) = found
            && !process.has_ended()
        {
            let grace = self.runner.0.config.stop_grace.min(REPLACE_GRACE);
            self.stop(id, run, process, grace).await?;
        }
        self.start(order, request, floor, latest).await
    }

    /// Stops an incarnation: sends SIGTERM, and kills the process after the period `grace`. On
    /// return no process of the incarnation is left.
    pub(super) async fn stop(
        &self,
        id: ContainerId,
        run: RunFile,
        process: ProcessHandle,
        grace: Duration,
    ) -> Result<()> {
        // The caller expects an exit event, even if this runner does not watch the process yet.
        if let Some(again) = run.process.open().ok().flatten() {
            self.runner.watch(&self.folder, id, run.clone(), again);
        }
        process.terminate();
        let ended = tokio::time::timeout(grace, watch::wait_for(&process)).await;
        if ended.is_err() {
            process.kill_group();
            let ended = tokio::time::timeout(KILL_TIMEOUT, watch::wait_for(&process)).await;
            if ended.is_err() {
                return Err(Error::new(
                    ErrorCode::SchedulerUnavailable,
                    format!(
                        "process {} of container {id} can't be ended",
                        run.process.pid()
                    ),
                )
                .hint("it waits for a disk or a network file system that does not answer"));
            }
        }
        let folder = self.folder.container(id);
        blocking(move || {
            ending::record_end(&folder, &run, Some(&process))?;
            ending::sweep(&folder, &run)
        })
        .await
    }

    /// Starts a container that is not running. The container's lock must be held.
    async fn start(
        &self,
        asked: Order,
        request: ContainerRequest,
        floor: u64,
        latest: Option<RunFile>,
    ) -> Result<u64> {
        let id = request.id;
        let failed = |error: Error| {
            let what = format!(
                "container {id} of {} could not be started",
                self.launch.job()
            );
            Error::new(error.code(), what).because(error)
        };
        let package = self.package().await.map_err(failed)?;
        let job = self.clone();
        let started = blocking(move || {
            let folder = job.folder.container(id);
            let ended = folder.latest_end()?.map(|end| end.incarnation);
            let before = latest.map(|run| run.incarnation).max(ended);
            let after = before.map_or(0, |before| before + 1);
            let incarnation = now_ms().max(after).max(floor);
            if folder.has_lived() {
                job.end_leftovers(id)?;
            }
            job.spawn(asked, &request, incarnation, &package)
        });
        let (run, process) = started.await.map_err(failed)?;
        let incarnation = run.incarnation;
        let running = watch::running(&self.runner.0.config.host, id, &run);
        let event = ContainerEvent::Started(running);
        self.runner.0.send_event(&self.folder, &event);
        self.runner.watch(&self.folder, id, run, process);
        Ok(incarnation)
    }

    fn end_leftovers(&self, id: ContainerId) -> Result<()> {
        let folder = self.folder.container(id);
        let ended = orphans::kill_all(&orphans::container_mark_prefix(folder.path()));
        ended.map_err(|error| {
            let code = ErrorCode::StartFailed;
            cannot(code, "end the leftover processes of", folder.path(), error)
        })
    }

    /// Starts a container's process, and records the process before the program begins.
    fn spawn(
        &self,
        asked: Order,
        request: &ContainerRequest,
        incarnation: u64,
        package: &Unpacked,
    ) -> Result<(RunFile, ProcessHandle)> {
        let inner = &self.runner.0;
        let (config, program) = (&inner.config, &self.launch.definition.program);
        let executable = package.executable(program)?;
        let folder = self.folder.container(request.id);
        let work = folder.work();
        prepare_work_folder(&work, package.folder())?;
        let open = |file| output::open(folder.path(), file, &config.output);
        let (stdout, _) = open(LogFile::Stdout)?;
        let (stderr, stderr_from) = open(LogFile::Stderr)?;
        let start = Start {
            executable: &executable,
            arguments: &program.arguments,
            folder: &work,
            environment: self.environment(&folder, request, incarnation)?,
            stdout,
            stderr,
        };
        let at_gate = package.spawning(|| GatedProcess::new(start))??;
        let mark = at_gate.mark().clone();
        let cgroup = inner
            .limits
            .group(&group_name(&self.folder, request.id), &request.required)?;
        if let Some(group) = &cgroup {
            limits::join(group, mark.pid())?;
        }
        let process = mark
            .open()
            .ok()
            .flatten()
            .ok_or_else(|| Error::new(ErrorCode::StartFailed, "its process ended at once"))?;
        let mut run = RunFile {
            incarnation,
            asked,
            process: mark,
            stderr_from,
            cgroup,
            request: Some(request.clone()),
        };
        folder.set_run(&run)?;
        if let Err(error) = at_gate.open() {
            // The program was not started, so a retry must not count as a second start.
            run.asked = Order::default();
            folder.set_run(&run)?;
            return Err(error);
        }
        Ok((run, process))
    }

    fn environment(
        &self,
        folder: &ContainerFolder,
        request: &ContainerRequest,
        incarnation: u64,
    ) -> Result<Vec<(String, String)>> {
        let host = &self.runner.0.config.host;
        let start = self.launch.worker_start(request, incarnation, host);
        let start = serde_json::to_string(&start).map_err(|error| {
            Error::new(
                ErrorCode::Internal,
                "the start parameters of a worker can't be serialized",
            )
            .because(error)
        })?;
        let mut environment: Vec<_> = self.launch.environment.clone().into_iter().collect();
        environment.push((WORKER_START_VARIABLE.to_string(), start));
        let mark = orphans::mark(folder.path(), incarnation);
        environment.push((MARK_VARIABLE.to_string(), mark));
        let output = output::start(folder.path(), self.runner.0.config.output);
        environment.push((OUTPUT_VARIABLE.to_string(), output.to_variable()?));
        Ok(environment)
    }

    /// Returns the job's unpacked package. It is fetched on the first use, and again if its files
    /// were removed.
    async fn package(&self) -> Result<Unpacked> {
        let program = &self.launch.definition.program;
        let mut known = self.package.lock().await;
        if let Some(package) = known.as_ref()
            && package.executable(program).is_ok()
        {
            return Ok(package.clone());
        }
        let programs = &self.runner.0.programs;
        let package = programs.unpacked(program, &self.launch.packages).await?;
        *known = Some(package.clone());
        Ok(package)
    }

    async fn lock(&self, id: ContainerId) -> Result<File> {
        let folder = self.folder.container(id);
        blocking(move || folder.lock()).await
    }
}

/// Creates the working folder of a container, with links to the package's files by name.
pub(crate) fn prepare_work_folder(work: &Path, package: &Path) -> Result<()> {
    let failed = |error| cannot(ErrorCode::StartFailed, "make", work, error);
    std::fs::create_dir_all(work).map_err(failed)?;
    let files = std::fs::read_dir(package)
        .map_err(|error| cannot(ErrorCode::StartFailed, "read", package, error))?;
    for file in files {
        let file = file.map_err(failed)?;
        let link = work.join(file.file_name());
        // A file created by an earlier incarnation stays.
        if link.symlink_metadata().is_err() {
            std::os::unix::fs::symlink(file.path(), &link).map_err(failed)?;
        }
    }
    Ok(())
}
