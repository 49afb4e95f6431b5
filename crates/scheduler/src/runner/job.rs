//! One job's containers on this machine: the operations that schedulers call.

use std::sync::Arc;

use ardea_coordination::control::{ContainerRequest, MasterEpoch, Order};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::folders::JobFolder;
use super::process::ProcessHandle;
use super::records::{JobFile, RunFile};
use super::recover::Locked;
use super::{Runner, blocking, ending, output, watch};
use crate::{
    ContainerEvent, ContainerEvents, EventFeed, LaunchPlan, LogPiece, LogRequest, RunningContainer,
    Unpacked, container_events,
};

/// One job's containers on this machine. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RunnerJob {
    pub(super) runner: Runner,
    pub(super) folder: JobFolder,
    pub(super) launch: Arc<LaunchPlan>,
    /// The job's unpacked package, once it has been fetched.
    pub(super) package: Arc<Mutex<Option<Unpacked>>>,
    /// True if the runner refuses containers for which the machine has no room.
    bounded: bool,
    subscription: Arc<Subscription>,
}

/// A subscription to the events of a job's containers, which ends on drop.
#[derive(Debug)]
struct Subscription {
    runner: Runner,
    folder: JobFolder,
    number: u64,
}

impl Runner {
    /// Opens a job and finds its running containers. The event stream starts with these and
    /// continues with all later events.
    pub(crate) async fn job(&self, launch: LaunchPlan) -> Result<(RunnerJob, ContainerEvents)> {
        let folder = JobFolder::of(&self.0.config.folder, launch.job());
        let (feed, events) = container_events();
        // The subscription starts before the scan, so that no event is missed.
        let subscription = self.subscribe(&folder, feed.clone());
        let remarks = self.0.live().remarks.remove(&folder);
        for remark in remarks.unwrap_or_default() {
            feed.send(remark);
        }
        if let Some(why) = self.limits_off_reason() {
            let text = format!("limits of cpu and memory are not enforced: {why}");
            let container = None;
            feed.send(ContainerEvent::Notice { container, text });
        }
        for event in self.recover_job(&folder).await {
            feed.send(event);
        }
        let job = RunnerJob {
            runner: self.clone(),
            folder,
            launch: Arc::new(launch),
            package: Arc::default(),
            bounded: false,
            subscription: Arc::new(subscription),
        };
        Ok((job, events))
    }

    fn subscribe(&self, folder: &JobFolder, feed: EventFeed) -> Subscription {
        let mut live = self.0.live();
        let number = live.next_feed;
        live.next_feed += 1;
        let feeds = live.feeds.entry(folder.clone()).or_default();
        feeds.push((number, feed));
        Subscription {
            runner: self.clone(),
            folder: folder.clone(),
            number,
        }
    }

    /// Watches the running containers of a job, and kills leftover processes of ended containers.
    /// Returns the current state of the containers as events. A container that can't be examined is
    /// reported, and does not affect others.
    pub(super) async fn recover_job(&self, folder: &JobFolder) -> Vec<ContainerEvent> {
        let job = folder.clone();
        let ids = match blocking(move || job.containers()).await {
            Ok(ids) => ids,
            Err(error) => {
                self.0.notify_failure(folder, None, &error);
                return Vec::new();
            }
        };
        let mut events = Vec::new();
        for id in ids {
            match self.recover_container(folder, id).await {
                Ok(event) => events.extend(event),
                Err(error) => self.0.notify_failure(folder, Some(id), &error),
            }
        }
        events
    }

    async fn recover_container(
        &self,
        folder: &JobFolder,
        id: ContainerId,
    ) -> Result<Option<ContainerEvent>> {
        let found = self.find_process(folder, id, Locked::No).await?;
        Ok(match found {
            None => None,
            Some((run, Some(process))) if !process.has_ended() => {
                let running = watch::running(&self.0.config.host, id, &run);
                self.watch(folder, id, run, process);
                Some(ContainerEvent::Started(running))
            }
            Some((run, process)) => Some(found_dead(folder, id, run, process).await?),
        })
    }

    /// Returns a container's latest incarnation, and the incarnation's process (or zombie) if there
    /// is one.
    pub(super) async fn find_process(
        &self,
        job: &JobFolder,
        id: ContainerId,
        locked: Locked,
    ) -> Result<Option<(RunFile, Option<ProcessHandle>)>> {
        let (runner, job) = (self.clone(), job.clone());
        blocking(move || {
            let Some(run) = runner.find_incarnation(&job, id, locked)? else {
                return Ok(None);
            };
            let process = run.process.open().map_err(|error| {
                Error::new(
                    ErrorCode::SchedulerUnavailable,
                    format!("cannot look at process {}", run.process.pid()),
                )
                .because(error)
            })?;
            Ok(Some((run, process)))
        })
        .await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut live = self.runner.0.live();
        if let Some(feeds) = live.feeds.get_mut(&self.folder) {
            feeds.retain(|(number, _)| *number != self.number);
            if feeds.is_empty() {
                live.feeds.remove(&self.folder);
            }
        }
    }
}

impl RunnerJob {
    /// Returns the job with a check of free resources before each start, for schedulers that choose
    /// among several machines.
    pub(crate) fn bounded(self) -> Self {
        RunnerJob {
            bounded: true,
            ..self
        }
    }

    /// Runs exactly these containers on this machine. New incarnations have numbers from `floor`
    /// on.
    pub(crate) async fn have(
        &self,
        order: Order,
        wanted: Vec<ContainerRequest>,
        floor: u64,
    ) -> Result<()> {
        let job = self.clone();
        let ids = blocking(move || {
            let _promising = job.runner.lock_reservations();
            let _lock = job.folder.lock()?;
            let mut file = job.file_for(order.epoch)?;
            if order < file.newest {
                return Err(superseded("a newer call was received"));
            }
            if job.bounded {
                job.runner.check_room(&job.folder, &file.wanted, &wanted)?;
            }
            let mut ids: Vec<_> = wanted.iter().map(|request| request.id).collect();
            file.newest = order;
            file.wanted = wanted;
            job.folder.set_job(&file)?;
            ids.extend(job.folder.containers()?);
            ids.sort_unstable();
            ids.dedup();
            Ok(ids)
        })
        .await?;
        self.for_each(
            ids,
            move |job, id| async move { job.reconcile(id, floor).await },
        )
        .await
    }

    /// Stops the process in a container and starts it again. Returns the new incarnation. With a
    /// `request`, the container is first added to the requested containers.
    pub(crate) async fn restart(
        &self,
        order: Order,
        id: ContainerId,
        request: Option<ContainerRequest>,
        floor: u64,
    ) -> Result<u64> {
        let job = self.clone();
        let request = blocking(move || {
            let _promising = job.runner.lock_reservations();
            let _lock = job.folder.lock()?;
            let mut file = job.file_for(order.epoch)?;
            if let Some(request) = request {
                let before = file.wanted.clone();
                file.wanted.retain(|wanted| wanted.id != id);
                file.wanted.push(request);
                if job.bounded {
                    let folder = &job.folder;
                    job.runner.check_room(folder, &before, &file.wanted)?;
                }
            }
            let heard = Order {
                epoch: order.epoch,
                number: 0,
            };
            file.newest = file.newest.max(heard);
            job.folder.set_job(&file)?;
            file.wanted(id).cloned().ok_or_else(|| no_such(&job, id))
        })
        .await?;
        self.start_again(order, request, floor).await
    }

    /// Returns the running containers.
    pub(crate) async fn containers(&self) -> Result<Vec<RunningContainer>> {
        let job = self.clone();
        blocking(move || {
            let mut running = Vec::new();
            for id in job.folder.containers()? {
                let run = job.latest_incarnation(id);
                running.extend(run.and_then(|run| job.if_running(id, &run)));
            }
            Ok(running)
        })
        .await
    }

    /// Returns a piece of a container's output.
    pub(crate) async fn logs(&self, id: ContainerId, request: LogRequest) -> Result<LogPiece> {
        let folder = self.folder.container(id);
        blocking(move || output::piece(folder.path(), &request)).await
    }

    /// Ends the subscription to events. Running operations continue.
    pub(crate) fn close(&self) {
        let mut live = self.runner.0.live();
        if let Some(feeds) = live.feeds.get_mut(&self.folder) {
            feeds.retain(|(number, _)| *number != self.subscription.number);
        }
    }

    /// Applies the operation `deed` to containers concurrently, and completes it for all of them
    /// even if some fail.
    pub(super) async fn for_each<F>(
        &self,
        ids: Vec<ContainerId>,
        deed: impl Fn(RunnerJob, ContainerId) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let all = ids.len();
        let mut deeds = JoinSet::new();
        for id in ids {
            deeds.spawn(deed(self.clone(), id));
        }
        let mut failures = Vec::new();
        while let Some(done) = deeds.join_next().await {
            match done {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failures.push(error),
                Err(error) => failures
                    .push(Error::new(ErrorCode::Internal, "a runner panicked").because(error)),
            }
        }
        let failed = failures.len();
        match failures.into_iter().next() {
            None => Ok(()),
            Some(first) if all == 1 => Err(first),
            Some(first) => Err(Error::new(
                first.code(),
                format!("{failed} of {all} containers failed, one of them"),
            )
            .because(first)),
        }
    }

    /// Returns the job's record for a call of the leader of this epoch. Refuses calls of earlier
    /// leaders. The job's lock must be held.
    pub(super) fn file_for(&self, epoch: MasterEpoch) -> Result<JobFile> {
        let file = self.file()?.unwrap_or_else(|| JobFile {
            launch: (*self.launch).clone(),
            newest: Order::default(),
            wanted: Vec::new(),
            killed_at: None,
        });
        if epoch < file.newest.epoch {
            return Err(superseded("a newer leader has sent a call"));
        }
        if file.killed_at.is_some() {
            return Err(superseded("the job was killed"));
        }
        Ok(file)
    }

    /// Returns a container's latest incarnation. If it can't be determined, reports a notice and
    /// returns `None`. Blocks.
    pub(super) fn latest_incarnation(&self, id: ContainerId) -> Option<RunFile> {
        let life = self.runner.find_incarnation(&self.folder, id, Locked::No);
        life.unwrap_or_else(|error| {
            self.runner.0.notify_failure(&self.folder, Some(id), &error);
            None
        })
    }

    pub(super) fn if_running(&self, id: ContainerId, run: &RunFile) -> Option<RunningContainer> {
        let process = run.process.open().ok()??;
        let host = &self.runner.0.config.host;
        (!process.has_ended()).then(|| watch::running(host, id, run))
    }
}

async fn found_dead(
    folder: &JobFolder,
    id: ContainerId,
    run: RunFile,
    process: Option<ProcessHandle>,
) -> Result<ContainerEvent> {
    let container = folder.container(id);
    blocking(move || {
        let is_news = container.end(run.incarnation)?.is_none();
        let end = ending::record_end(&container, &run, process.as_ref())?;
        if is_news {
            ending::sweep(&container, &run)?;
        }
        Ok(watch::exited(&container, id, &run, &end))
    })
    .await
}

pub(crate) fn superseded(why: &str) -> Error {
    Error::new(
        ErrorCode::Superseded,
        format!("this call to the scheduler is not carried out: {why}"),
    )
}

fn no_such(job: &RunnerJob, id: ContainerId) -> Error {
    let host = &job.runner.0.config.host;
    Error::new(
        ErrorCode::NoSuchContainer,
        format!(
            "container {id} of {} was not requested at {host}",
            job.launch.job()
        ),
    )
}
