//! What jobs that are gone have written, here and on other hosts.

use ardea_core::Error;
use ardea_metastore::layout;
use ardea_rest::{Answer, LogQuery, LogStream};
use ardea_scheduler::HOSTS;

use super::{Served, looking};
use crate::daemon::directory::API;
use crate::daemon::kept::{self, Elsewhere, Reach, kept_elsewhere, kept_here, nothing_kept};
use crate::daemon::logs;

impl Served {
    /// What a job that is gone has written.
    pub(super) async fn kept_logs(
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
        let looked = looking(move || {
            let (own, asked) = (&own[..], &asked[..]);
            let reach = Reach::Part { own, asked };
            let kept = kept_here(&cluster, &gone.job, &gone.scheduler, reach);
            Ok::<_, Error>((!kept.is_empty(), kept::wanted(&kept, container)?))
        });
        let (is_here, files) = looked.await??;
        let is_spread = past.scheduler == HOSTS;
        let mut elsewhere = match is_here && !is_spread {
            true => Elsewhere::default(),
            false => kept_elsewhere(&others, &past, &query).await,
        };
        if is_spread && !here {
            elsewhere.without_hosts(&past, &self.cluster.host, &hosts);
        }
        // A job may have written nothing, a container that is asked after has not.
        let is_found = is_here && container.is_none();
        let nothing = !is_found && files.is_empty() && elsewhere.found.is_empty();
        match elsewhere.missing() {
            // Whoever is silent may have it.
            Some(missing) if nothing => Err(missing.into()),
            None if nothing => Err(nothing_kept(&self.cluster, &past, container).into()),
            missing => Ok(logs::kept(files, elsewhere.found, missing, query)),
        }
    }

    /// The hosts with files on this machine that are asked for what they have kept: only these matter here, and in a large cluster not
    /// every host reads of all.
    async fn asked_of_these(&self) -> Answer<Vec<String>> {
        let cluster = self.cluster.clone();
        let mut asked = Vec::new();
        for name in looking(move || kept::hosts_here(&cluster)).await? {
            // A folder that no host can have made is none's.
            if layout::worker(&name).is_ok() && self.directory.api_of(&name).await?.is_some() {
                asked.push(name);
            }
        }
        Ok(asked)
    }
}
