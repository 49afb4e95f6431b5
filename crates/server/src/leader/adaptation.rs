//! Changes that the leader makes to a job by itself: by its load, its traffic, or the optimizer.

use ardea_coordination::control::{CommandId, Rejection};
use ardea_coordination::elasticity::ElasticityPolicies;
use ardea_coordination::optimizer::OptimizerRules;
use ardea_coordination::placement::CandidatePlacement;
use ardea_core::Error;

use crate::leader::Submitted;
use crate::leader::driver::Driver;
use crate::leader::elasticity::Elasticity;
use crate::leader::optimization::JobOptimizer;
use crate::leader::traffic_placement::TrafficPlacement;

/// The parts that change a job by themselves.
pub(crate) struct Adaptation {
    /// The elasticity, if the job has a policy.
    pub(super) elasticity: Option<Elasticity>,
    /// The on-line placement by traffic.
    pub(super) placement: TrafficPlacement,
    /// The optimizer.
    pub(super) optimization: JobOptimizer,
}

/// The result of a task of a part.
#[derive(Debug)]
pub(crate) enum AdaptationResult {
    /// The number of hosts of the cluster that are not drained.
    Hosts(u32),
    /// The traffic between hosts at present, in records a second, and the best other placement by
    /// the measured traffic, if there is one.
    Placement(u64, Option<Box<CandidatePlacement>>),
}

impl Adaptation {
    /// Creates the parts for a job.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an unknown policy or wrong
    /// settings.
    pub(crate) fn of(
        submitted: &Submitted,
        policies: &ElasticityPolicies,
        rules: &OptimizerRules,
    ) -> Result<Self, Error> {
        Ok(Adaptation {
            elasticity: Elasticity::of(submitted, policies)?,
            placement: TrafficPlacement::of(submitted)?,
            optimization: JobOptimizer::of(submitted, rules)?,
        })
    }
}

impl Driver {
    /// Starts the tasks that are due.
    pub(super) fn adapt(&mut self) {
        self.follow_load();
        self.follow_traffic();
        self.optimize();
    }

    /// Handles the result of a task.
    pub(super) fn adapted(&mut self, result: AdaptationResult) {
        match result {
            AdaptationResult::Hosts(hosts) => self.follow_load_over(hosts),
            AdaptationResult::Placement(cut, better) => {
                self.note_cuts(cut, better.as_deref());
                self.follow_traffic_to(better);
            }
        }
    }

    /// Notes the reply to a command, if it is one of these parts.
    pub(super) fn note_adaptation_reply(&mut self, id: CommandId, reply: &Result<(), Rejection>) {
        self.note_refused_change(id, reply);
        self.note_placed(id, reply);
        self.note_optimized(id, reply);
    }
}
