//! The implementation of a host's REST interface.

mod checkpoint_pin;
mod checkpoints;
mod dead_letters;
mod hosts;
mod map_views;
mod maps;
mod new_leader;
mod past_logs;
mod programs;
mod savepoints;
mod upgrades;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::leader::{
    CommandError, JobHandle, JobView, Jobs as Led, LeadershipState, MasterProcess, all_past_jobs,
    now_ms, submit,
};
use ardea_checkpoint::cluster::{CheckpointConfig, JobCheckpointStores};
use ardea_coordination::control::{Command, Rejection};
use ardea_coordination::packing::{ContainerId, PackingPolicies, Resources, VertexName};
use ardea_core::{Error, ErrorCode, Token};
use ardea_grid::cluster::LocalGridStore;
use ardea_metrics::History;
use ardea_network::tls::Tls;
use ardea_rest::{
    Answer, CheckpointsView, Cluster, ClusterError, ClusterInfo, ClusterSettings, DeadLettersQuery,
    DeadLettersView, DiagnosisView, HostView, JobDescription, JobSummary, KillQuery, LogQuery,
    LogStream, Maps, MetricsQuery, MetricsRange, OUTCOME_UNKNOWN, ParallelismUpdate,
    PastJobDescription, PastJobSummary, Pending, Plans, ProgramOutcome, ProgramRequest, RangeQuery,
    RecoverRequest, SampleView, SavepointRequest, SavepointView, StatesView, SubmitRequest,
    TokenStore, TopView, TrafficView, UpgradeRequest, no_such_container,
};
use ardea_scheduler::{Drains, Schedulers};

use crate::daemon::access_tokens::NamedTokenStore;
use crate::daemon::capacity_check::check_room;
use crate::daemon::host_registry::HostRegistry;
use crate::daemon::jobs::{JobLocation, Jobs, submission_of};
use crate::daemon::{HostSetup, ProgramRunner, describe, metrics_view, traffic_view};

/// Number of polls for the error that prevents leadership of a job. They take longer than the retry
/// delay of leader candidates.
const TROUBLE_LOOKS: usize = 20;
const ERROR_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time for a submission to reach the metadata store, below the request timeout of clients.
const SUBMITS_WITHIN: Duration = Duration::from_secs(25);

/// The cluster as served by one of its hosts.
pub(crate) struct ClusterService {
    name: String,
    cluster: ClusterSettings,
    managers: PackingPolicies,
    schedulers: Schedulers,
    /// The checkpoint stores of the jobs led here.
    archives: Arc<JobCheckpointStores>,
    /// The jobs of which a request to this host has pinned a checkpoint.
    pins: checkpoint_pin::Pins,
    /// The checkpoint store in the hosts' memory.
    grid_store: LocalGridStore,
    /// The number of map watchers of this host.
    watching: maps::WatchCount,
    /// The CPU and memory capacity of this machine.
    machine: Resources,
    jobs: Jobs,
    directory: HostRegistry,
    drains: Drains,
    tokens: NamedTokenStore,
    runner: Option<Arc<dyn ProgramRunner>>,
    /// The leader candidate; present until the host ends.
    master: Mutex<Option<Arc<MasterProcess>>>,
}

impl ClusterService {
    pub(crate) fn new(
        setup: &HostSetup,
        (schedulers, archives, shelf): (Schedulers, Arc<JobCheckpointStores>, LocalGridStore),
        machine: Resources,
        (token, tls): (Option<Token>, Option<Tls>),
        tokens: NamedTokenStore,
    ) -> Arc<Self> {
        Arc::new(ClusterService {
            name: setup.name.clone(),
            cluster: setup.cluster.clone(),
            managers: setup.managers.clone(),
            schedulers,
            archives,
            pins: checkpoint_pin::Pins::default(),
            grid_store: shelf,
            watching: maps::WatchCount::default(),
            machine,
            jobs: Jobs {
                own: setup.name.clone(),
                only: match &setup.jobs {
                    Led::All => None,
                    Led::Named(job) => Some(job.clone()),
                },
                state: Arc::clone(&setup.state),
                token,
                tls,
            },
            directory: HostRegistry(Arc::clone(&setup.state)),
            drains: Drains::new(Arc::clone(&setup.state)),
            tokens,
            runner: setup.runner.clone(),
            master: Mutex::new(None),
        })
    }

    /// Starts to serve requests for jobs, with this leader candidate.
    pub(crate) fn attend(&self, master: Arc<MasterProcess>) {
        *self.slot() = Some(master);
    }

    /// Stops serving requests for jobs, because the host ends.
    pub(crate) fn leave(&self) {
        *self.slot() = None;
    }

    /// Redirects the submission of a job that this host cannot lead, because the host is for
    /// another job only.
    async fn check_takes(&self, job: &str) -> Result<(), ClusterError> {
        let Some(only) = self.jobs.only.as_deref().filter(|only| *only != job) else {
            return Ok(());
        };
        match self.directory.api_for(job).await? {
            Some(base) => Err(ClusterError::Elsewhere { base }),
            None => {
                let what = format!("host {:?} is for job {only:?} only", self.name);
                Err(Error::new(ErrorCode::WrongCluster, what)
                    .hint("start a host for all jobs: ardea cluster start")
                    .into())
            }
        }
    }

    /// Adds this host's name to an error about a checkpoint location. Other machines may reach the
    /// location.
    fn has_no_room(&self, job: &str, error: Error) -> Error {
        if !matches!(error.code(), ErrorCode::ReadFailed | ErrorCode::WriteFailed) {
            return error;
        }
        let what = format!("host {:?} can't store checkpoints of {job:?}", self.name);
        let next = error.hint_text().unwrap_or_default();
        let hint = format!("on that host and with its environment variables: {next}");
        Error::new(error.code(), what)
            .because(error.without_hint())
            .hint(hint)
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<MasterProcess>>> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn master(&self) -> Answer<Arc<MasterProcess>> {
        self.slot().clone().ok_or_else(|| {
            let what = format!("host {:?} is just starting or ending", self.name);
            ClusterError::RetryLater(
                Error::new(ErrorCode::Superseded, what).hint("try again in a moment"),
            )
        })
    }

    async fn command(&self, job: &str, command: Command) -> Answer<()> {
        let desk = self.desk(job).await?;
        self.execute(&desk, command).await
    }

    async fn execute(&self, desk: &JobHandle, command: Command) -> Answer<()> {
        match desk.command(command).await {
            Ok(()) => Ok(()),
            Err(undone) => Err(self.command_error(desk, undone).await),
        }
    }

    async fn command_error(&self, desk: &JobHandle, undone: CommandError) -> ClusterError {
        let job = &desk.job().name;
        match undone {
            CommandError::NotLed(error) => {
                self.leadership_error(job, ClusterError::RetryLater(error))
                    .await
            }
            // The outcome is unknown. Clients recognize that by this code and treat any other code
            // as a rejection.
            CommandError::Failed(error) if error.code() == ErrorCode::Superseded => {
                let lost = match self.lasting_trouble(job).await {
                    // The outer hint concerns the unknown outcome, so the hint of the cause is
                    // retained too.
                    Some(trouble) => Error::new(error.code(), error.message()).because(trouble),
                    None => error,
                };
                lost.hint(OUTCOME_UNKNOWN).into()
            }
            CommandError::Failed(error) => error.into(),
        }
    }

    /// Returns the handle of a job led here; otherwise a redirection or an error.
    async fn desk(&self, job: &str) -> Answer<JobHandle> {
        match self.jobs.local_handle(&*self.master()?, job).await {
            Ok(desk) => Ok(desk),
            Err(why) => Err(self.leadership_error(job, why).await),
        }
    }

    /// Replaces the response `why` ("not yet") with the error that prevents leadership, such as an
    /// unwritable metadata store.
    async fn leadership_error(&self, job: &str, why: ClusterError) -> ClusterError {
        if !matches!(why, ClusterError::RetryLater(_)) {
            return why;
        }
        let Some(trouble) = self.lasting_trouble(job).await else {
            return why;
        };
        let what = format!("no host can lead the job {job:?} at the moment");
        let error = Error::new(trouble.code(), what).because(trouble.without_hint());
        let next = trouble
            .hint_text()
            .unwrap_or("its containers continue to run; try again");
        error.hint(next).into()
    }

    /// Polls for the error that prevents this host from leading a job. A successful read clears the
    /// error for a moment, until the next write fails.
    async fn lasting_trouble(&self, job: &str) -> Option<Error> {
        for _ in 0..TROUBLE_LOOKS {
            if let Some(trouble) = self.trouble(job) {
                return Some(trouble);
            }
            tokio::time::sleep(ERROR_POLL_INTERVAL).await;
        }
        None
    }

    /// Returns the error that currently prevents this host from leading a job.
    fn trouble(&self, job: &str) -> Option<Error> {
        let master = self.slot().clone()?;
        master.leadership_errors().remove(job)
    }

    /// Returns the jobs that a host leads: from memory for this host, from the leases for others.
    async fn led_by(&self, name: &str, api: &str) -> Vec<String> {
        if name == self.name {
            let Ok(master) = self.master() else {
                return Vec::new();
            };
            let led = master.handles().into_iter();
            let led = led.filter(|desk| matches!(desk.state(), LeadershipState::Leading { .. }));
            return led.map(|desk| desk.job().name.clone()).collect();
        }
        let mut led = Vec::new();
        let Ok(names) = self.jobs.names().await else {
            return led;
        };
        let Ok(master) = self.master() else {
            return led;
        };
        for job in names {
            if let Ok(JobLocation::Remote(at)) = self.jobs.find(&master, &job).await
                && at == api
            {
                led.push(job);
            }
        }
        led
    }

    /// Returns a job's description from the host that leads it.
    async fn describe_anywhere(&self, job: &str) -> Answer<JobDescription> {
        match self.jobs.find(&*self.master()?, job).await? {
            JobLocation::Here(desk) => {
                let view = desk.view().await?;
                Ok(JobDescription {
                    summary: self.summary_of(&view).await,
                    ..view.description
                })
            }
            JobLocation::Remote(api) => Ok(self.jobs.client(&api)?.describe(job).await?),
            JobLocation::NoLeader(stored) => {
                let trouble = self.trouble(&stored.record.job.name);
                Ok(describe::unled_description(&stored, trouble.as_ref()))
            }
        }
    }
}

impl Cluster for ClusterService {
    fn about(&self) -> Pending<'_, ClusterInfo> {
        Box::pin(async {
            let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            Ok(ClusterInfo {
                name: self.cluster.name.clone(),
                version: env!("CARGO_PKG_VERSION").to_string(),
                state: self.cluster.state.clone(),
                packages: self.cluster.packages.clone(),
                scheduler: self.cluster.scheduler.clone(),
                packing: self.cluster.packing.clone(),
                hosts: count(self.directory.all().await?.len()),
                jobs: count(self.jobs.names().await?.len()),
            })
        })
    }

    fn tokens(&self) -> &dyn TokenStore {
        &self.tokens
    }

    fn maps(&self) -> &dyn Maps {
        self
    }

    fn hosts(&self) -> Pending<'_, Vec<HostView>> {
        Box::pin(self.all_hosts())
    }

    fn drain<'a>(&'a self, host: &'a str) -> Pending<'a, ()> {
        Box::pin(self.drain_host(host))
    }

    fn undrain<'a>(&'a self, host: &'a str) -> Pending<'a, ()> {
        Box::pin(self.undrain_host(host))
    }

    fn list(&self) -> Pending<'_, Vec<JobSummary>> {
        Box::pin(async {
            let mut jobs = Vec::new();
            for name in self.jobs.names().await? {
                match self.describe_anywhere(&name).await {
                    Ok(description) => jobs.push(description.summary),
                    // The leader did not reply in time: fall back to the stored job.
                    Err(_) => match self.jobs.stored(&name).await {
                        Ok(stored) => {
                            let trouble = self.trouble(&name);
                            let unled = |stored| describe::unled(&stored, trouble.as_ref());
                            jobs.extend(stored.map(unled));
                        }
                        // An unreadable job must not hide the others.
                        Err(error) => jobs.push(describe::unreadable(name, &error)),
                    },
                }
            }
            Ok(jobs)
        })
    }

    fn past_jobs(&self) -> Pending<'_, Vec<PastJobSummary>> {
        Box::pin(async {
            let past = all_past_jobs(&*self.jobs.state).await?;
            Ok(past.into_iter().map(|it| it.description.summary).collect())
        })
    }

    fn past<'a>(&'a self, job: &'a str) -> Pending<'a, Vec<PastJobDescription>> {
        Box::pin(async move {
            let past = self.jobs.all_past(job).await?;
            Ok(past.into_iter().map(|it| it.description).collect())
        })
    }

    fn describe<'a>(&'a self, job: &'a str) -> Pending<'a, JobDescription> {
        Box::pin(async move {
            match self.jobs.find(&*self.master()?, job).await? {
                JobLocation::Here(desk) => {
                    let (view, metrics) = (desk.view().await?, desk.metrics().await?);
                    let mut description = JobDescription {
                        summary: self.summary_of(&view).await,
                        ..view.description
                    };
                    metrics.ask(|history| describe::add_metrics(&mut description, history));
                    Ok(description)
                }
                JobLocation::Remote(base) => Err(ClusterError::Elsewhere { base }),
                JobLocation::NoLeader(stored) => {
                    let trouble = self.trouble(job);
                    Ok(describe::unled_description(&stored, trouble.as_ref()))
                }
            }
        })
    }

    fn submit(&self, request: SubmitRequest) -> Pending<'_, JobSummary> {
        Box::pin(async move {
            let SubmitRequest {
                definition,
                mut demand,
                mut packing,
            } = request;
            let job = definition.job.clone();
            if job.cluster != self.cluster.name {
                let what = format!("job {job} is not for cluster {:?}", self.cluster.name);
                return Err(Error::new(ErrorCode::WrongCluster, what)
                    .hint("submit it with --cluster, or name another interface")
                    .into());
            }
            self.check_takes(&job.name).await?;
            self.cluster.instances.check(&demand, None)?;
            check_room(&demand, &definition.scheduler, self.machine)?;
            // Reject a job with an unknown scheduler.
            self.schedulers.get(&definition.scheduler)?;
            let traffic = (&mut demand, &mut packing);
            self.write_traffic(&definition, traffic).await?;
            // Reject a taken name before a checkpoint folder is created.
            if let Ok(Some(stored)) = self.jobs.stored(&job.name).await
                && stored.record.job != job
            {
                let (cluster, name) = (job.cluster, job.name);
                return Err(Error::from(Rejection::NameTaken { cluster, name }).into());
            }
            // Reject a job whose checkpoints cannot be stored.
            if let Some(promise) = CheckpointConfig::of(&definition)? {
                self.have_place(&promise.place).await?;
            }
            let (promised, asked) = (definition.clone(), demand.clone());
            let shelter = self.archives.shelter();
            let making = move || {
                ardea_checkpoint::cluster::prepare_location(&promised, &asked, shelter.as_ref())
            };
            run_blocking(making)
                .await?
                .map_err(|error| self.has_no_room(&job.name, error))?;
            let state = Arc::clone(&self.jobs.state);
            let patience = self.cluster.patience.min(SUBMITS_WITHIN);
            submit(state, definition, demand, packing, &self.managers, patience).await?;
            match self.jobs.stored(&job.name).await? {
                Some(stored) => Ok(describe::unled(&stored, None)),
                None => Err(Error::new(
                    ErrorCode::NoSuchJob,
                    format!("job {job} was submitted, and has already ended"),
                )
                .into()),
            }
        })
    }

    fn resume<'a>(&'a self, job: &'a str) -> Pending<'a, ()> {
        Box::pin(self.command(job, Command::Resume))
    }

    fn pause<'a>(&'a self, job: &'a str) -> Pending<'a, ()> {
        Box::pin(self.command(job, Command::Pause))
    }

    fn kill<'a>(&'a self, job: &'a str, query: KillQuery) -> Pending<'a, ()> {
        Box::pin(async move {
            let wants = submission_of(query.submission.as_deref())?;
            if wants.is_some()
                && let Some(why) = self.jobs.absent(job, wants).await?
            {
                return Err(why.into());
            }
            let desk = self.desk(job).await?;
            if wants.is_some_and(|it| it != desk.job().submission) {
                // The job was replaced in the meantime: the client must retry with the current job.
                return Err(self.jobs.without_leader(job).await?);
            }
            self.execute(&desk, Command::Kill).await
        })
    }

    fn restart<'a>(&'a self, job: &'a str, container: ContainerId) -> Pending<'a, ()> {
        Box::pin(async move {
            let desk = self.desk(job).await?;
            match self.execute(&desk, Command::Restart(container)).await {
                Err(ClusterError::Failed(error)) if error.code() == ErrorCode::NoSuchContainer => {
                    let known = containers_of(&desk.view().await?);
                    Err(no_such_container(job, container, &known).into())
                }
                done => done,
            }
        })
    }

    fn update<'a>(&'a self, job: &'a str, update: ParallelismUpdate) -> Pending<'a, ()> {
        let wanted = update.parallelism.into_iter();
        let wanted = wanted.map(|(vertex, count)| (VertexName::new(vertex), count));
        Box::pin(self.command(job, Command::Update(wanted.collect())))
    }

    fn rescale<'a>(&'a self, job: &'a str, containers: NonZeroU32) -> Pending<'a, ()> {
        Box::pin(self.command(job, Command::Rescale(containers)))
    }

    fn recover<'a>(&'a self, job: &'a str, request: RecoverRequest) -> Pending<'a, ()> {
        Box::pin(self.command(job, checkpoints::wanted(request)))
    }

    fn savepoint<'a>(
        &'a self,
        job: &'a str,
        request: SavepointRequest,
    ) -> Pending<'a, SavepointView> {
        Box::pin(self.save(job, request))
    }

    fn states<'a>(&'a self, job: &'a str) -> Pending<'a, StatesView> {
        Box::pin(self.states_of_job(job))
    }

    fn upgrade<'a>(&'a self, job: &'a str, request: UpgradeRequest) -> Pending<'a, ()> {
        Box::pin(self.have_followed(job, request))
    }

    fn checkpoints<'a>(&'a self, job: &'a str) -> Pending<'a, CheckpointsView> {
        Box::pin(self.read_checkpoints(job, false))
    }

    fn check_checkpoints<'a>(&'a self, job: &'a str) -> Pending<'a, CheckpointsView> {
        Box::pin(self.read_checkpoints(job, true))
    }

    fn plans<'a>(&'a self, job: &'a str) -> Pending<'a, Plans> {
        Box::pin(async move {
            match self.jobs.find(&*self.master()?, job).await? {
                JobLocation::Here(desk) => {
                    let view = desk.view().await?;
                    let stored = self.jobs.stored(job).await?;
                    let stored =
                        stored.ok_or_else(|| ardea_rest::no_such_job(job, [].into_iter()))?;
                    Ok(describe::plans(&stored, Some(&view)))
                }
                JobLocation::Remote(base) => Err(ClusterError::Elsewhere { base }),
                JobLocation::NoLeader(stored) => Ok(describe::plans(&stored, None)),
            }
        })
    }

    fn logs<'a>(&'a self, job: &'a str, query: LogQuery) -> Pending<'a, LogStream> {
        Box::pin(self.log_lines(job, query))
    }

    fn metrics<'a>(&'a self, job: &'a str, query: MetricsQuery) -> Pending<'a, Vec<SampleView>> {
        Box::pin(async move {
            let ask = |history: &History| metrics_view::latest(history, &query, now_ms());
            self.measured(job, ask).await
        })
    }

    fn metrics_range<'a>(&'a self, job: &'a str, query: RangeQuery) -> Pending<'a, MetricsRange> {
        Box::pin(async move {
            let ask = |history: &History| metrics_view::range(history, &query, now_ms());
            self.measured(job, ask).await
        })
    }

    fn top<'a>(&'a self, job: &'a str) -> Pending<'a, TopView> {
        Box::pin(self.viewed(job, metrics_view::top_of_view))
    }

    fn traffic<'a>(&'a self, job: &'a str) -> Pending<'a, TrafficView> {
        Box::pin(self.viewed(job, traffic_view::traffic))
    }

    fn why<'a>(&'a self, job: &'a str) -> Pending<'a, DiagnosisView> {
        Box::pin(self.diagnose(job))
    }

    fn dead_letters<'a>(
        &'a self,
        job: &'a str,
        query: DeadLettersQuery,
    ) -> Pending<'a, DeadLettersView> {
        Box::pin(self.dead_letters_of(job, query))
    }

    fn run_program(&self, request: ProgramRequest) -> Pending<'_, ProgramOutcome> {
        self.run_sent_program(request)
    }
}

/// Returns the ids of the job's planned containers.
fn containers_of(view: &JobView) -> Vec<ContainerId> {
    let containers = view.description.containers.iter();
    containers.map(|container| container.id).collect()
}

/// Runs blocking file operations outside the async runtime.
async fn run_blocking<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let looked = tokio::task::spawn_blocking(look).await;
    Ok(looked.map_err(|error| {
        Error::new(ErrorCode::Internal, "reading files was interrupted").because(error)
    })?)
}
