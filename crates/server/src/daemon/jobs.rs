//! Who can answer for a job.

use std::sync::Arc;
use std::time::Duration;

use crate::leader::{
    JobDesk, JobStore, MasterProcess, PastJob, Standing, StoredJob, is_unreadable, past_jobs_of,
};
use ardea_core::{Error, ErrorCode, Result, Token};
use ardea_metastore::StateManager;
use ardea_metastore::layout::{self, JobLayout};
use ardea_network::tls::Tls;
use ardea_rest::{Answer, Client, Unanswered, no_such_job};

use crate::daemon::directory::{Directory, host_of};
use crate::daemon::remembered;

/// How long another host may take to tell of its jobs.
const OTHERS_WITHIN: Duration = Duration::from_secs(2);

/// How many of the submissions that are known are named to who asks after another.
const NAMED_SUBMISSIONS: usize = 10;

/// The jobs of a cluster, and who leads them.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    /// The host that asks.
    pub(crate) own: String,
    /// The only job that it stands for, if it stands for one.
    pub(crate) only: Option<String>,
    pub(crate) state: Arc<dyn StateManager>,
    pub(crate) token: Option<Token>,
    pub(crate) tls: Option<Tls>,
}

/// Who can answer for a job.
pub(crate) enum Found {
    /// This process, which leads it.
    Here(JobDesk),
    /// The host that leads it, whose interface is there.
    There(String),
    /// Nobody at the moment; this is what is stored.
    Nobody(Box<StoredJob>),
}

impl Jobs {
    /// The names of all jobs, sorted.
    pub(crate) async fn names(&self) -> Result<Vec<String>> {
        let jobs = layout::jobs()?;
        let mut names = Vec::new();
        for child in self.state.children(&jobs).await? {
            let Some(name) = jobs.child(&child)?.any_name() else {
                continue;
            };
            // What is left of a job that is gone is no job; one that can't be read is.
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

    /// What is stored of a job, if there is one of that name.
    pub(crate) async fn stored(&self, name: &str) -> Result<Option<StoredJob>> {
        let Ok(layout) = JobLayout::of(name) else {
            return Ok(None);
        };
        let node = self.state.get(layout.definition()).await?;
        node.map(|node| StoredJob::decode(&node.value)).transpose()
    }

    /// Who can answer for the job of that name.
    pub(crate) async fn find(&self, master: &MasterProcess, name: &str) -> Answer<Found> {
        if let Some(desk) = master.desk(name)
            && matches!(desk.standing(), Standing::Leads { .. })
        {
            return Ok(Found::Here(desk));
        }
        let Some(stored) = self.stored(name).await? else {
            return Err(self.gone(name, None).await?.into());
        };
        Ok(match self.leader(&stored).await {
            Ok(Some(api)) => Found::There(api),
            Ok(None) => Found::Nobody(Box::new(stored)),
            // Nobody leads by a lease that can't be read; what keeps hosts from that is told with the job.
            Err(error) if is_unreadable(&error) => Found::Nobody(Box::new(stored)),
            Err(error) => return Err(error.into()),
        })
    }

    /// Why a job, or that submission of it, is not there. Nothing if it is there.
    pub(crate) async fn absent(
        &self,
        name: &str,
        submission: Option<u64>,
    ) -> Result<Option<Error>> {
        let is_it =
            |there: &StoredJob| submission.is_none_or(|it| it == there.record.job.submission);
        match self.stored(name).await {
            // It may be remembered already while it ends.
            Ok(Some(there)) if is_it(&there) => return Ok(None),
            Ok(_) => {}
            // One that is gone is told of, whatever is wrong with the one that is there.
            Err(error) => {
                let is_gone = submission.is_some() && self.past(name, submission).await?.is_some();
                if !is_gone {
                    return Err(error);
                }
            }
        }
        Ok(Some(self.gone(name, submission).await?))
    }

    /// The error for a job, or that submission of it, that is not there: when and how it ended, or that nothing is known of it.
    pub(crate) async fn gone(&self, name: &str, submission: Option<u64>) -> Result<Error> {
        if let Some(past) = self.past(name, submission).await? {
            return Ok(remembered::summary(&past).ended());
        }
        if let Some(submission) = submission {
            return self.no_such_submission(name, submission).await;
        }
        let names = self.names().await?;
        Ok(no_such_job(name, names.iter().map(String::as_str)))
    }

    /// A job of that name that is gone: the last one, or that submission.
    pub(crate) async fn past(
        &self,
        name: &str,
        submission: Option<u64>,
    ) -> Result<Option<PastJob>> {
        let mut past = self.all_past(name).await?.into_iter();
        Ok(past.find(|past| submission.is_none_or(|wanted| wanted == past.job.submission)))
    }

    /// All jobs of that name that are gone and remembered, the latest first.
    pub(crate) async fn all_past(&self, name: &str) -> Result<Vec<PastJob>> {
        // A name that no job can have is that of none.
        match JobLayout::of(name) {
            Ok(_) => past_jobs_of(&*self.state, name).await,
            Err(_) => Ok(Vec::new()),
        }
    }

    /// That nothing is known of a submission, with those of that name that are.
    async fn no_such_submission(&self, name: &str, submission: u64) -> Result<Error> {
        let what = format!("nothing is known of a submission {submission:x} of job {name:?}");
        // One that can't be read is none that could be named.
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

    /// The desk of a job that is led here; everything else is no answer.
    pub(crate) async fn here(&self, master: &MasterProcess, name: &str) -> Answer<JobDesk> {
        match self.find(master, name).await? {
            Found::Here(desk) => Ok(desk),
            Found::There(base) => Err(Unanswered::Elsewhere { base }),
            Found::Nobody(_) => Err(self.without_leader(name).await?),
        }
    }

    /// What is answered where nobody leads a job that is there: that a host will, this one if no other, or that none stands for it.
    pub(crate) async fn without_leader(&self, name: &str) -> Result<Unanswered> {
        let hosts = Directory(Arc::clone(&self.state));
        // It does so also while it is not registered.
        let is_candidate = self.only.as_deref().is_none_or(|only| only == name);
        if is_candidate || hosts.api_for(name).await?.is_some() {
            let what = format!("nobody leads the job {name:?} at the moment");
            let error = Error::new(ErrorCode::Superseded, what);
            let next = "its data goes on; a host leads it within seconds, then try again";
            return Ok(Unanswered::NotYet(error.hint(next)));
        }
        let what = format!("no host is registered that stands for the job {name:?}");
        let error = Error::new(ErrorCode::Network, what);
        Ok(error
            .hint("its data goes on: `ardea cluster start` brings one that leads it")
            .into())
    }

    /// A client of the interface at that address, which belongs to a host of this cluster.
    pub(crate) fn client(&self, api: &str) -> Result<Client> {
        let client = Client::new(api, self.token.clone())?.tls(self.tls.clone());
        Ok(client.patience(OTHERS_WITHIN).asks_again_for(OTHERS_WITHIN))
    }

    /// Where the interface of the host is that leads a job.
    async fn leader(&self, stored: &StoredJob) -> Result<Option<String>> {
        let store = JobStore::new(Arc::clone(&self.state), stored.record.job.clone())?;
        match store.leader().await? {
            // An earlier life of this host, or one that can't renew it: nobody who could answer.
            Some(lease) if host_of(&lease.holder) == self.own => Ok(None),
            Some(lease) if !lease.resigned => {
                let directory = Directory(Arc::clone(&self.state));
                directory.api_of(host_of(&lease.holder)).await
            }
            _ => Ok(None),
        }
    }
}

/// The submission that is asked for, if one is said.
pub(crate) fn submission_of(submission: Option<&str>) -> Result<Option<u64>> {
    let parse = |text: &str| {
        u64::from_str_radix(text, 16).map_err(|_| {
            let what = format!("{text:?} is no submission of a job");
            Error::new(ErrorCode::InvalidConfig, what)
                .hint("a submission is a number in hexadecimal digits: `ardea describe` tells it")
        })
    };
    submission.map(parse).transpose()
}
