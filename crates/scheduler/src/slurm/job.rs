//! One job's scheduler on Slurm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{ContainerRequest, Order};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::commands::{self, QueueState, Queued, slurm_options};
use super::files::{self, Restart};
use super::watch::Watch;
use super::{SLURM_OPTIONS, Slurm};
use crate::runner::folders::JobFolder;
use crate::runner::forget::forget;
use crate::runner::records::{self, JobFile};
use crate::runner::{blocking, now_ms, output, superseded};
use crate::{
    ContainerEvents, LaunchPlan, LogPiece, LogRequest, Pending, RunningContainer, Scheduler,
    container_events,
};

/// The maximum time for Slurm to end a cancelled Slurm job, in addition to Slurm's `KillWait`.
const END_TIMEOUT: Duration = Duration::from_secs(90);

/// The time that a new incarnation may take to start after the old one has ended.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The poll interval for Slurm's queue and the containers' files.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The scheduler of one job. Dropping it ends the watch of the job's containers.
#[derive(Debug)]
pub(super) struct SlurmJob {
    place: Arc<SlurmJobRef>,
    watch: Arc<Watch>,
    watching: JoinHandle<()>,
}

/// A job, with its scheduler and folder.
#[derive(Debug)]
pub(super) struct SlurmJobRef {
    pub(super) slurm: Slurm,
    pub(super) launch: LaunchPlan,
    pub(super) folder: JobFolder,
}

impl SlurmJob {
    /// Finds the job's containers, and starts to watch them.
    pub(super) async fn begin(slurm: Slurm, launch: LaunchPlan) -> Result<(Self, ContainerEvents)> {
        // Everything else requires that Slurm's controller responds.
        commands::queue(&slurm.config).await?;
        let place = Arc::new(SlurmJobRef {
            folder: JobFolder::of(&slurm.config.folder, launch.job()),
            slurm,
            launch,
        });
        let (feed, events) = container_events();
        let watch = Arc::new(Watch::new(Arc::clone(&place), feed));
        let watched = Arc::clone(&watch);
        let watching = tokio::spawn(async move { watched.run().await });
        let job = SlurmJob {
            place,
            watch,
            watching,
        };
        Ok((job, events))
    }
}

impl Drop for SlurmJob {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl SlurmJobRef {
    /// Returns the name of a container's Slurm job.
    pub(super) fn name_of(&self, id: ContainerId) -> String {
        let cluster = &self.launch.job().cluster;
        commands::name_of(cluster, self.folder.path(), id.0)
    }

    /// Returns the Slurm jobs of this job's containers.
    pub(super) async fn queue(&self) -> Result<BTreeMap<ContainerId, Queued>> {
        let mut queue = commands::queue(&self.slurm.config).await?;
        let folder = self.folder.clone();
        let file = blocking(move || Ok((folder.job()?, folder.containers()?)));
        let (file, known) = file.await?;
        let wanted = file.map(|file| file.wanted).unwrap_or_default();
        let ids: BTreeSet<_> = wanted.iter().map(|wanted| wanted.id).chain(known).collect();
        let found = ids
            .into_iter()
            .filter_map(|id| Some((id, queue.remove(&self.name_of(id))?)));
        Ok(found.collect())
    }

    /// Applies `change` to the job's record. Fails if the call is superseded.
    async fn accept(
        self: &Arc<Self>,
        order: Order,
        change: impl FnOnce(&mut JobFile) -> Result<()> + Send + 'static,
    ) -> Result<JobFile> {
        let place = Arc::clone(self);
        blocking(move || {
            let _lock = place.folder.lock()?;
            let mut file = place.folder.job()?.unwrap_or_else(|| JobFile {
                launch: place.launch.clone(),
                newest: Order::default(),
                wanted: Vec::new(),
                killed_at: None,
            });
            if order.epoch < file.newest.epoch {
                return Err(superseded("a newer leader has sent a call"));
            }
            change(&mut file)?;
            place.folder.set_job(&file)?;
            Ok(file)
        })
        .await
    }

    /// Submits the requested containers that have no Slurm job, and ends unrequested containers. A
    /// lock serializes concurrent calls.
    pub(super) async fn settle(self: &Arc<Self>) -> Result<()> {
        let folder = self.folder.clone();
        // Two processes that read the queue and then submit would submit twice.
        let _turn = blocking(move || folder.lock_named("settling")).await?;
        let folder = self.folder.clone();
        let Some(file) = blocking(move || folder.job()).await? else {
            return Ok(());
        };
        let queue = self.queue().await?;
        let mut unwanted = Vec::new();
        for (id, queued) in &queue {
            if file.wanted(*id).is_none() {
                let folder = self.folder.container(*id);
                blocking(move || files::stop(&folder)).await?;
                unwanted.push((*id, queued.number.clone()));
            }
        }
        let ended = self.end(unwanted).await;
        let mut failures = vec![ended.err()];
        for request in &file.wanted {
            let submitted = match queue.get(&request.id).map(|queued| queued.state) {
                Some(QueueState::Waiting | QueueState::Running) => Ok(()),
                // The ending Slurm job uses the container's files until it is gone.
                Some(QueueState::Ending) => match self.wait_until_gone(&[request.id]).await {
                    Ok(()) => self.submit(request.clone()).await,
                    failed => failed,
                },
                None => self.submit(request.clone()).await,
            };
            failures.push(submitted.err());
        }
        failures.into_iter().flatten().next().map_or(Ok(()), Err)
    }

    async fn submit(&self, request: ContainerRequest) -> Result<()> {
        let id = request.id;
        let failed = |error: Error| {
            let what = format!(
                "container {id} of {} could not be submitted",
                self.launch.job()
            );
            Error::new(error.code(), what).because(error)
        };
        let program = &self.launch.definition.program;
        let packages = &self.launch.packages;
        let package = self
            .slurm
            .programs
            .unpacked(program, packages)
            .await
            .map_err(failed)?;
        let executable = package.executable(program).map_err(failed)?;
        let (job, launch) = (self.folder.clone(), self.launch.clone());
        let (wanted, bounds) = (request.clone(), self.slurm.config.output);
        let prepared = blocking(move || {
            drop(job.container(wanted.id).lock()?);
            files::prepare(
                &job,
                &launch,
                &wanted,
                package.folder(),
                &executable,
                &bounds,
            )
        });
        let script = prepared.await.map_err(failed)?;
        let folder = self.folder.container(id);
        let (config, name) = (&self.slurm.config, self.name_of(id));
        let options = self.options().map_err(failed)?;
        let path = folder.path();
        let submitted = commands::submit(config, &name, &request, &options, path, &script);
        submitted.await.map_err(failed)
    }

    /// Returns the `sbatch` options of the job.
    fn options(&self) -> Result<Vec<String>> {
        let setting = self.launch.definition.settings.get(SLURM_OPTIONS);
        let options = slurm_options(setting.map_or("", String::as_str));
        options.map_err(|why| {
            let what = format!("the job's setting {SLURM_OPTIONS} is wrong");
            Error::new(ErrorCode::InvalidConfig, what)
                .because(why)
                .hint("kill the job, and submit it again with other options")
        })
    }

    /// Cancels Slurm jobs, and waits until they are gone.
    async fn end(&self, jobs: Vec<(ContainerId, String)>) -> Result<()> {
        let (ids, numbers): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        if ids.is_empty() {
            return Ok(());
        }
        commands::cancel(&self.slurm.config, numbers).await?;
        self.wait_until_gone(&ids).await
    }

    async fn wait_until_gone(&self, ids: &[ContainerId]) -> Result<()> {
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            let queue = self.queue().await?;
            let Some((id, left)) = ids.iter().find_map(|id| Some((id, queue.get(id)?))) else {
                return Ok(());
            };
            if Instant::now() > deadline {
                return Err(Error::new(
                    ErrorCode::SchedulerUnavailable,
                    format!(
                        "container {id} has not ended: Slurm job {} is {}",
                        left.number, left.reason
                    ),
                ));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn have(self: &Arc<Self>, order: Order, requests: Vec<ContainerRequest>) -> Result<()> {
        let accepted = self.accept(order, move |file| {
            if order < file.newest {
                return Err(superseded("a newer call was received"));
            }
            if file.killed_at.is_some() {
                return Err(superseded("the job was killed"));
            }
            file.newest = order;
            file.wanted = requests;
            Ok(())
        });
        accepted.await?;
        self.settle().await
    }

    async fn kill(self: &Arc<Self>, order: Order) -> Result<()> {
        let accepted = self.accept(order, move |file| {
            if order < file.newest {
                return Err(superseded("a newer call was received"));
            }
            file.newest = order;
            file.wanted.clear();
            file.killed_at.get_or_insert_with(now_ms);
            Ok(())
        });
        accepted.await?;
        self.settle().await?;
        let folder = self.folder.clone();
        blocking(move || {
            for id in folder.containers()? {
                records::remove(&folder.container(id).work())?;
            }
            Ok(())
        })
        .await?;
        self.forget().await;
        Ok(())
    }

    /// Removes data of killed jobs beyond the limits. Several hosts may do so concurrently.
    pub(super) async fn forget(&self) {
        let config = Arc::clone(&self.slurm.config);
        // Failures are retried at the next check.
        let _ = blocking(move || {
            let killed_at = |job: &JobFolder| {
                let file = job.job().ok().flatten();
                file.and_then(|file| file.killed_at)
            };
            forget(&config.folder, &config.kept, killed_at, |_, _| ())
        })
        .await;
    }

    /// Ends the current incarnation of a container; the script starts the next one. Returns the new
    /// incarnation.
    async fn restart(self: &Arc<Self>, order: Order, id: ContainerId) -> Result<u64> {
        let accepted = self.accept(order, move |file| {
            if file.killed_at.is_some() {
                return Err(superseded("the job was killed"));
            }
            if file.wanted(id).is_none() {
                let what = format!("container {id} was not requested");
                return Err(Error::new(ErrorCode::NoSuchContainer, what));
            }
            let number = 0;
            let epoch = order.epoch;
            file.newest = file.newest.max(Order { epoch, number });
            Ok(())
        });
        accepted.await?;
        let after = self.restart_after(order, id).await?;
        self.settle().await?;
        let mut asked = None;
        let deadline = Instant::now() + self.slurm.config.stop_grace + START_TIMEOUT;
        loop {
            let folder = self.folder.container(id);
            let latest = blocking(move || {
                files::let_go(&folder)?;
                files::latest(&folder)
            })
            .await?;
            let config = &self.slurm.config;
            match latest {
                Some((life, _)) if life.incarnation > after => return Ok(life.incarnation),
                Some((life, None)) => match asked {
                    None => {
                        asked = Some(Instant::now());
                        commands::signal_step(config, &life.step, "TERM").await;
                    }
                    Some(at) if at.elapsed() > config.stop_grace => {
                        asked = Some(Instant::now());
                        commands::signal_step(config, &life.step, "KILL").await;
                    }
                    Some(_) => {}
                },
                _ => {}
            }
            if Instant::now() > deadline {
                return Err(self.waiting_reason(id).await);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Records the incarnation to be replaced, unless that was done for the same call. Returns that
    /// incarnation.
    async fn restart_after(&self, order: Order, id: ContainerId) -> Result<u64> {
        let folder = self.folder.container(id);
        blocking(move || {
            let _lock = folder.lock()?;
            if let Some(restart) = files::restart(&folder)?.filter(|done| done.order >= order) {
                return Ok(restart.after);
            }
            let after = files::latest(&folder)?.map_or(0, |(life, _)| life.incarnation);
            files::set_restart(&folder, &Restart { order, after })?;
            Ok(after)
        })
        .await
    }

    async fn waiting_reason(&self, id: ContainerId) -> Error {
        let what = format!("container {id} has not begun again");
        let error = Error::new(ErrorCode::SchedulerUnavailable, what);
        match self.queue().await.map(|mut queue| queue.remove(&id)) {
            Ok(Some(queued)) => error.because(format!(
                "Slurm job {} is waiting or ending: {}",
                queued.number, queued.reason
            )),
            Ok(None) => error.because("Slurm has no job of it"),
            Err(why) => error.because(why),
        }
    }

    async fn containers(&self) -> Result<Vec<RunningContainer>> {
        let mut running = Vec::new();
        for (id, queued) in self.queue().await? {
            let folder = self.folder.container(id);
            if queued.state == QueueState::Running
                && let Some((life, None)) = blocking(move || files::latest(&folder)).await?
            {
                running.push(life.running(id));
            }
        }
        Ok(running)
    }
}

impl Scheduler for SlurmJob {
    fn on_schedule(&self, order: Order, containers: Vec<ContainerRequest>) -> Pending<'_, ()> {
        Box::pin(self.place.have(order, containers))
    }

    fn on_restart(&self, order: Order, container: ContainerId) -> Pending<'_, u64> {
        Box::pin(async move {
            // The next incarnation overwrites the file of the current one. The end of the current
            // one must be reported before.
            self.watch.look().await?;
            self.place.restart(order, container).await
        })
    }

    fn on_kill(&self, order: Order) -> Pending<'_, ()> {
        Box::pin(self.place.kill(order))
    }

    fn containers(&self) -> Pending<'_, Vec<RunningContainer>> {
        Box::pin(self.place.containers())
    }

    fn logs(&self, container: ContainerId, request: LogRequest) -> Pending<'_, LogPiece> {
        let folder = self.place.folder.container(container);
        Box::pin(blocking(move || output::piece(folder.path(), &request)))
    }

    fn close(&self) -> Pending<'_, ()> {
        self.watching.abort();
        Box::pin(async { Ok(()) })
    }
}
