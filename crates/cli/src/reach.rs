//! A cluster that was reached: what its commands ask.

use std::future::Future;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ardea::job::client_of;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{Client, ClusterSettings};
use tokio::runtime::{Builder, Runtime};

use crate::args::Where;
use crate::context::Context;
use crate::failure::Failure;
use crate::unattended::Remembered;

/// Whether what is named so is a job of a cluster: what is no folder here is; with a cluster named everything is.
pub fn is_of_a_cluster(place: &Where, what: &Path) -> bool {
    let is_name = what.components().count() == 1 && !what.is_dir();
    place.cluster.is_some() || place.at.is_some() || is_name
}

/// How often a job is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// A cluster, and what waits for its answers.
pub struct Reached {
    /// What it is asked with.
    pub client: Client,
    /// What is known of it.
    pub settings: ClusterSettings,
    runtime: Runtime,
}

impl Reached {
    /// The cluster that the options and settings name.
    pub fn of(place: &Where, context: &Context) -> Result<Self, Failure> {
        let mut settings = context.cluster(place)?;
        let runtime = runtime()?;
        let (client, about) = runtime.block_on(client_of(&settings))?;
        settings.name = about.name;
        Ok(Reached {
            client,
            settings,
            runtime,
        })
    }

    /// The same, to do something with that job: where no host is up, one that has ended is said to have.
    pub fn of_job(place: &Where, job: &str, context: &Context) -> Result<Self, Failure> {
        Reached::of(place, context).map_err(|failure| {
            match Remembered::instead(place, context, failure) {
                Ok(remembered) => remembered.why_not(job, None),
                Err(failure) => failure,
            }
        })
    }

    /// The same, of what may have been meant for a folder, of which there is none here.
    pub fn of_job_or_folder(
        place: &Where,
        what: &Path,
        context: &Context,
    ) -> Result<Self, Failure> {
        let job = what.to_string_lossy();
        Reached::of_job(place, &job, context).map_err(|failure| match failure {
            Failure::Error(error) if place.cluster.is_none() && place.at.is_none() => {
                let next = error.what_next().unwrap_or_default();
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

    /// Waits for an answer.
    pub fn ask<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T, Failure> {
        Ok(self.runtime.block_on(answer)?)
    }

    /// Looks at something again and again until it says that it is there, or patience ends.
    pub fn wait_until(
        &self,
        what: &str,
        mut is_there: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let patience = self.settings.patience;
        let deadline = Instant::now() + patience;
        while !is_there().map_err(doubtful)? {
            if Instant::now() >= deadline {
                let what = format!(
                    "{what} has not come about after {} s",
                    patience.as_secs_f64()
                );
                let error = Error::new(ErrorCode::StateUnavailable, what)
                    .hint("it was taken, and may still come about: `ardea describe` says more");
                return Err(error.into());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Nobody can be asked any more how far a command is that was taken.
fn doubtful(failure: Failure) -> Failure {
    match failure {
        Failure::Error(error)
            if matches!(error.code(), ErrorCode::Network | ErrorCode::Superseded) =>
        {
            error
                .hint("it was taken, and may still come about: `ardea describe` says more when a host is up")
                .into()
        }
        other => other,
    }
}

/// What waits for answers, on this thread.
pub fn runtime() -> Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| {
        Error::new(
            ErrorCode::LimitReached,
            "the system gives nothing to wait with",
        )
        .because(error)
        .hint("raise the limit of open files (ulimit -n)")
    })
}
