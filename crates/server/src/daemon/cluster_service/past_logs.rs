//! Logs of jobs; those of ended jobs come from this host and others.

use ardea_core::{Error, ErrorCode};
use ardea_metastore::layout;
use ardea_rest::{Answer, ClusterError, LogQuery, LogStream, no_such_container};
use ardea_scheduler::HOSTS;

use super::{ClusterService, containers_of, run_blocking};
use crate::daemon::host_registry::API;
use crate::daemon::jobs::submission_of;
use crate::daemon::logs;
use crate::daemon::retained_logs::{
    self, FileScope, RemoteLogs, local_logs, nothing_kept, remote_logs,
};
use crate::leader::{JobHandle, LeadershipState};

impl ClusterService {
    /// Returns the log lines of a job: of the current one, or of an ended one.
    pub(super) async fn log_lines(&self, job: &str, query: LogQuery) -> Answer<LogStream> {
        let submission = submission_of(query.submission.as_deref())?;
        let is_it = |desk: &JobHandle| submission.is_none_or(|it| it == desk.job().submission);
        let desk = match self.jobs.local_handle(&*self.master()?, job).await {
            Ok(desk) if is_it(&desk) => desk,
            Err(unanswered) if !is_absent(&unanswered) => {
                // An ended submission is served even if the current job is unreadable.
                let is_gone =
                    submission.is_some() && self.jobs.past(job, submission).await?.is_some();
                match is_gone {
                    true => return self.kept_logs(job, submission, query).await,
                    false => return Err(self.leadership_error(job, unanswered).await),
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
            desk.wait_for(|standing| *standing == LeadershipState::Over)
                .await;
        };
        Ok(logs::stream(scheduler, wanted, query, over))
    }

    /// Returns the log lines of an ended job.
    async fn kept_logs(
        &self,
        job: &str,
        submission: Option<u64>,
        query: LogQuery,
    ) -> Answer<LogStream> {
        let Some(past) = self.jobs.past(job, submission).await? else {
            return Err(self.jobs.gone(job, submission).await?.into());
        };
        let hosts = match query.here {
            true => Vec::new(),
            false => self.directory.all().await?,
        };
        let mut others = Vec::new();
        for (name, record) in &hosts {
            if let Some(api) = record.attributes.get(API).filter(|_| *name != self.name) {
                others.push((name.clone(), self.jobs.client(api)?));
            }
        }
        let asked = match query.here {
            true => self.asked_of_these().await?,
            false => {
                let asked = hosts
                    .iter()
                    .filter(|(_, it)| it.attributes.contains_key(API));
                asked.map(|(name, _)| name.clone()).collect()
            }
        };
        let (cluster, own, gone) = (self.cluster.clone(), self.name.clone(), past.clone());
        let (here, container) = (query.here, query.container);
        let looked = run_blocking(move || {
            let (own, asked) = (&own[..], &asked[..]);
            let reach = FileScope::Part { own, asked };
            let kept = local_logs(&cluster, &gone.job, &gone.description.scheduler, reach);
            Ok::<_, Error>((!kept.is_empty(), retained_logs::wanted(&kept, container)?))
        });
        let (is_here, files) = looked.await??;
        let is_spread = past.description.scheduler == HOSTS;
        let mut elsewhere = match is_here && !is_spread {
            true => RemoteLogs::default(),
            false => remote_logs(&others, &past, &query).await,
        };
        if is_spread && !here {
            elsewhere.without_hosts(&past, &self.cluster.host, &hosts);
        }
        // An ended job may have written nothing; a requested container must be found.
        let is_found = is_here && container.is_none();
        let nothing = !is_found && files.is_empty() && elsewhere.found.is_empty();
        match elsewhere.missing() {
            // A host that did not reply may have the files.
            Some(missing) if nothing => Err(missing.into()),
            None if nothing => Err(nothing_kept(&self.cluster, &past, container).into()),
            missing => Ok(logs::kept(files, elsewhere.found, missing, query)),
        }
    }

    /// Returns the registered hosts with files on this machine. Reading all registrations instead
    /// would be expensive in a large cluster.
    async fn asked_of_these(&self) -> Answer<Vec<String>> {
        let cluster = self.cluster.clone();
        let mut asked = Vec::new();
        for name in run_blocking(move || retained_logs::hosts_here(&cluster)).await? {
            // A folder without a valid host name belongs to no host.
            if layout::worker(&name).is_ok() && self.directory.api_of(&name).await?.is_some() {
                asked.push(name);
            }
        }
        Ok(asked)
    }
}

/// Returns true if there is no job of the name at present.
fn is_absent(unanswered: &ClusterError) -> bool {
    matches!(unanswered, ClusterError::Failed(error) if error.code() == ErrorCode::NoSuchJob)
}
