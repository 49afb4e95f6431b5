//! Access to jobs while no host serves them, through the metadata store and the files of this
//! machine.

use std::sync::Arc;

use crate::leader::{PastJob, StoredJob, all_past_jobs};
use ardea_coordination::control::JobRef;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, Result};
use ardea_metastore::MetadataStore;
use ardea_rest::{
    ClusterSettings, JobDescription, JobSummary, LogQuery, LogStream, PastJobDescription,
    PastJobSummary, no_such_container,
};
use ardea_scheduler::RetainedLogs;

use crate::daemon::jobs::{Jobs, submission_of};
use crate::daemon::retained_logs::{FileScope, local_logs, nothing_kept, wanted};
use crate::daemon::{describe, logs};

/// Read-only access to a cluster that has no available host, or no host for the requested job.
#[derive(Clone, Debug)]
pub struct OfflineJobs {
    cluster: ClusterSettings,
    jobs: Jobs,
    /// The error of the last request to a host.
    because: Error,
}

impl OfflineJobs {
    /// Creates the access through a metadata store; `because` is the error of the request to a
    /// host.
    pub fn new(cluster: ClusterSettings, state: Arc<dyn MetadataStore>, because: Error) -> Self {
        OfflineJobs {
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

    /// Returns the existing jobs, sorted by name. Their containers may still run.
    ///
    /// # Errors
    ///
    /// If the metadata store is unavailable.
    pub async fn list(&self) -> Result<Vec<JobSummary>> {
        let mut jobs = Vec::new();
        for name in self.jobs.names().await? {
            match self.jobs.stored(&name).await {
                Ok(Some(stored)) => jobs.push(describe::unled(&stored, Some(&self.because))),
                Ok(None) => {}
                Err(error) => jobs.push(describe::unreadable(name, &error)),
            }
        }
        Ok(jobs)
    }

    /// Returns the description of an existing job.
    ///
    /// # Errors
    ///
    /// If the metadata store is unavailable, or the stored job is unreadable.
    pub async fn describe(&self, job: &str) -> Result<Option<JobDescription>> {
        let stored = self.jobs.stored(job).await?;
        Ok(stored.map(|stored| describe::unled_description(&stored, Some(&self.because))))
    }

    /// Returns the ended jobs, latest first.
    ///
    /// # Errors
    ///
    /// If the metadata store is unavailable.
    pub async fn past_jobs(&self) -> Result<Vec<PastJobSummary>> {
        let past = all_past_jobs(&*self.jobs.state).await?;
        Ok(past.into_iter().map(|it| it.description.summary).collect())
    }

    /// Returns the ended jobs of that name, latest first.
    ///
    /// # Errors
    ///
    /// If the metadata store is unavailable.
    pub async fn past(&self, job: &str) -> Result<Vec<PastJobDescription>> {
        let past = self.jobs.all_past(job).await?;
        Ok(past.into_iter().map(|it| it.description).collect())
    }

    /// Returns the error for a missing job, or a missing submission of the job; `None` if it
    /// exists.
    ///
    /// # Errors
    ///
    /// If the metadata store is unavailable, the stored job is unreadable, or the submission is
    /// malformed.
    pub async fn absent(&self, job: &str, submission: Option<&str>) -> Result<Option<Error>> {
        self.jobs.absent(job, submission_of(submission)?).await
    }

    /// Streams the log lines of a job from this machine's files. The job is the existing one, or
    /// else the latest ended job of the name. All lines belong to one submission.
    ///
    /// # Errors
    ///
    /// * The error that makes the hosts unavailable, if the job exists but its files are not on
    ///   this machine.
    /// * [`NoSuchContainer`](ardea_core::ErrorCode::NoSuchContainer): the plan of the existing job
    ///   lacks the container, or an ended job has no files of it here.
    /// * [`NoSuchJob`](ardea_core::ErrorCode::NoSuchJob): the job or submission is unknown, or it
    ///   has ended and has no files here.
    /// * [`MetastoreCorrupt`](ardea_core::ErrorCode::MetastoreCorrupt): the existing job is
    ///   unreadable and may be the requested submission.
    /// * [`BadRequest`](ardea_core::ErrorCode::BadRequest): more lines are requested than
    ///   [allowed](LogQuery::check).
    pub async fn logs(&self, job: &str, query: LogQuery) -> Result<LogStream> {
        query.check()?;
        let wants = submission_of(query.submission.as_deref())?;
        // An ended submission is served even if the current job is unreadable.
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
        match self.files(&past.job, &past.description.scheduler, query.container)? {
            Some(files) => Ok(logs::kept(files, Vec::new(), None, query)),
            None => Err(nothing_kept(&self.cluster, past, query.container)),
        }
    }

    /// Returns this machine's log files of a job, or of one of its containers; `None` if there are
    /// none.
    fn files(
        &self,
        job: &JobRef,
        scheduler: &str,
        container: Option<ContainerId>,
    ) -> Result<Option<Vec<(ContainerId, RetainedLogs)>>> {
        let kept = local_logs(&self.cluster, job, scheduler, FileScope::All);
        let files = wanted(&kept, container)?;
        // An ended job may have written nothing; a requested container must be found.
        let is_found = !kept.is_empty() && (container.is_none() || !files.is_empty());
        Ok(is_found.then_some(files))
    }

    /// Returns the error for an existing job, or one of its containers, without log files on this
    /// machine.
    fn nothing_here(&self, job: &JobRef, container: Option<ContainerId>) -> Error {
        let whose = container.map_or_else(|| "it".into(), |id| format!("its container {id}"));
        let what = format!(
            "the hosts of job {:?} are gone, and no logs of {whose} are on this machine",
            job.name
        );
        let error = Error::new(self.because.code(), what).because(self.because.without_hint());
        error
            .hint("start a host (ardea cluster start), or repeat this on a machine that it runs on")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::leader::{PastJob, submit};
    use ardea_config::{Resolver, Schema};
    use ardea_coordination::control::{JobDefinition, ProgramRef};
    use ardea_coordination::packing::{
        ContainerId, JobDemand, PackingConfig, PackingPolicies, Resources, VertexDemand,
    };
    use ardea_core::ErrorCode;
    use ardea_metastore::layout::{JobLayout, past_job};
    use ardea_metastore::{Expected, FileState, StateOptions};
    use ardea_rest::CLUSTER_SETTINGS;

    use super::*;
    use crate::daemon::retained_logs::local_folder;

    fn relay(submission: u64) -> JobRef {
        JobRef {
            cluster: "local".into(),
            name: "relay".into(),
            submission,
        }
    }

    /// Stores an existing job and an ended one of the same name.
    async fn with_two(state: &Arc<dyn MetadataStore>) {
        let description = serde_json::json!({
            "name": "relay", "submission": "1", "ending": "killed", "has_run": true,
            "submitted_ms": 1, "ended_ms": 2, "container_count": 1, "instance_count": 1,
            "version": "0", "packing": "round-robin", "scheduler": "local", "problems": [],
            "notes": [], "machines": ["10.0.0.7"],
        });
        let past = serde_json::json!({ "job": relay(1), "description": description });
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
        let (packing, managers) = (PackingConfig::default(), PackingPolicies::builtin());
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

    async fn unattended(folder: &std::path::Path) -> OfflineJobs {
        let schema = Schema::of(CLUSTER_SETTINGS);
        let resolved = Resolver::new(&schema).resolve().unwrap();
        let cluster = ClusterSettings::from_settings(&resolved, Some(folder)).unwrap();
        let state = FileState::open(&folder.join("state"), StateOptions::default()).await;
        let state: Arc<dyn MetadataStore> = Arc::new(state.unwrap());
        with_two(&state).await;
        let because = Error::new(ErrorCode::Network, "no host is up");
        OfflineJobs::new(cluster, state, because)
    }

    fn write(cluster: &OfflineJobs, submission: u64, text: &str) {
        let job = format!("jobs/relay-{submission:016x}/container-1");
        let folder = local_folder(&cluster.cluster.directory).join(job);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("stdout.log"), text).unwrap();
    }

    async fn told(cluster: &OfflineJobs, query: LogQuery) -> Result<Vec<String>> {
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
        let most = ardea_rest::MAX_TAIL_LINES;
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

    /// Gives the existing job a plan with one container.
    async fn plan(cluster: &OfflineJobs) {
        let state = &cluster.jobs.state;
        let layout = JobLayout::of("relay").unwrap();
        let node = state.get(layout.definition()).await.unwrap().unwrap();
        let mut stored = StoredJob::decode(&node.value).unwrap();
        let policy = PackingPolicies::builtin().get("round-robin").unwrap();
        let plan = policy.pack(&stored.record.demand, &PackingConfig::default());
        Arc::make_mut(&mut stored.record).plan = Some(Arc::new(plan.unwrap()));
        let value = stored.encode().unwrap();
        let set = state.set(layout.definition(), &value, Expected::Any);
        set.await.unwrap();
    }

    async fn of_container(cluster: &OfflineJobs, submission: &str, container: u32) -> Error {
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
        assert!(text.contains("no logs of a container 7"), "{text}");
        assert!(text.contains("10.0.0.7"), "{text}");

        let none = of_container(&cluster, "2", 1).await;
        assert_eq!(none.code(), ErrorCode::NoSuchContainer, "{none}");
        assert!(none.to_string().contains("it has none yet"), "{none}");
        plan(&cluster).await;
        // The files of this machine say nothing about other machines.
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
        // The version follows four magic bytes.
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
            assert_eq!(error.code(), ErrorCode::MetastoreCorrupt, "{error}");
        }
    }
}
