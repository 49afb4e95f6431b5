//! Schedulers by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};

use crate::{ContainerEvents, JobScheduler, LaunchPlan, SchedulerKind};

/// Kinds of schedulers by name: `scheduler=slurm` in a job's configuration chooses one, so that two jobs of one cluster may use
/// different ones.
#[derive(Clone)]
pub struct Schedulers(BTreeMap<String, Arc<dyn SchedulerKind>>);

impl Schedulers {
    /// None so far.
    pub fn none() -> Self {
        Schedulers(BTreeMap::new())
    }

    /// Adds a kind, or replaces the one of this name.
    pub fn with(mut self, name: impl Into<String>, kind: impl SchedulerKind + 'static) -> Self {
        self.0.insert(name.into(), Arc::new(kind));
        self
    }

    /// The kind of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidConfig`] when there is none, with the names that there are.
    pub fn get(&self, name: &str) -> Result<Arc<dyn SchedulerKind>> {
        self.0.get(name).map(Arc::clone).ok_or_else(|| {
            let names: Vec<_> = self.names().collect();
            Error::new(
                ErrorCode::InvalidConfig,
                format!("there is no scheduler {name:?}"),
            )
            .hint(format!("choose one of: {}", names.join(", ")))
        })
    }

    /// Makes the scheduler of a job, of the kind that its definition names.
    ///
    /// # Errors
    ///
    /// When there is no such kind, and as of [`SchedulerKind::initialize`].
    pub async fn start(&self, launch: LaunchPlan) -> Result<(JobScheduler, ContainerEvents)> {
        let kind = self.get(&launch.definition.scheduler)?;
        let (scheduler, events) = kind.initialize(launch).await?;
        Ok((JobScheduler::new(kind.traits(), scheduler), events))
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for Schedulers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
