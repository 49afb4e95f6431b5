//! What the REST interface of a host answers.

mod holding;
mod hosts;
mod led_anew;
mod map_views;
mod maps;
mod past_logs;
mod savepoints;
mod snapshots;
mod upgrades;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::leader::{
    JobDesk, JobView, Jobs as Led, MasterProcess, Standing, Undone, all_past_jobs, submit,
};
use ardea_checkpoint::cluster::{Archives, Promise};
use ardea_coordination::control::{Command, Refused};
use ardea_coordination::packing::{ContainerId, ResourceManagers, Resources, VertexName};
use ardea_core::{Error, ErrorCode, Token};
use ardea_grid::cluster::GridShelf;
use ardea_metrics::History;
use ardea_network::tls::Tls;
use ardea_rest::{
    Answer, Cluster, ClusterInfo, ClusterSettings, DOUBTFUL, HostView, JobDescription, JobSummary,
    KillQuery, LogQuery, LogStream, Maps, MetricsQuery, MetricsRange, ParallelismUpdate,
    PastJobDescription, PastJobSummary, Pending, Plans, RangeQuery, RecoverRequest, SampleView,
    SavepointRequest, SavepointView, SnapshotsView, StatesView, SubmitRequest, TopView, Unanswered,
    UpgradeRequest, no_such_container,
};
use ardea_scheduler::{Drains, Schedulers};

use crate::daemon::directory::Directory;
use crate::daemon::jobs::{Found, Jobs, submission_of};
use crate::daemon::room::check_room;
use crate::daemon::{HostSetup, described, logs, measured, remembered};

/// How often, and after how long each, it is looked what keeps this host from leading a job: longer than candidates wait before they
/// try again.
const TROUBLE_LOOKS: usize = 20;
const TROUBLE_LOOK: Duration = Duration::from_millis(20);

/// How long a submission waits for the cluster's state, at most: less than whoever asks for it waits for an answer.
const SUBMITS_WITHIN: Duration = Duration::from_secs(25);

/// A cluster, as one of its hosts tells it.
pub(crate) struct Served {
    name: String,
    cluster: ClusterSettings,
    managers: ResourceManagers,
    schedulers: Schedulers,
    /// The snapshots of the jobs that it leads.
    archives: Arc<Archives>,
    /// The jobs of which a snapshot is held here.
    turns: holding::Turns,
    /// Where snapshots are that are in no folder.
    shelf: GridShelf,
    /// How many watch maps here.
    watching: maps::Watching,
    /// What this machine has.
    machine: Resources,
    jobs: Jobs,
    directory: Directory,
    drains: Drains,
    /// From when the host stands for jobs until it ends.
    master: Mutex<Option<Arc<MasterProcess>>>,
}

impl Served {
    pub(crate) fn new(
        setup: &HostSetup,
        (schedulers, archives, shelf): (Schedulers, Arc<Archives>, GridShelf),
        machine: Resources,
        token: Option<Token>,
        tls: Option<Tls>,
    ) -> Arc<Self> {
        Arc::new(Served {
            name: setup.name.clone(),
            cluster: setup.cluster.clone(),
            managers: setup.managers.clone(),
            schedulers,
            archives,
            turns: holding::Turns::default(),
            shelf,
            watching: maps::Watching::default(),
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
            directory: Directory(Arc::clone(&setup.state)),
            drains: Drains::new(Arc::clone(&setup.state)),
            master: Mutex::new(None),
        })
    }

    /// The host stands for jobs.
    pub(crate) fn attend(&self, master: Arc<MasterProcess>) {
        *self.slot() = Some(master);
    }

    /// The host ends.
    pub(crate) fn leave(&self) {
        *self.slot() = None;
    }

    /// A host that is for one job sends others on: it would not lead them, and may not know the modules that they name.
    async fn check_takes(&self, job: &str) -> Result<(), Unanswered> {
        let Some(only) = self.jobs.only.as_deref().filter(|only| *only != job) else {
            return Ok(());
        };
        match self.directory.api_for(job).await? {
            Some(base) => Err(Unanswered::Elsewhere { base }),
            None => {
                let what = format!("host {:?} is for job {only:?} only", self.name);
                Err(Error::new(ErrorCode::WrongCluster, what)
                    .hint("start a host for all jobs: ardea cluster start")
                    .into())
            }
        }
    }

    /// Why this host can't make room for a job's snapshots: whoever reads it may be elsewhere, and able to reach that place.
    fn has_no_room(&self, job: &str, error: Error) -> Error {
        if !matches!(error.code(), ErrorCode::ReadFailed | ErrorCode::WriteFailed) {
            return error;
        }
        let what = format!("host {:?} can't keep the snapshots of {job:?}", self.name);
        let next = error.what_next().unwrap_or_default();
        let hint = format!("on that host, and in its environment: {next}");
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
            Unanswered::NotYet(
                Error::new(ErrorCode::Superseded, what).hint("try again in a moment"),
            )
        })
    }

    async fn command(&self, job: &str, command: Command) -> Answer<()> {
        let desk = self.desk(job).await?;
        self.have_done(&desk, command).await
    }

    async fn have_done(&self, desk: &JobDesk, command: Command) -> Answer<()> {
        match desk.command(command).await {
            Ok(()) => Ok(()),
            Err(undone) => Err(self.why_undone(desk, undone).await),
        }
    }

    async fn why_undone(&self, desk: &JobDesk, undone: Undone) -> Unanswered {
        let job = &desk.job().name;
        match undone {
            Undone::NotLed(error) => self.why_unled(job, Unanswered::NotYet(error)).await,
            // It may have been done: whoever asked knows that by this code, and takes any other for a refusal.
            Undone::Failed(error) if error.code() == ErrorCode::Superseded => {
                let lost = match self.lasting_trouble(job).await {
                    // With its way out: the hint says what to do about the doubt.
                    Some(trouble) => Error::new(error.code(), error.message()).because(trouble),
                    None => error,
                };
                lost.hint(DOUBTFUL).into()
            }
            Undone::Failed(error) => error.into(),
        }
    }

    /// The desk of a job that is led here; everything else is no answer.
    async fn desk(&self, job: &str) -> Answer<JobDesk> {
        match self.jobs.here(&*self.master()?, job).await {
            Ok(desk) => Ok(desk),
            Err(why) => Err(self.why_unled(job, why).await),
        }
    }

    /// If nobody leads a job because the cluster's state can't be written, that is what people can do something about.
    async fn why_unled(&self, job: &str, why: Unanswered) -> Unanswered {
        if !matches!(why, Unanswered::NotYet(_)) {
            return why;
        }
        let Some(trouble) = self.lasting_trouble(job).await else {
            return why;
        };
        let what = format!("nobody can lead the job {job:?} at the moment");
        let error = Error::new(trouble.code(), what).because(trouble.without_hint());
        let next = trouble.what_next().unwrap_or("its data goes on; try again");
        error.hint(next).into()
    }

    /// What keeps this host from leading a job, looked for a while: between a read that succeeds and a write that fails again there is
    /// none to be seen.
    async fn lasting_trouble(&self, job: &str) -> Option<Error> {
        for _ in 0..TROUBLE_LOOKS {
            if let Some(trouble) = self.trouble(job) {
                return Some(trouble);
            }
            tokio::time::sleep(TROUBLE_LOOK).await;
        }
        None
    }

    /// What keeps this host from leading a job, if something does.
    fn trouble(&self, job: &str) -> Option<Error> {
        let master = self.slot().clone()?;
        master.troubles().remove(job)
    }

    /// The jobs that a host leads, as it says itself.
    async fn led_by(&self, name: &str, api: &str) -> Vec<String> {
        if name == self.name {
            let Ok(master) = self.master() else {
                return Vec::new();
            };
            let led = master.desks().into_iter();
            let led = led.filter(|desk| matches!(desk.standing(), Standing::Leads { .. }));
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
            if let Ok(Found::There(at)) = self.jobs.find(&master, &job).await
                && at == api
            {
                led.push(job);
            }
        }
        led
    }

    /// A job's description, from the host that leads it.
    async fn describe_wherever(&self, job: &str) -> Answer<JobDescription> {
        match self.jobs.find(&*self.master()?, job).await? {
            Found::Here(desk) => {
                let view = desk.view().await?;
                let mut description = described::description(&view, None);
                description.summary = self.summary_of(&view).await;
                Ok(description)
            }
            Found::There(api) => Ok(self.jobs.client(&api)?.describe(job).await?),
            Found::Nobody(stored) => {
                let trouble = self.trouble(&stored.record.job.name);
                Ok(described::unled_description(&stored, trouble.as_ref()))
            }
        }
    }
}

impl Cluster for Served {
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
                match self.describe_wherever(&name).await {
                    Ok(description) => jobs.push(description.summary),
                    // Whoever leads it does not answer in time: what is stored is true as well.
                    Err(_) => match self.jobs.stored(&name).await {
                        Ok(stored) => {
                            let trouble = self.trouble(&name);
                            let unled = |stored| described::unled(&stored, trouble.as_ref());
                            jobs.extend(stored.map(unled));
                        }
                        // What can't be read hides no other job.
                        Err(error) => jobs.push(described::unreadable(name, &error)),
                    },
                }
            }
            Ok(jobs)
        })
    }

    fn past_jobs(&self) -> Pending<'_, Vec<PastJobSummary>> {
        Box::pin(async {
            let past = all_past_jobs(&*self.jobs.state).await?;
            Ok(past.iter().map(remembered::summary).collect())
        })
    }

    fn past<'a>(&'a self, job: &'a str) -> Pending<'a, Vec<PastJobDescription>> {
        Box::pin(async move {
            let past = self.jobs.all_past(job).await?;
            Ok(past.iter().map(remembered::description).collect())
        })
    }

    fn describe<'a>(&'a self, job: &'a str) -> Pending<'a, JobDescription> {
        Box::pin(async move {
            match self.jobs.find(&*self.master()?, job).await? {
                Found::Here(desk) => {
                    let (view, metrics) = (desk.view().await?, desk.metrics().await?);
                    let tell = |history: &History| described::description(&view, Some(history));
                    let mut description = metrics.ask(tell);
                    description.summary = self.summary_of(&view).await;
                    Ok(description)
                }
                Found::There(base) => Err(Unanswered::Elsewhere { base }),
                Found::Nobody(stored) => {
                    let trouble = self.trouble(job);
                    Ok(described::unled_description(&stored, trouble.as_ref()))
                }
            }
        })
    }

    fn submit(&self, request: SubmitRequest) -> Pending<'_, JobSummary> {
        Box::pin(async move {
            let SubmitRequest {
                definition,
                demand,
                packing,
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
            // A job that nobody can start is not taken.
            self.schedulers.get(&definition.scheduler)?;
            // Nor one whose name another has, which would leave its folder behind.
            if let Ok(Some(stored)) = self.jobs.stored(&job.name).await
                && stored.record.job != job
            {
                let (cluster, name) = (job.cluster, job.name);
                return Err(Error::from(Refused::NameTaken { cluster, name }).into());
            }
            // Nor one whose snapshots can't be kept.
            if let Some(promise) = Promise::of(&definition)? {
                self.have_place(&promise.place).await?;
            }
            let (promised, asked) = (definition.clone(), demand.clone());
            let shelter = self.archives.shelter();
            let making =
                move || ardea_checkpoint::cluster::make_room(&promised, &asked, shelter.as_ref());
            looking(making)
                .await?
                .map_err(|error| self.has_no_room(&job.name, error))?;
            let state = Arc::clone(&self.jobs.state);
            let patience = self.cluster.patience.min(SUBMITS_WITHIN);
            submit(state, definition, demand, packing, &self.managers, patience).await?;
            match self.jobs.stored(&job.name).await? {
                Some(stored) => Ok(described::unled(&stored, None)),
                None => Err(Error::new(
                    ErrorCode::NoSuchJob,
                    format!("job {job} was taken, and is gone already"),
                )
                .into()),
            }
        })
    }

    fn activate<'a>(&'a self, job: &'a str) -> Pending<'a, ()> {
        Box::pin(self.command(job, Command::Activate))
    }

    fn deactivate<'a>(&'a self, job: &'a str) -> Pending<'a, ()> {
        Box::pin(self.command(job, Command::Deactivate))
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
                // One of them has ended in this moment: whoever asks again is told which.
                return Err(self.jobs.without_leader(job).await?);
            }
            self.have_done(&desk, Command::Kill).await
        })
    }

    fn restart<'a>(&'a self, job: &'a str, container: ContainerId) -> Pending<'a, ()> {
        Box::pin(async move {
            let desk = self.desk(job).await?;
            match self.have_done(&desk, Command::Restart(container)).await {
                Err(Unanswered::Failed(error)) if error.code() == ErrorCode::NoSuchContainer => {
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
        Box::pin(self.command(job, snapshots::wanted(request)))
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

    fn snapshots<'a>(&'a self, job: &'a str) -> Pending<'a, SnapshotsView> {
        Box::pin(self.look_at_snapshots(job, false))
    }

    fn check_snapshots<'a>(&'a self, job: &'a str) -> Pending<'a, SnapshotsView> {
        Box::pin(self.look_at_snapshots(job, true))
    }

    fn plans<'a>(&'a self, job: &'a str) -> Pending<'a, Plans> {
        Box::pin(async move {
            match self.jobs.find(&*self.master()?, job).await? {
                Found::Here(desk) => {
                    let view = desk.view().await?;
                    let stored = self.jobs.stored(job).await?;
                    let stored =
                        stored.ok_or_else(|| ardea_rest::no_such_job(job, [].into_iter()))?;
                    Ok(described::plans(&stored, Some(&view)))
                }
                Found::There(base) => Err(Unanswered::Elsewhere { base }),
                Found::Nobody(stored) => Ok(described::plans(&stored, None)),
            }
        })
    }

    fn logs<'a>(&'a self, job: &'a str, query: LogQuery) -> Pending<'a, LogStream> {
        Box::pin(async move {
            let submission = submission_of(query.submission.as_deref())?;
            let is_it = |desk: &JobDesk| submission.is_none_or(|it| it == desk.job().submission);
            let desk = match self.jobs.here(&*self.master()?, job).await {
                Ok(desk) if is_it(&desk) => desk,
                Err(unanswered) if !is_absent(&unanswered) => {
                    // One that is gone is told of, whatever is wrong with the one that is there.
                    let is_gone =
                        submission.is_some() && self.jobs.past(job, submission).await?.is_some();
                    match is_gone {
                        true => return self.kept_logs(job, submission, query).await,
                        false => return Err(self.why_unled(job, unanswered).await),
                    }
                }
                _ => return self.kept_logs(job, submission, query).await,
            };
            let known = containers_of(&desk.view().await?);
            let wanted = match query.container {
                Some(container) if !known.contains(&container) => {
                    return Err(no_such_container(job, container, &known).into());
                }
                Some(container) => vec![container],
                None => known,
            };
            let scheduler = desk.scheduler().await?;
            let over = async move {
                desk.wait_for(|standing| *standing == Standing::Over).await;
            };
            Ok(logs::stream(scheduler, wanted, query, over))
        })
    }

    fn metrics<'a>(&'a self, job: &'a str, query: MetricsQuery) -> Pending<'a, Vec<SampleView>> {
        Box::pin(async move {
            let ask = |history: &History| measured::latest(history, &query, now_ms());
            self.measured(job, ask).await
        })
    }

    fn metrics_range<'a>(&'a self, job: &'a str, query: RangeQuery) -> Pending<'a, MetricsRange> {
        Box::pin(async move {
            let ask = |history: &History| measured::range(history, &query, now_ms());
            self.measured(job, ask).await
        })
    }

    fn top<'a>(&'a self, job: &'a str) -> Pending<'a, TopView> {
        Box::pin(async move {
            let desk = self.desk(job).await?;
            let (view, metrics) = (desk.view().await?, desk.metrics().await?);
            Ok(metrics.ask(|history| measured::top(history, &view, now_ms())))
        })
    }
}

/// The containers that a job has by its plan.
fn containers_of(view: &JobView) -> Vec<ContainerId> {
    let containers = view.containers.iter();
    containers.map(|container| container.id).collect()
}

/// Has the disk looked at, beside everything else.
async fn looking<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let looked = tokio::task::spawn_blocking(look).await;
    Ok(looked.map_err(|error| {
        Error::new(ErrorCode::Internal, "looking for files was cut off").because(error)
    })?)
}

fn is_absent(unanswered: &Unanswered) -> bool {
    matches!(unanswered, Unanswered::Failed(error) if error.code() == ErrorCode::NoSuchJob)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
