//! Lookup of jobs and their leaders.

use std::sync::Arc;
use std::time::Duration;

use crate::leader::{
    JobHandle, JobStore, LeadershipState, MasterProcess, PastJob, StoredJob, host_of,
    is_unreadable, past_jobs_of,
};
use ardea_core::{Error, ErrorCode, Result, Token};
use ardea_metastore::MetadataStore;
use ardea_metastore::layout::{self, JobLayout};
use ardea_network::tls::Tls;
use ardea_rest::{Answer, Client, ClusterError, no_such_job};

use crate::daemon::host_registry::HostRegistry;

/// Timeout of requests to other hosts.
const OTHERS_WITHIN: Duration = Duration::from_secs(2);

/// Maximum number of known submissions that the error for an unknown submission lists.
const NAMED_SUBMISSIONS: usize = 10;

/// The jobs of a cluster and their leaders.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    /// This host's name.
    pub(crate) own: String,
    /// The only job that this host is a leader candidate for; `None` if it is a candidate for all
    /// jobs.
    pub(crate) only: Option<String>,
    pub(crate) state: Arc<dyn MetadataStore>,
    pub(crate) token: Option<Token>,
    pub(crate) tls: Option<Tls>,
}

/// The location of the process that can serve requests about a job.
pub(crate) enum JobLocation {
    /// This process, which leads the job.
    Here(JobHandle),
    /// The leader's host, with the URL of its REST interface.
    Remote(String),
    /// No process, because the job has no leader at the moment. Contains the stored job.
    NoLeader(Box<StoredJob>),
}

impl Jobs {
    /// Returns the names of all jobs, sorted.
    pub(crate) async fn names(&self) -> Result<Vec<String>> {
        let jobs = layout::jobs()?;
        let mut names = Vec::new();
        for child in self.state.children(&jobs).await? {
            let Some(name) = jobs.child(&child)?.any_name() else {
                continue;
            };
            // A job without a definition has been deleted; an unreadable one exists.
            match self.stored(&name).await {
                Ok(None) => {}
                Ok(Some(_)) => names.push(name),
                Err(error) if is_unreadable(&error) => names.push(name),
                Err(error) => return Err(error),
            }
        }
        names.sort();
        Ok(names)
    }

    /// Reads a stored job. Returns `None` if no job has that name.
    pub(crate) async fn stored(&self, name: &str) -> Result<Option<StoredJob>> {
        let Ok(layout) = JobLayout::of(name) else {
            return Ok(None);
        };
        let node = self.state.get(layout.definition()).await?;
        node.map(|node| StoredJob::decode(&node.value)).transpose()
    }

    /// Finds the process that can serve requests about a job.
    pub(crate) async fn find(&self, master: &MasterProcess, name: &str) -> Answer<JobLocation> {
        if let Some(desk) = master.handle(name)
            && matches!(desk.state(), LeadershipState::Leading { .. })
        {
            return Ok(JobLocation::Here(desk));
        }
        let Some(stored) = self.stored(name).await? else {
            return Err(self.gone(name, None).await?.into());
        };
        Ok(match self.leader(&stored).await {
            Ok(Some(api)) => JobLocation::Remote(api),
            Ok(None) => JobLocation::NoLeader(Box::new(stored)),
            // An unreadable lease counts as no leader. The error is shown in the job's description.
            Err(error) if is_unreadable(&error) => JobLocation::NoLeader(Box::new(stored)),
            Err(error) => return Err(error.into()),
        })
    }

    /// Returns the error for a missing job, or a missing submission of the job; `None` if it
    /// exists.
    pub(crate) async fn absent(
        &self,
        name: &str,
        submission: Option<u64>,
    ) -> Result<Option<Error>> {
        let is_it =
            |there: &StoredJob| submission.is_none_or(|it| it == there.record.job.submission);
        match self.stored(name).await {
            // An ending job may already have a summary.
            Ok(Some(there)) if is_it(&there) => return Ok(None),
            Ok(_) => {}
            // An ended submission is found even if the current job is unreadable.
            Err(error) => {
                let is_gone = submission.is_some() && self.past(name, submission).await?.is_some();
                if !is_gone {
                    return Err(error);
                }
            }
        }
        Ok(Some(self.gone(name, submission).await?))
    }

    /// Returns the error for a missing job or submission. The error contains the time and reason of
    /// its end, or reports it as unknown.
    pub(crate) async fn gone(&self, name: &str, submission: Option<u64>) -> Result<Error> {
        if let Some(past) = self.past(name, submission).await? {
            return Ok(past.description.summary.ended());
        }
        if let Some(submission) = submission {
            return self.no_such_submission(name, submission).await;
        }
        let names = self.names().await?;
        Ok(no_such_job(name, names.iter().map(String::as_str)))
    }

    /// Returns the ended job of that name with this submission; without `submission`, the latest
    /// one.
    pub(crate) async fn past(
        &self,
        name: &str,
        submission: Option<u64>,
    ) -> Result<Option<PastJob>> {
        let mut past = self.all_past(name).await?.into_iter();
        Ok(past.find(|past| submission.is_none_or(|wanted| wanted == past.job.submission)))
    }

    /// Returns all retained summaries of ended jobs of that name, latest first.
    pub(crate) async fn all_past(&self, name: &str) -> Result<Vec<PastJob>> {
        // No job can have an invalid name.
        match JobLayout::of(name) {
            Ok(_) => past_jobs_of(&*self.state, name).await,
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Returns the error for an unknown submission. The error lists the known submissions of the
    /// job.
    async fn no_such_submission(&self, name: &str, submission: u64) -> Result<Error> {
        let what = format!("nothing is known of a submission {submission:x} of job {name:?}");
        // The submission of an unreadable job is unknown.
        let there = self.stored(name).await.ok().flatten();
        let there = there.map(|stored| stored.record.job.submission);
        let past = self.all_past(name).await?.into_iter();
        let known = there
            .into_iter()
            .chain(past.map(|past| past.job.submission));
        let known = known.take(NAMED_SUBMISSIONS);
        let known: Vec<String> = known.map(|one| format!("{one:x}")).collect();
        Ok(
            Error::new(ErrorCode::NoSuchJob, what).hint(match &known[..] {
                [] => "`ardea list --all` shows the jobs that are known".to_string(),
                known => format!("the last that are known: {}", known.join(", ")),
            }),
        )
    }

    /// Returns the handle of a job led by this host; otherwise a redirection or an error.
    pub(crate) async fn local_handle(
        &self,
        master: &MasterProcess,
        name: &str,
    ) -> Answer<JobHandle> {
        match self.find(master, name).await? {
            JobLocation::Here(desk) => Ok(desk),
            JobLocation::Remote(base) => Err(ClusterError::Elsewhere { base }),
            JobLocation::NoLeader(_) => Err(self.without_leader(name).await?),
        }
    }

    /// Returns the response for a job without a leader: a request to retry if a candidate exists,
    /// otherwise an error.
    pub(crate) async fn without_leader(&self, name: &str) -> Result<ClusterError> {
        let hosts = HostRegistry(Arc::clone(&self.state));
        // This host is a candidate even while it is not registered.
        let is_candidate = self.only.as_deref().is_none_or(|only| only == name);
        if is_candidate || hosts.api_for(name).await?.is_some() {
            let what = format!("no host leads the job {name:?} at the moment");
            let error = Error::new(ErrorCode::Superseded, what);
            let next = "its containers continue to run; a host will lead it within seconds, then try again";
            return Ok(ClusterError::RetryLater(error.hint(next)));
        }
        let what = format!("no host is registered that is a leader candidate for the job {name:?}");
        let error = Error::new(ErrorCode::Network, what);
        Ok(error
            .hint("its containers continue to run: `ardea cluster start` starts a host that will lead it")
            .into())
    }

    /// Returns a client of another host's REST interface.
    pub(crate) fn client(&self, api: &str) -> Result<Client> {
        let client = Client::new(api, self.token.clone())?.tls(self.tls.clone());
        Ok(client.timeout(OTHERS_WITHIN).retry_timeout(OTHERS_WITHIN))
    }

    /// Returns the REST URL of the host that leads a job.
    async fn leader(&self, stored: &StoredJob) -> Result<Option<String>> {
        let store = JobStore::new(Arc::clone(&self.state), stored.record.job.clone())?;
        match store.leader().await? {
            // The lease is that of an earlier process of this host, or it cannot be renewed. So the
            // job has no leader.
            Some(lease) if host_of(&lease.holder) == self.own => Ok(None),
            Some(lease) if !lease.resigned => {
                let directory = HostRegistry(Arc::clone(&self.state));
                directory.api_of(host_of(&lease.holder)).await
            }
            _ => Ok(None),
        }
    }
}

/// Parses the submission in a request, if the request contains one.
pub(crate) fn submission_of(submission: Option<&str>) -> Result<Option<u64>> {
    let parse = |text: &str| {
        u64::from_str_radix(text, 16).map_err(|_| {
            let what = format!("{text:?} is no submission of a job");
            Error::new(ErrorCode::InvalidConfig, what)
                .hint("a submission is a number in hexadecimal digits: see `ardea describe`")
        })
    };
    submission.map(parse).transpose()
}
