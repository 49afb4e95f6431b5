//! Jobs that no host answers for: what their cluster's state remembers of them, and what this machine has kept.

use std::sync::Arc;

use crate::leader::{PastJob, StoredJob, all_past_jobs};
use ardea_coordination::control::JobRef;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, Result};
use ardea_metastore::StateManager;
use ardea_rest::{
    ClusterSettings, JobDescription, JobSummary, LogQuery, LogStream, PastJobDescription,
    PastJobSummary, no_such_container,
};
use ardea_scheduler::KeptOutput;

use crate::daemon::jobs::{Jobs, submission_of};
use crate::daemon::kept::{Reach, kept_here, nothing_kept, wanted};
use crate::daemon::{described, logs, remembered};

/// A cluster of which no host is up, or none for the job that somebody asks after all the same. It reads, and changes nothing.
#[derive(Clone, Debug)]
pub struct Unattended {
    cluster: ClusterSettings,
    jobs: Jobs,
    /// Why no host answers.
    because: Error,
}

impl Unattended {
    /// The cluster with that state; `because` is why no host answers.
    pub fn new(cluster: ClusterSettings, state: Arc<dyn StateManager>, because: Error) -> Self {
        Unattended {
            cluster,
            jobs: Jobs {
                own: String::new(),
                only: None,
                state,
                token: None,
                tls: None,
            },
            because,
        }
    }

    /// The jobs that are there, whose data may go on, sorted by name.
    ///
    /// # Errors
    ///
    /// As all methods: when the state manager doesn't answer.
    pub async fn list(&self) -> Result<Vec<JobSummary>> {
        let mut jobs = Vec::new();
        for name in self.jobs.names().await? {
            match self.jobs.stored(&name).await {
                Ok(Some(stored)) => jobs.push(described::unled(&stored, Some(&self.because))),
                Ok(None) => {}
                Err(error) => jobs.push(described::unreadable(name, &error)),
            }
        }
        Ok(jobs)
    }

    /// What is stored of a job that is there.
    ///
    /// # Errors
    ///
    /// When the state manager doesn't answer, or what is stored can't be read.
    pub async fn describe(&self, job: &str) -> Result<Option<JobDescription>> {
        let stored = self.jobs.stored(job).await?;
        Ok(stored.map(|stored| described::unled_description(&stored, Some(&self.because))))
    }

    /// The jobs that are gone and remembered, the latest first.
    ///
    /// # Errors
    ///
    /// When the state manager doesn't answer.
    pub async fn past_jobs(&self) -> Result<Vec<PastJobSummary>> {
        let past = all_past_jobs(&*self.jobs.state).await?;
        Ok(past.iter().map(remembered::summary).collect())
    }

    /// What is remembered of the jobs of that name that are gone, the latest first.
    ///
    /// # Errors
    ///
    /// When the state manager doesn't answer.
    pub async fn past(&self, job: &str) -> Result<Vec<PastJobDescription>> {
        let past = self.jobs.all_past(job).await?;
        Ok(past.iter().map(remembered::description).collect())
    }

    /// Why a job, or that submission of it, is not there: when and how it ended, or that nothing is known of it. Nothing if it is there.
    ///
    /// # Errors
    ///
    /// When the state manager doesn't answer, what is stored can't be read, or that is no submission.
    pub async fn absent(&self, job: &str, submission: Option<&str>) -> Result<Option<Error>> {
        self.jobs.absent(job, submission_of(submission)?).await
    }

    /// What a job has written, as far as this machine has it: the one that is there, though none of its hosts is, or else the last one of
    /// the name that is gone. Never what another submission wrote.
    ///
    /// # Errors
    ///
    /// * Why no host answers, if nothing that it wrote is here while the job is there;
    /// * [`NoSuchContainer`](ardea_core::ErrorCode::NoSuchContainer): the job that is there has no such container by its plan, or nothing is
    ///   here of that container of one that is gone;
    /// * [`NoSuchJob`](ardea_core::ErrorCode::NoSuchJob): no such job or submission is known, or it is gone and nothing of what it wrote
    ///   is here;
    /// * [`StateCorrupt`](ardea_core::ErrorCode::StateCorrupt): what is stored of the job that is there can't be read, and may be what is meant;
    /// * [`BadRequest`](ardea_core::ErrorCode::BadRequest): more lines are wanted than [can be asked for](LogQuery::check).
    pub async fn logs(&self, job: &str, query: LogQuery) -> Result<LogStream> {
        query.check()?;
        let wants = submission_of(query.submission.as_deref())?;
        // One that is gone is told of, whatever is wrong with the one that is there.
        if wants.is_some()
            && let Some(past) = self.jobs.past(job, wants).await?
        {
            return self.logs_of_past(&past, query);
        }
        let stored = self.jobs.stored(job).await?;
        let is_it = |there: &StoredJob| wants.is_none_or(|it| it == there.record.job.submission);
        if let Some(stored) = stored.filter(is_it) {
            return self.logs_of_stored(&stored, query);
        }
        match self.jobs.past(job, wants).await? {
            Some(past) => self.logs_of_past(&past, query),
            None => Err(self.jobs.gone(job, wants).await?),
        }
    }

    fn logs_of_stored(&self, stored: &StoredJob, query: LogQuery) -> Result<LogStream> {
        let job = &stored.record.job;
        let scheduler = &stored.submitted.definition.scheduler;
        let files = self.files(job, scheduler, query.container)?;
        if let Some(files) = files {
            return Ok(logs::kept(files, Vec::new(), None, query));
        }
        let plan = stored.record.plan.iter();
        let planned = plan.flat_map(|plan| plan.containers().iter().map(|one| one.id));
        let planned: Vec<ContainerId> = planned.collect();
        Err(match query.container {
            Some(id) if !planned.contains(&id) => no_such_container(&job.name, id, &planned),
            container => self.nothing_here(job, container),
        })
    }

    fn logs_of_past(&self, past: &PastJob, query: LogQuery) -> Result<LogStream> {
        match self.files(&past.job, &past.scheduler, query.container)? {
            Some(files) => Ok(logs::kept(files, Vec::new(), None, query)),
            None => Err(nothing_kept(&self.cluster, past, query.container)),
        }
    }

    /// What this machine has of what a job wrote, or of what one container of it did; nothing if there is none.
    fn files(
        &self,
        job: &JobRef,
        scheduler: &str,
        container: Option<ContainerId>,
    ) -> Result<Option<Vec<(ContainerId, KeptOutput)>>> {
        let kept = kept_here(&self.cluster, job, scheduler, Reach::All);
        let files = wanted(&kept, container)?;
        // A job may have written nothing, a container that is asked after has not.
        let is_found = !kept.is_empty() && (container.is_none() || !files.is_empty());
        Ok(is_found.then_some(files))
    }

    /// That a job is there, and what it wrote is not here, or what a container of it did.
    fn nothing_here(&self, job: &JobRef, container: Option<ContainerId>) -> Error {
        let whose = container.map_or_else(|| "it".into(), |id| format!("its container {id}"));
        let what = format!(
            "the hosts of job {:?} are gone, and nothing of what {whose} wrote is on this machine",
            job.name
        );
        let error = Error::new(self.because.code(), what).because(self.because.without_hint());
        error.hint("start a host (ardea cluster start), or ask on a machine that it runs on")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::leader::{PastJob, submit};
    use ardea_config::{Resolver, Schema};
    use ardea_coordination::control::{JobDefinition, ProgramRef};
    use ardea_coordination::packing::{
        ContainerId, JobDemand, PackingConfig, ResourceManagers, Resources, VertexDemand,
    };
    use ardea_core::ErrorCode;
    use ardea_metastore::layout::{JobLayout, past_job};
    use ardea_metastore::{Expected, FileState, StateOptions};
    use ardea_rest::CLUSTER_SETTINGS;

    use super::*;
    use crate::daemon::kept::local_folder;

    fn relay(submission: u64) -> JobRef {
        JobRef {
            cluster: "local".into(),
            name: "relay".into(),
            submission,
        }
    }

    /// A job that is there, and an earlier one of the same name that is gone.
    async fn with_two(state: &Arc<dyn StateManager>) {
        let past = serde_json::json!({
            "job": relay(1), "finished": false, "started": true, "submitted_ms": 1, "ended_ms": 2,
            "packing": "round-robin", "scheduler": "local", "version": "0", "containers": 1,
            "instances": 1, "problems": [], "notes": [], "machines": ["10.0.0.7"],
        });
        let past: PastJob = serde_json::from_value(past).unwrap();
        let value = serde_json::to_vec(&past).unwrap();
        let path = past_job("relay", 1).unwrap();
        state.set(&path, &value, Expected::Any).await.unwrap();
        let definition = JobDefinition {
            job: relay(2),
            program: ProgramRef {
                package: "0".repeat(64),
                executable: "none".into(),
                arguments: Vec::new(),
            },
            packing: "round-robin".into(),
            scheduler: "local".into(),
            settings: Default::default(),
            version: "0".into(),
        };
        let demand = JobDemand::new("relay").vertex(VertexDemand::new("words", 1, Resources::ZERO));
        let (packing, managers) = (PackingConfig::default(), ResourceManagers::builtin());
        let patience = Duration::from_secs(60);
        let submitted = submit(
            Arc::clone(state),
            definition,
            demand,
            packing,
            &managers,
            patience,
        );
        submitted.await.unwrap();
    }

    async fn unattended(folder: &std::path::Path) -> Unattended {
        let schema = Schema::of(CLUSTER_SETTINGS);
        let resolved = Resolver::new(&schema).resolve().unwrap();
        let cluster = ClusterSettings::from_settings(&resolved, Some(folder)).unwrap();
        let state = FileState::open(&folder.join("state"), StateOptions::default()).await;
        let state: Arc<dyn StateManager> = Arc::new(state.unwrap());
        with_two(&state).await;
        let because = Error::new(ErrorCode::Network, "no host is up");
        Unattended::new(cluster, state, because)
    }

    fn write(cluster: &Unattended, submission: u64, text: &str) {
        let job = format!("jobs/relay-{submission:016x}/container-1");
        let folder = local_folder(&cluster.cluster.directory).join(job);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("stdout.log"), text).unwrap();
    }

    async fn told(cluster: &Unattended, query: LogQuery) -> Result<Vec<String>> {
        let mut lines = cluster.logs("relay", query).await?;
        let mut told = Vec::new();
        while let Some(line) = lines.recv().await {
            told.push(line?.text);
        }
        Ok(told)
    }

    #[tokio::test]
    async fn what_a_job_that_is_there_wrote_is_told_and_never_what_an_earlier_one_did() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = unattended(folder.path()).await;
        write(&cluster, 1, "earlier\n");
        let error = told(&cluster, LogQuery::default()).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Network);
        assert!(error.to_string().contains("are gone"), "{error}");
        write(&cluster, 2, "now\n");
        assert_eq!(told(&cluster, LogQuery::default()).await.unwrap(), ["now"]);
        let of = |submission: &str| LogQuery {
            submission: Some(submission.into()),
            ..LogQuery::default()
        };
        assert_eq!(told(&cluster, of("1")).await.unwrap(), ["earlier"]);
        assert_eq!(told(&cluster, of("2")).await.unwrap(), ["now"]);
        let error = told(&cluster, of("3")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::NoSuchJob);
        assert!(error.to_string().contains("submission 3"), "{error}");
    }

    #[tokio::test]
    async fn more_lines_than_can_be_asked_for_are_refused_without_hosts_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = unattended(folder.path()).await;
        write(&cluster, 2, "now\n");
        let of = |tail| LogQuery {
            tail: Some(tail),
            ..LogQuery::default()
        };
        let most = ardea_rest::MOST_TAIL_LINES;
        assert_eq!(told(&cluster, of(most)).await.unwrap(), ["now"]);
        let error = told(&cluster, of(most + 1)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRequest, "{error}");
    }

    #[tokio::test]
    async fn what_is_not_there_is_said_to_have_ended_or_never_to_have_been() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = unattended(folder.path()).await;
        let why = async |job, submission| {
            let why = cluster.absent(job, submission).await.unwrap();
            why.map(|error| (error.code(), error.message()))
        };
        assert_eq!(why("relay", None).await, None);
        assert_eq!(why("relay", Some("2")).await, None);
        for (job, submission, told) in [
            ("relay", Some("1"), "was killed"),
            ("relay", Some("3"), "submission 3"),
            ("rely", None, "no job \"rely\""),
        ] {
            let (code, what) = why(job, submission).await.unwrap();
            assert_eq!(code, ErrorCode::NoSuchJob, "{what}");
            assert!(what.contains(told), "{what}");
        }
        let error = cluster.logs("rely", LogQuery::default()).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::NoSuchJob, "{error}");
    }

    /// The job that is there has a plan with one container.
    async fn plan(cluster: &Unattended) {
        let state = &cluster.jobs.state;
        let layout = JobLayout::of("relay").unwrap();
        let node = state.get(layout.definition()).await.unwrap().unwrap();
        let mut stored = StoredJob::decode(&node.value).unwrap();
        let policy = ResourceManagers::builtin().get("round-robin").unwrap();
        let plan = policy.pack(&stored.record.demand, &PackingConfig::default());
        Arc::make_mut(&mut stored.record).plan = Some(Arc::new(plan.unwrap()));
        let value = stored.encode().unwrap();
        let set = state.set(layout.definition(), &value, Expected::Any);
        set.await.unwrap();
    }

    async fn of_container(cluster: &Unattended, submission: &str, container: u32) -> Error {
        let query = LogQuery {
            submission: Some(submission.into()),
            container: Some(ContainerId(container)),
            ..LogQuery::default()
        };
        told(cluster, query).await.unwrap_err()
    }

    #[tokio::test]
    async fn only_of_what_no_plan_has_it_is_said_that_the_job_has_it_not() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = unattended(folder.path()).await;
        write(&cluster, 1, "earlier\n");
        let gone = of_container(&cluster, "1", 7).await;
        assert_eq!(gone.code(), ErrorCode::NoSuchContainer);
        let text = gone.to_string();
        assert!(text.contains("nothing of a container 7"), "{text}");
        assert!(text.contains("10.0.0.7"), "{text}");

        let none = of_container(&cluster, "2", 1).await;
        assert_eq!(none.code(), ErrorCode::NoSuchContainer, "{none}");
        assert!(none.to_string().contains("it has none yet"), "{none}");
        plan(&cluster).await;
        // What is on this machine says nothing of what is on others.
        let other = of_container(&cluster, "2", 1).await;
        assert_eq!(other.code(), ErrorCode::Network, "{other}");
        assert!(other.to_string().contains("its container 1"), "{other}");
        let none = of_container(&cluster, "2", 7).await;
        assert_eq!(none.code(), ErrorCode::NoSuchContainer, "{none}");
        assert!(none.to_string().contains("it has one: 1"), "{none}");
    }

    #[tokio::test]
    async fn a_job_of_another_version_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = unattended(folder.path()).await;
        let state = &cluster.jobs.state;
        let layout = JobLayout::of("relay").unwrap();
        let node = state.get(layout.definition());
        let mut value = node.await.unwrap().unwrap().value.to_vec();
        // The version stands behind four letters.
        value[4] += 1;
        let other = JobLayout::of("other").unwrap();
        let set = state.set(other.definition(), &value, Expected::Any);
        set.await.unwrap();
        let listed = cluster.list().await.unwrap();
        let names: Vec<&str> = listed.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["other", "relay"]);
    }

    #[tokio::test]
    async fn a_job_that_can_not_be_read_hides_none_of_what_an_earlier_one_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = unattended(folder.path()).await;
        write(&cluster, 1, "earlier\n");
        let layout = JobLayout::of("relay").unwrap();
        let damaged = cluster
            .jobs
            .state
            .set(layout.definition(), b"?", Expected::Any);
        damaged.await.unwrap();
        let of = |submission: Option<&str>| LogQuery {
            submission: submission.map(String::from),
            ..LogQuery::default()
        };
        assert_eq!(told(&cluster, of(Some("1"))).await.unwrap(), ["earlier"]);
        for submission in [None, Some("2")] {
            let error = told(&cluster, of(submission)).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::StateCorrupt, "{error}");
        }
    }
}
