//! A cluster whose interface is asked to take a job.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{Client, JobDescription, JobEnding, JobSummary, SubmitRequest, UpgradeRequest};
use tokio::runtime::{Builder, Runtime};

use super::submit::Target;

/// Puts files into a package store; gives the SHA-256 of the package. See [`Target::store`].
pub type Store = Arc<dyn Fn(&[(PathBuf, String)]) -> Result<String> + Send + Sync>;

/// A cluster that is asked over its interface. Its package store is another place, which has to be reached from here as well.
pub struct RestTarget {
    client: Client,
    cluster: String,
    runtime: Runtime,
    store: Store,
}

impl RestTarget {
    /// Of the cluster of this name that this client asks, with this package store.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the system refuses what it takes to wait for answers.
    pub fn new(client: Client, cluster: String, store: Store) -> Result<Self> {
        Ok(RestTarget {
            client,
            cluster,
            runtime: runtime()?,
            store,
        })
    }
}

impl Target for RestTarget {
    fn cluster(&self) -> &str {
        &self.cluster
    }

    fn store(&self, files: &[(PathBuf, String)]) -> Result<String> {
        (self.store)(files)
    }

    fn submit(&self, request: SubmitRequest) -> Result<()> {
        let submitted = self.runtime.block_on(self.client.submit(&request));
        submitted.map(|_| ())
    }

    fn look(&self, job: &str) -> Result<JobSummary> {
        let described = self.runtime.block_on(self.client.describe(job));
        described.map(|described| described.summary)
    }

    fn upgrade(&self, request: UpgradeRequest) -> Result<()> {
        let job = request.definition.job.name.clone();
        self.runtime.block_on(self.client.upgrade(&job, &request))
    }

    fn describe(&self, job: &str) -> Result<JobDescription> {
        self.runtime.block_on(self.client.describe(job))
    }

    fn ended(&self, job: &str, submission: &str) -> Result<Option<JobEnding>> {
        let past = self.runtime.block_on(self.client.past(job))?;
        let past = past.into_iter().map(|past| past.summary);
        let mut of_this = past.filter(|past| past.submission == submission);
        Ok(of_this.next().map(|past| past.ending))
    }
}

/// What waits for answers, on this thread.
pub(super) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Error::new(
                ErrorCode::LimitReached,
                "the system gives nothing to wait with",
            )
            .because(error)
            .hint("raise the limit of open files (ulimit -n)")
        })
}
