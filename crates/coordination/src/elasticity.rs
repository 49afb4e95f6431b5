//! Policies that change the number of instances or containers of a running job with its load.
//!
//! The job's leader measures a [`JobLoad`] over a time window and passes it to the job's
//! [`ElasticityPolicy`]. It carries the [`ScalingProposal`] out as if a user had asked for it: the
//! scheduler gets requests for machines, and releases those that are no longer needed. The loads of
//! the next window are those of the changed job. So a policy needs no memory of its own changes.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use crate::packing::VertexName;

mod container_per_host;
mod load;
mod settings;
mod target_utilization;

pub use container_per_host::ContainerPerHost;
pub use load::{JobLoad, VertexLoad};
pub use settings::{ELASTICITY_SETTINGS, ElasticityConfig};
pub use target_utilization::TargetUtilization;

/// The name of the policy that never changes a job.
pub const NO_ELASTICITY: &str = "none";

/// A policy that sizes a running job by its load.
///
/// The leader calls it at the end of each window while the job runs and no other change is under
/// way. The following policy gives each step one instance for 10,000 records a second:
///
/// ```
/// use ardea_coordination::elasticity::*;
///
/// struct ByRate;
///
/// impl ElasticityPolicy for ByRate {
///     fn decide(&mut self, load: &JobLoad) -> Option<ScalingProposal> {
///         let mut vertices = load.vertices.iter();
///         let (vertex, wanted) = vertices.find_map(|vertex| {
///             let wanted = (vertex.records_per_second / 10_000.0).ceil().max(1.0) as u32;
///             (wanted != vertex.parallelism && !vertex.is_fixed).then_some((vertex, wanted))
///         })?;
///         let why = format!("{} records/s", vertex.records_per_second.round());
///         Some(ScalingProposal::instances(vertex.vertex.clone(), wanted, why))
///     }
/// }
///
/// let policies = ElasticityPolicies::builtin().with("by-rate", |_| Box::new(ByRate));
/// let config = ElasticityConfig { policy: "by-rate".into(), ..ElasticityConfig::default() };
/// assert!(policies.policy_of(&config)?.is_some());
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub trait ElasticityPolicy: Send {
    /// Returns the change that the job needs, if any.
    fn decide(&mut self, load: &JobLoad) -> Option<ScalingProposal>;
}

/// A change of the size of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SizeChange {
    /// Other numbers of instances of these vertices. Vertices that must have the same number
    /// change with them.
    Instances(BTreeMap<VertexName, u32>),
    /// Another number of containers, over which the instances are spread.
    Containers(NonZeroU32),
}

/// A change that a policy proposes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScalingProposal {
    /// The change.
    pub change: SizeChange,
    /// The reason with the figures that led to it, for the history of the job.
    pub reason: String,
}

impl ScalingProposal {
    /// Returns a proposal of another number of instances of one vertex.
    pub fn instances(vertex: VertexName, count: u32, reason: impl Into<String>) -> Self {
        ScalingProposal {
            change: SizeChange::Instances([(vertex, count)].into()),
            reason: reason.into(),
        }
    }

    /// Returns a proposal of another number of containers.
    pub fn containers(count: NonZeroU32, reason: impl Into<String>) -> Self {
        ScalingProposal {
            change: SizeChange::Containers(count),
            reason: reason.into(),
        }
    }
}

type MakePolicy = dyn Fn(&ElasticityConfig) -> Box<dyn ElasticityPolicy> + Send + Sync;

/// Elasticity policies by name. A job chooses its policy by the setting `elasticity.policy`.
#[derive(Clone)]
pub struct ElasticityPolicies(BTreeMap<String, Arc<MakePolicy>>);

impl ElasticityPolicies {
    /// Returns the policies of this crate: `hosts`, `utilization`.
    pub fn builtin() -> Self {
        ElasticityPolicies(BTreeMap::new())
            .with("hosts", |_| Box::new(ContainerPerHost))
            .with("utilization", |config| {
                Box::new(TargetUtilization::new(config))
            })
    }

    /// Adds a policy, or replaces the one of this name. `make` is called for each job and leader.
    pub fn with(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&ElasticityConfig) -> Box<dyn ElasticityPolicy> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.into(), Arc::new(make));
        self
    }

    /// Returns the policy of a job; `None` if the job has none.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] with the known names, if there is no policy of this name.
    pub fn policy_of(
        &self,
        config: &ElasticityConfig,
    ) -> Result<Option<Box<dyn ElasticityPolicy>>> {
        self.check_name(&config.policy)?;
        Ok(self.0.get(&config.policy).map(|make| make(config)))
    }

    /// Checks that there is a policy of this name.
    ///
    /// # Errors
    /// As [`policy_of`](Self::policy_of).
    pub fn check_name(&self, name: &str) -> Result<()> {
        if name == NO_ELASTICITY || self.0.contains_key(name) {
            return Ok(());
        }
        let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        let what = format!("there is no elasticity policy {name:?}");
        let hint = format!("choose one of: {NO_ELASTICITY}, {}", names.join(", "));
        Err(Error::new(ErrorCode::InvalidConfig, what).hint(hint))
    }
}

impl Default for ElasticityPolicies {
    fn default() -> Self {
        ElasticityPolicies::builtin()
    }
}

impl fmt::Debug for ElasticityPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The times at which a policy is asked.
///
/// A window begins when the job has begun to run, and after each change or failure. A policy is
/// asked at the end of each window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElasticityTimer {
    window: Duration,
    /// The start of the window; `None` while the job does not run.
    since: Option<Duration>,
}

impl ElasticityTimer {
    /// Creates the timer of a job that does not run yet.
    pub fn new(window: Duration) -> Self {
        ElasticityTimer {
            window,
            since: None,
        }
    }

    /// Returns true if a window ends at `now`. Must be called whenever `is_running` changes: true
    /// while all instances run and no change is under way.
    pub fn ends(&mut self, now: Duration, is_running: bool) -> bool {
        if !is_running {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_over = now.saturating_sub(since) >= self.window;
        if is_over {
            self.since = Some(now);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_anew_after_each_interruption() {
        let at = Duration::from_secs;
        let mut timer = ElasticityTimer::new(at(10));
        let asks = [
            (0, false, false),
            (5, true, false),
            (14, true, false),
            (15, true, true),
            (24, true, false),
            (25, true, true),
            (30, false, false),
            (31, true, false),
            (40, true, false),
            (41, true, true),
        ];
        for (second, is_running, ends) in asks {
            assert_eq!(timer.ends(at(second), is_running), ends, "at {second}");
        }
    }

    #[test]
    fn a_job_without_a_policy_has_none_and_an_unknown_one_is_refused() {
        let policies = ElasticityPolicies::builtin();
        let mut config = ElasticityConfig::default();
        assert!(policies.policy_of(&config).unwrap().is_none());
        config.policy = "utilisation".into();
        let error = policies.policy_of(&config).err().unwrap();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(format!("{error:?}").contains("none, hosts, utilization"));
    }
}
