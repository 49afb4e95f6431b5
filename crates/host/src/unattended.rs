//! A cluster of which no host is up: what its state remembers, and what this machine has kept.

use std::sync::Arc;

use ardea_api::{
    ClusterSettings, JobDescription, JobSummary, LogQuery, LogStream, PastJobDescription,
    PastJobSummary,
};
use ardea_control::JobRef;
use ardea_core::{Error, Result};
use ardea_master::{all_past_jobs, past_jobs_of};
use ardea_scheduler::KeptOutput;
use ardea_state_manager::StateManager;
use ardea_state_manager::layout::JobLayout;

use crate::jobs::{Jobs, submission_of};
use crate::kept::{
    Reach, containers, kept_here, no_such_container, no_such_submission, nothing_kept, wanted,
};
use crate::{described, logs, remembered};

/// A cluster of which no host is up, for whoever asks after its jobs all the same. It reads, and changes nothing.
#[derive(Clone, Debug)]
pub struct Unattended {
    cluster: ClusterSettings,
    jobs: Jobs,
    /// Why nobody leads its jobs.
    because: Error,
}

impl Unattended {
    /// The cluster with that state; `because` is why no host answers.
    pub fn new(cluster: ClusterSettings, state: Arc<dyn StateManager>, because: Error) -> Self {
        Unattended {
            cluster,
            jobs: Jobs {
                own: String::new(),
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
        if JobLayout::of(job).is_err() {
            return Ok(Vec::new());
        }
        let past = past_jobs_of(&*self.jobs.state, job).await?;
        Ok(past.iter().map(remembered::description).collect())
    }

    /// What a job has written, as far as this machine has it: the one that is there, though none of its hosts is, or else the last one of
    /// the name that is gone. Never what another submission wrote.
    ///
    /// # Errors
    ///
    /// Why no host is up, if no such job is known, or nothing that it wrote is here while it is there;
    /// [`NoSuchJob`](ardea_core::ErrorCode::NoSuchJob) with where it ran, if it is gone and nothing of what it wrote is here.
    pub async fn logs(&self, job: &str, query: LogQuery) -> Result<LogStream> {
        let wants = submission_of(query.submission.as_deref())?;
        let is_it = |submission| wants.is_none_or(|wanted| wanted == submission);
        let stored = self.jobs.stored(job).await?;
        let there = stored.filter(|stored| is_it(stored.record.job.submission));
        let kept: Vec<KeptOutput> = match there {
            Some(stored) => {
                let scheduler = &stored.submitted.definition.scheduler;
                let job = &stored.record.job;
                let kept = kept_here(&self.cluster, job, scheduler, Reach::AllBut(&[]));
                if kept.is_empty() {
                    return Err(self.nothing_here(job));
                }
                kept
            }
            None => {
                let Some(past) = self.jobs.past(job, wants).await? else {
                    return Err(match wants {
                        Some(submission) => no_such_submission(job, submission),
                        None => self.because.clone(),
                    });
                };
                let scheduler = &past.scheduler;
                let kept = kept_here(&self.cluster, &past.job, scheduler, Reach::AllBut(&[]));
                if kept.is_empty() {
                    return Err(nothing_kept(&self.cluster, &past));
                }
                kept
            }
        };
        let files = wanted(&kept, query.container)?;
        if let (Some(container), true) = (query.container, files.is_empty()) {
            return Err(no_such_container(job, container, &containers(&kept)?));
        }
        Ok(logs::kept(files, Vec::new(), None, query))
    }

    /// That a job is there, and what it wrote is not here.
    fn nothing_here(&self, job: &JobRef) -> Error {
        let what = format!(
            "the hosts of job {:?} are gone, and nothing of what it wrote is on this machine",
            job.name
        );
        let error = Error::new(self.because.code(), what).because(self.because.without_hint());
        error.hint("start a host (ardea cluster start), or ask on a machine that it runs on")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ardea_api::CLUSTER_SETTINGS;
    use ardea_control::{JobDefinition, ProgramRef};
    use ardea_core::ErrorCode;
    use ardea_core::settings::{Resolver, Schema};
    use ardea_master::{PastJob, submit};
    use ardea_packing::{
        ContainerId, JobDemand, PackingConfig, ResourceManagers, Resources, VertexDemand,
    };
    use ardea_state_manager::layout::past_job;
    use ardea_state_manager::{Expected, FileState, StateOptions};

    use super::*;
    use crate::kept::local_folder;

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
    async fn a_container_that_a_job_never_had_is_named_with_those_it_had() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = unattended(folder.path()).await;
        write(&cluster, 1, "earlier\n");
        let query = LogQuery {
            submission: Some("1".into()),
            container: Some(ContainerId(7)),
            ..LogQuery::default()
        };
        let error = told(&cluster, query).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::NoSuchContainer);
        assert!(error.to_string().contains("it has one: 1"), "{error}");
    }
}
