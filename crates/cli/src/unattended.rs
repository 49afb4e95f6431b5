//! Jobs that no host answers for: the cluster's state is asked what it remembers of them, and this machine's files what they wrote.

use std::future::Future;

use ardea::job::state_of;
use ardea_core::{ErrorCode, Result};
use ardea_server::daemon::Unattended;
use tokio::runtime::Runtime;

use crate::args::Where;
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::reach::runtime;

/// What is known of jobs that no host answers for, and what waits for the answers.
pub struct Remembered {
    /// What is asked.
    pub cluster: Unattended,
    /// Why no host answers.
    pub failure: Failure,
    runtime: Runtime,
}

impl Remembered {
    /// What is known of the cluster that the options and settings name, where asking failed since none of its hosts is up, or none for the job.
    ///
    /// # Errors
    /// That failure, where it is another one, an interface was named, or the cluster has no state that answers.
    pub fn instead(place: &Where, context: &Context, failure: Failure) -> Result<Self, Failure> {
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
            Ok(Some(state)) => Ok(Remembered {
                cluster: Unattended::new(settings, state, because),
                failure,
                runtime,
            }),
            Ok(None) | Err(_) => Err(failure),
        }
    }

    /// Waits for an answer.
    pub fn ask<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T, Failure> {
        Ok(self.runtime.block_on(answer)?)
    }

    /// Says that no host was asked.
    pub fn say_so(&self, context: &Context) {
        if !context.quiet
            && !context.json
            && let Failure::Error(error) = &self.failure
        {
            let what = error.message();
            print_error(&format!("{what}: this is what is remembered\n"));
        }
    }

    /// Why a command can't be done for a job, or that submission of it: that it has ended, that there is none, or else that no host answers.
    pub fn why_not(self, job: &str, submission: Option<&str>) -> Failure {
        match self.ask(self.cluster.absent(job, submission)) {
            Ok(Some(absent)) => absent.into(),
            // One that can't be read is there.
            Ok(None) | Err(_) => self.failure,
        }
    }
}
