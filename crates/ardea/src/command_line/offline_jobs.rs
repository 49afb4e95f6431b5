//! Jobs of a cluster whose hosts are down: records in the metadata store, and logs on this machine.

use std::future::Future;

use ardea_core::{ErrorCode, Result};
use ardea_server::daemon::OfflineJobs;
use tokio::runtime::Runtime;

use super::{ClusterArgs, Context};
use crate::console::{Failure, print_error};
use crate::job::{runtime, state_of};

/// The jobs of a cluster whose hosts are down, with a runtime for reading them.
pub struct OfflineCluster {
    /// The reader of the stored records.
    pub cluster: OfflineJobs,
    /// The failure of connecting to a host.
    pub failure: Failure,
    runtime: Runtime,
}

impl OfflineCluster {
    /// Opens the metadata store of the cluster that the options and settings name, after connecting
    /// to its hosts has failed.
    ///
    /// # Errors
    /// The given `failure`, if it is no network error, if an interface was given, or if the
    /// metadata store can't be read.
    pub fn after_failure(
        place: &ClusterArgs,
        context: &Context,
        failure: Failure,
    ) -> Result<Self, Failure> {
        let because = match &failure {
            Failure::Error(error) if error.code() == ErrorCode::Network => error.clone(),
            _ => return Err(failure),
        };
        let settings = context.cluster(place)?;
        if settings.api.is_some() {
            return Err(failure);
        }
        let runtime = runtime()?;
        match runtime.block_on(state_of(&settings)) {
            Ok(Some(state)) => Ok(OfflineCluster {
                cluster: OfflineJobs::new(settings, state, because),
                failure,
                runtime,
            }),
            Ok(None) | Err(_) => Err(failure),
        }
    }

    /// Waits for a result.
    ///
    /// # Errors
    /// That of the result.
    pub fn wait_for<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T, Failure> {
        Ok(self.runtime.block_on(answer)?)
    }

    /// Prints that the result comes from stored records.
    pub fn print_origin(&self, context: &Context) {
        if !context.quiet
            && !context.json
            && let Failure::Error(error) = &self.failure
        {
            let what = error.message();
            print_error(&format!(
                "{what}: showing the records in the metadata store\n"
            ));
        }
    }

    /// Returns the failure of a command on the job `job`, or on its submission `submission`: the
    /// job has ended, there is no such job, or else no host answers.
    pub fn absence_failure(self, job: &str, submission: Option<&str>) -> Failure {
        match self.wait_for(self.cluster.absent(job, submission)) {
            Ok(Some(absent)) => absent.into(),
            // A job whose record can't be read exists.
            Ok(None) | Err(_) => self.failure,
        }
    }
}
