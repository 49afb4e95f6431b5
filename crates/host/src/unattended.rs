//! A cluster of which no host is up: what its state remembers, and what this machine has kept.

use std::sync::Arc;

use ardea_api::{
    ClusterSettings, JobDescription, JobSummary, LogQuery, LogStream, PastJobDescription,
    PastJobSummary,
};
use ardea_core::{Error, Result};
use ardea_master::{all_past_jobs, past_jobs_of};
use ardea_scheduler::KeptOutput;
use ardea_state_manager::StateManager;
use ardea_state_manager::layout::JobLayout;

use crate::jobs::{Jobs, submission_of};
use crate::kept::{Reach, kept_here, nothing_kept, wanted};
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

    /// What a job that is gone has written, as far as this machine has it.
    ///
    /// # Errors
    ///
    /// Why no host is up, if no such job is remembered; [`NoSuchJob`](ardea_core::ErrorCode::NoSuchJob) with where it ran, if nothing
    /// of what it wrote is here.
    pub async fn logs(&self, job: &str, query: LogQuery) -> Result<LogStream> {
        let past = match JobLayout::of(job) {
            Ok(_) => past_jobs_of(&*self.jobs.state, job).await?,
            Err(_) => Vec::new(),
        };
        let wants = submission_of(&query)?;
        let mut past = past.into_iter();
        let is_it = |submission| wants.is_none_or(|wanted| wanted == submission);
        let Some(past) = past.find(|past| is_it(past.job.submission)) else {
            return Err(self.because.clone());
        };
        let kept: Vec<KeptOutput> = kept_here(&self.cluster, &past, Reach::AllBut(&[]));
        if kept.is_empty() {
            return Err(nothing_kept(&self.cluster, &past));
        }
        let files = wanted(kept, query.container)?;
        Ok(logs::kept(files, Vec::new(), None, query))
    }
}
