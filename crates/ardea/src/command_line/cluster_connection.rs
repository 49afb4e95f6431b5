//! The connection of a command to a cluster.

use std::future::Future;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{Client, ClusterSettings};
use tokio::runtime::Runtime;

use super::{ClusterArgs, Context, OfflineCluster};
use crate::console::Failure;
use crate::job::{client_of, runtime};

/// Returns true if `what` is the name of a job of a cluster: if a cluster is given, or if `what` is
/// no local folder.
pub fn is_of_a_cluster(place: &ClusterArgs, what: &Path) -> bool {
    let is_name = what.components().count() == 1 && !what.is_dir();
    place.cluster.is_some() || place.at.is_some() || is_name
}

/// The poll interval while a command waits for a job.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A client of a cluster, with a runtime for its requests.
#[derive(Debug)]
pub struct ClusterConnection {
    /// The REST client.
    pub client: Client,
    /// The cluster's settings.
    pub settings: ClusterSettings,
    runtime: Runtime,
}

impl ClusterConnection {
    /// Connects to the cluster that the options `place` and the settings name.
    ///
    /// # Errors
    /// As [`client_of`].
    pub fn of(place: &ClusterArgs, context: &Context) -> Result<Self, Failure> {
        let mut settings = context.cluster(place)?;
        let runtime = runtime()?;
        let (client, about) = runtime.block_on(client_of(&settings))?;
        settings.name = about.name;
        Ok(ClusterConnection {
            client,
            settings,
            runtime,
        })
    }

    /// Like [`of`](Self::of), for a command on a job. If no host is up, the error reports whether
    /// the job has ended.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_job(place: &ClusterArgs, job: &str, context: &Context) -> Result<Self, Failure> {
        ClusterConnection::of(place, context).map_err(
            |failure| match OfflineCluster::after_failure(place, context, failure) {
                Ok(remembered) => remembered.absence_failure(job, None),
                Err(failure) => failure,
            },
        )
    }

    /// Like [`of_job`](Self::of_job), for a name `what` that is no local folder; the hint of an
    /// error mentions the missing folder.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_job_or_folder(
        place: &ClusterArgs,
        what: &Path,
        context: &Context,
    ) -> Result<Self, Failure> {
        let job = what.to_string_lossy();
        ClusterConnection::of_job(place, &job, context).map_err(|failure| match failure {
            Failure::Error(error) if place.cluster.is_none() && place.at.is_none() => {
                let next = error.hint_text().unwrap_or_default();
                let why = match what.is_file() {
                    true => format!("{job} here is a file, not a folder"),
                    false => format!("there is no folder {job} here"),
                };
                let hint = format!("{why}, so it was taken for a job of a cluster; {next}");
                error.hint(hint).into()
            }
            failure => failure,
        })
    }

    /// Waits for the response to a request.
    ///
    /// # Errors
    /// That of the request.
    pub fn wait_for<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T, Failure> {
        Ok(self.runtime.block_on(answer)?)
    }

    /// Polls until `is_there` returns true, or until `cluster.patience` is over.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if it is over; that of `is_there`.
    pub fn wait_until(
        &self,
        what: &str,
        mut is_there: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let patience = self.settings.patience;
        let deadline = Instant::now() + patience;
        while !is_there().map_err(uncertain_outcome)? {
            if Instant::now() >= deadline {
                let what = format!(
                    "waiting for {what} timed out after {} s",
                    patience.as_secs_f64()
                );
                let error = Error::new(ErrorCode::StateUnavailable, what).hint(
                    "the command was accepted, and may still succeed: `ardea describe` shows more",
                );
                return Err(error.into());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Adds a hint to the failure of a command that the cluster has accepted, but whose progress can't
/// be requested any more.
fn uncertain_outcome(failure: Failure) -> Failure {
    match failure {
        Failure::Error(error)
            if matches!(error.code(), ErrorCode::Network | ErrorCode::Superseded) =>
        {
            error
                .hint("the command was accepted, and may still succeed: `ardea describe` shows more when a host is up")
                .into()
        }
        other => other,
    }
}
