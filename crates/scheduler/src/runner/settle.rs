//! Makes a container what it should be: started, left alone, or stopped. Under its lock, so that nobody else does it meanwhile.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use ardea_coordination::control::{ContainerRequest, Order, WORKER_START_VARIABLE};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_output::OUTPUT_VARIABLE;

use super::folders::ContainerFolder;
use super::gate::{AtGate, Start};
use super::job::{RunnerJob, superseded};
use super::leftovers::{self, MARK_VARIABLE};
use super::process::ProcessHandle;
use super::records::{self, RunFile, cannot};
use super::recover::{Locked, group_name};
use super::{blocking, ending, limits, now_ms, output, watch};
use crate::{ContainerEvent, LogFile, Unpacked};

/// How long a process that the kernel was told to end is waited for: longer it only takes if its disk does not answer.
const FOR_KERNEL: Duration = Duration::from_secs(10);

/// How long a process may take to end by itself when another is to come in its place: whoever was given up often hangs, and the job waits.
const FOR_ANOTHER: Duration = Duration::from_secs(1);

impl RunnerJob {
    /// Makes a container what the newest call says. One that has died is not started twice for one call: when it is to be started again
    /// is up to the master.
    pub(super) async fn settle(&self, id: ContainerId, floor: u64) -> Result<()> {
        let _lock = self.lock(id).await?;
        let job = self.clone();
        let Some(file) = blocking(move || job.file_unlocked()).await? else {
            return Ok(());
        };
        let wanted = file.wanted(id).filter(|_| file.killed_at.is_none());
        let found = self.runner.look(&self.folder, id, Locked::Yes).await?;
        let latest = found.as_ref().map(|(run, _)| run.clone());
        let alive = found.and_then(|(run, process)| {
            let process = process.filter(|process| !process.has_ended())?;
            Some((run, process))
        });
        match (wanted, alive) {
            (Some(_), Some((run, process))) => {
                // Somebody else on this machine may have started it.
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
                // Its number stays: a container of that name may come back.
                let work = self.folder.container(id).work();
                blocking(move || records::remove(&work)).await
            }
        }
    }

    /// Stops what runs and starts it again, unless that was done for this call or a newer one.
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
            return Err(superseded("the container is not wanted any more"));
        }
        let found = self.runner.look(&self.folder, id, Locked::Yes).await?;
        let latest = found.as_ref().map(|(run, _)| run.clone());
        if let Some(run) = latest.as_ref().filter(|run| run.asked >= order) {
            return Ok(run.incarnation);
        }
        if let Some((run, Some(process))) = found
            && !process.has_ended()
        {
            let grace = self.runner.0.config.stop_grace.min(FOR_ANOTHER);
            self.stop(id, run, process, grace).await?;
        }
        self.start(order, request, floor, latest).await
    }

    /// Stops a life: asks it to end, and makes it after the grace. When it returns nothing of it is left.
    pub(super) async fn stop(
        &self,
        id: ContainerId,
        run: RunFile,
        process: ProcessHandle,
        grace: Duration,
    ) -> Result<()> {
        // Whoever asked for it wants to hear of its end, even if nobody watches it here yet.
        if let Some(again) = run.process.open().ok().flatten() {
            self.runner.watch(&self.folder, id, run.clone(), again);
        }
        process.ask_to_end();
        let ended = tokio::time::timeout(grace, watch::wait_for(&process)).await;
        if ended.is_err() {
            process.kill_group();
            let ended = tokio::time::timeout(FOR_KERNEL, watch::wait_for(&process)).await;
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
            ending::conclude(&folder, &run, Some(&process))?;
            ending::sweep(&folder, &run)
        })
        .await
    }

    /// Starts a container that doesn't run. Under its lock.
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
        self.runner.0.tell(&self.folder, &event);
        self.runner.watch(&self.folder, id, run, process);
        Ok(incarnation)
    }

    fn end_leftovers(&self, id: ContainerId) -> Result<()> {
        let folder = self.folder.container(id);
        let ended = leftovers::end_all(&leftovers::any_life(folder.path()));
        ended.map_err(|error| {
            let code = ErrorCode::StartFailed;
            cannot(code, "end what was left of", folder.path(), error)
        })
    }

    /// Starts a container's process, and writes it down before it begins.
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
        furnish(&work, package.folder())?;
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
        let at_gate = package.spawning(|| AtGate::new(start))??;
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
            // It has not been started, so the next try is not a second one.
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
                "what a worker is told can't be written",
            )
            .because(error)
        })?;
        let mut environment: Vec<_> = self.launch.environment.clone().into_iter().collect();
        environment.push((WORKER_START_VARIABLE.to_string(), start));
        let mark = leftovers::mark(folder.path(), incarnation);
        environment.push((MARK_VARIABLE.to_string(), mark));
        let output = output::start(folder.path(), self.runner.0.config.output);
        environment.push((OUTPUT_VARIABLE.to_string(), output.to_variable()?));
        Ok(environment)
    }

    /// The job's package, which is fetched when it is needed first, and again if it has gone.
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

/// Makes the folder that a container runs in: its own, with the files of the package in it by name.
pub(crate) fn furnish(work: &Path, package: &Path) -> Result<()> {
    let failed = |error| cannot(ErrorCode::StartFailed, "make", work, error);
    std::fs::create_dir_all(work).map_err(failed)?;
    let files = std::fs::read_dir(package)
        .map_err(|error| cannot(ErrorCode::StartFailed, "read", package, error))?;
    for file in files {
        let file = file.map_err(failed)?;
        let link = work.join(file.file_name());
        // What the job itself has put there, in an earlier life, stays.
        if link.symlink_metadata().is_err() {
            std::os::unix::fs::symlink(file.path(), &link).map_err(failed)?;
        }
    }
    Ok(())
}
