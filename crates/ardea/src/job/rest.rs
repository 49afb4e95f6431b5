//! A submission target that uses a cluster's REST interface.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{Client, JobDescription, JobEnding, JobSummary, SubmitRequest, UpgradeRequest};
use tokio::runtime::{Builder, Runtime};

use super::submit::Target;

/// A function that puts files into a package store and returns the SHA-256 of the package. See
/// [`Target::store`].
pub type Store = Arc<dyn Fn(&[(PathBuf, String)]) -> Result<String> + Send + Sync>;

/// A cluster reached through its REST interface. Its package store is separate, and must be
/// reachable from this machine as well.
pub struct RestTarget {
    client: Client,
    cluster: String,
    runtime: Runtime,
    store: Store,
}

impl RestTarget {
    /// Creates a target for the cluster named `cluster`, reached by `client`, with its package
    /// store `store`.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the system refuses an async runtime.
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

    fn job_summary(&self, job: &str) -> Result<JobSummary> {
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

/// Creates a runtime that waits for responses on this thread.
pub(super) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Error::new(ErrorCode::LimitReached, "cannot start an async runtime")
                .because(error)
                .hint("raise the limit of open files (ulimit -n)")
        })
}
