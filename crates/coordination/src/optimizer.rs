//! Rules that improve a running job by what its steps have measured.
//!
//! The job's leader measures [`JobStatistics`] over a time window and passes them to each
//! [`OptimizerRule`]. A rule returns [`Finding`]s: what should change, and the figures that show
//! it. The [`Optimizer`] decides when a finding is proposed or carried out. It has no clock, and
//! its events and actions are values.
//!
//! * `statistics`: the figures; `rules`: the rules of this crate;
//! * `decisions`: the [`Optimizer`]; `settings`: its configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::packing::VertexName;

mod decisions;
mod rules;
mod settings;
mod statistics;

pub use decisions::{FindingReport, Optimizer, OptimizerAction, OptimizerEvent};
pub use rules::{CombineRule, HotInstanceRule, ParallelismRule, StragglerRule};
pub use settings::{OPTIMIZER_SETTINGS, OptimizerConfig, OptimizerMode};
pub use statistics::{InstanceStatistics, JobStatistics, StepStatistics};

/// A rule of the optimizer.
///
/// The leader calls it at the end of each window while the job runs and no other change is under
/// way. The following rule reports steps that write much more than they read:
///
/// ```
/// use ardea_coordination::optimizer::*;
///
/// struct Growth;
///
/// impl OptimizerRule for Growth {
///     fn findings(&self, job: &JobStatistics) -> Vec<Finding> {
///         let steps = job.steps.iter();
///         let grows = steps.filter(|step| step.records_out() > 100.0 * step.records_in());
///         let found = grows.map(|step| Finding {
///             subject: step.vertex.as_str().to_string(),
///             figures: format!("{} records/s written", step.records_out().round()),
///             change: FindingChange::ByUser("filter before the step".to_string()),
///         });
///         found.collect()
///     }
/// }
///
/// let rules = OptimizerRules::builtin().with("growth", |_| Box::new(Growth));
/// assert_eq!(rules.all(&OptimizerConfig::default()).len(), 5);
/// ```
pub trait OptimizerRule: Send {
    /// Returns what should change by these figures.
    fn findings(&self, job: &JobStatistics) -> Vec<Finding>;
}

/// A change that a rule proposes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The step, instance or host.
    pub subject: String,
    /// The figures that show it, for the history of the job.
    pub figures: String,
    /// The change.
    pub change: FindingChange,
}

/// The content of a proposed change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FindingChange {
    /// Other numbers of instances of these vertices, which the leader can carry out.
    Instances(BTreeMap<VertexName, u32>),
    /// A change of the program, its settings or its cluster, in words.
    ByUser(String),
}

impl fmt::Display for FindingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FindingChange::ByUser(advice) => f.write_str(advice),
            FindingChange::Instances(counts) => {
                let counts = counts.iter();
                let counts: Vec<String> = counts
                    .map(|(vertex, count)| format!("{vertex}={count}"))
                    .collect();
                write!(f, "instances {}", counts.join(", "))
            }
        }
    }
}

type MakeRule = dyn Fn(&OptimizerConfig) -> Box<dyn OptimizerRule> + Send + Sync;

/// Rules of the optimizer by name. A job uses all of them.
#[derive(Clone)]
pub struct OptimizerRules(BTreeMap<String, Arc<MakeRule>>);

impl OptimizerRules {
    /// Returns the rules of this crate: `combination`, `hot-instance`, `parallelism`, `straggler`.
    pub fn builtin() -> Self {
        OptimizerRules(BTreeMap::new())
            .with("combination", |_| Box::new(CombineRule))
            .with("hot-instance", |_| Box::new(HotInstanceRule))
            .with("parallelism", |config| {
                Box::new(ParallelismRule::new(config))
            })
            .with("straggler", |_| Box::new(StragglerRule))
    }

    /// Adds a rule, or replaces the one of this name. `make` is called for each job and leader.
    pub fn with(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&OptimizerConfig) -> Box<dyn OptimizerRule> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.into(), Arc::new(make));
        self
    }

    /// Returns all rules for a job, with their names.
    pub fn all(&self, config: &OptimizerConfig) -> Vec<(String, Box<dyn OptimizerRule>)> {
        let rules = self.0.iter();
        rules
            .map(|(name, make)| (name.clone(), make(config)))
            .collect()
    }
}

impl Default for OptimizerRules {
    fn default() -> Self {
        OptimizerRules::builtin()
    }
}

impl fmt::Debug for OptimizerRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
