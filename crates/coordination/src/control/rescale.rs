//! The transition of a running job from one packing plan to the next: the order of starting
//! instances, switching routes and stopping instances.
//!
//! ```text
//! gather  start the containers of the next plan; nothing else changes, so it can be cancelled
//!   │     until each of them has a worker
//! grow    start the instances that are new in the next plan; instances that move are first stopped
//!   │     until every instance of the next plan runs
//! switch  route records by the next plan
//!   │     until every worker does so
//! shrink  stop the instances that are not in the next plan, release containers without instances
//! ```
//!
//! So a record is never routed to an instance that has not been started, and an instance is stopped
//! only when no worker routes to it any more. While an instance moves, senders buffer its records.
//! Records routed by the previous plan may be in transit until the change is complete. A worker
//! that starts meanwhile therefore also receives the previous plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::packing::{ContainerId, InstanceId, Move, PackingPlan, PlanChange};

use crate::control::PlanVersion;

/// The stages of a change of packing plans, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RescalePhase {
    /// Starting containers, until each container of the next plan has a worker. Running instances
    /// stay.
    Gather,
    /// Starting new instances, until all instances of the next plan run.
    Grow,
    /// Switching the routes, until every worker routes records by the next plan.
    Switch,
    /// Stopping the instances that are not in the next plan, until all of them have stopped.
    Shrink,
}

/// An event for a change of plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScalingEvent {
    /// Every container of the next plan has a worker.
    Gathered,
    /// Every worker has reached the state that the current stage requires.
    Settled,
    /// The switch of the routes has been stored.
    SwitchWritten,
}

/// An action requested by a change of plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScalingAction {
    /// Store that the routes are switched, so that a later leader does not switch them back.
    WriteSwitch,
    /// Send all workers the assignments of the new stage.
    Enter(RescalePhase),
    /// The change is complete: store that the job has only one plan again.
    WriteDone,
}

/// A change of a running job from one packing plan to the next.
#[derive(Debug)]
pub struct Scaling {
    last: Arc<PackingPlan>,
    next: Arc<PackingPlan>,
    last_version: PlanVersion,
    next_version: PlanVersion,
    change: PlanChange,
    stage: RescalePhase,
}

impl Scaling {
    /// Creates a change from the plan `last` to the plan `next`. `switched` is true if an earlier
    /// leader has stored the switch of the routes.
    pub fn new(
        (last_version, last): (PlanVersion, Arc<PackingPlan>),
        (next_version, next): (PlanVersion, Arc<PackingPlan>),
        switched: bool,
    ) -> Self {
        let change = last.change_to(&next);
        Scaling {
            last,
            next,
            last_version,
            next_version,
            change,
            stage: match switched {
                true => RescalePhase::Switch,
                false => RescalePhase::Gather,
            },
        }
    }

    /// Returns the current stage.
    pub fn stage(&self) -> RescalePhase {
        self.stage
    }

    /// Returns the version of the next plan.
    pub fn next(&self) -> PlanVersion {
        self.next_version
    }

    /// Returns the plan by which records are routed in the current stage, with its version.
    pub fn routes(&self) -> (PlanVersion, &Arc<PackingPlan>) {
        match self.stage {
            RescalePhase::Gather | RescalePhase::Grow => (self.last_version, &self.last),
            RescalePhase::Switch | RescalePhase::Shrink => (self.next_version, &self.next),
        }
    }

    /// Returns the version of the plan by which records still in transit may have been routed.
    /// Senders that still buffer such records must be able to reach a worker that starts now.
    pub fn last(&self) -> PlanVersion {
        self.last_version
    }

    /// Returns the containers that exist in the current stage.
    pub fn containers(&self) -> BTreeSet<ContainerId> {
        let both = self.last.containers().iter().chain(self.next.containers());
        let ids = both.map(|container| container.id);
        ids.filter(|id| self.has(*id)).collect()
    }

    /// Returns true if this container exists in the current stage. A container that is not in the
    /// next plan is released when all workers route by the next plan.
    pub fn has(&self, container: ContainerId) -> bool {
        let last = match self.stage {
            RescalePhase::Gather | RescalePhase::Grow | RescalePhase::Switch => {
                self.last.container(container)
            }
            RescalePhase::Shrink => None,
        };
        last.is_some() || self.next.container(container).is_some()
    }

    /// Returns true if this container must have a worker, for its running instances or so that the
    /// change can proceed.
    pub fn needs(&self, container: ContainerId) -> bool {
        self.next.container(container).is_some() || self.runs_before(container)
    }

    /// Returns true if the job is impaired while this container has no worker. Returns false for a
    /// container that is only being started for the next plan.
    pub fn lacks(&self, container: ContainerId) -> bool {
        match self.stage {
            RescalePhase::Gather => self.runs_before(container),
            RescalePhase::Grow | RescalePhase::Switch | RescalePhase::Shrink => {
                self.needs(container)
            }
        }
    }

    /// Returns true if this container still runs its instances by the previous plan, since no
    /// instance has been changed yet.
    fn runs_before(&self, container: ContainerId) -> bool {
        self.stage == RescalePhase::Gather && self.last.container(container).is_some()
    }

    /// Returns the containers of the next plan.
    pub fn next_containers(&self) -> impl Iterator<Item = ContainerId> + '_ {
        let containers = self.next.containers().iter();
        containers.map(|container| container.id)
    }

    /// Returns the instances that this container must run in the current stage. `may_run` returns
    /// true if any process of a container may be running an instance. `holds` returns true if the
    /// container's worker runs the instance, or the instance is assigned to it.
    pub fn instances(
        &self,
        container: ContainerId,
        may_run: impl Fn(ContainerId, &InstanceId) -> bool,
        holds: impl Fn(ContainerId, &InstanceId) -> bool,
    ) -> Vec<InstanceId> {
        if self.stage == RescalePhase::Gather {
            return self.as_before(container, may_run, holds);
        }
        let next = self.next.container(container);
        let arriving = |id: &InstanceId| match self.change.moved.get(id) {
            // A moving instance starts only after it has stopped in its old container. Once it runs
            // in the new container it stays there, even if the old worker returns.
            Some(step) => !may_run(step.from, id) || holds(step.to, id),
            None => true,
        };
        let next = next.map_or(&[][..], |plan| &plan.instances);
        let mut instances: Vec<_> = next.iter().filter(|id| arriving(id)).cloned().collect();
        let last = self.last.container(container);
        let leaving = last.map_or(&[][..], |plan| &plan.instances).iter();
        let leaving = leaving.filter(|id| self.change.stopped.contains_key(id));
        match self.stage {
            RescalePhase::Grow => instances.extend(leaving.cloned()),
            // An instance that has died in the meantime is not restarted.
            RescalePhase::Switch => {
                instances.extend(leaving.filter(|id| holds(container, id)).cloned());
            }
            RescalePhase::Gather | RescalePhase::Shrink => {}
        }
        instances.sort_unstable();
        instances
    }

    /// Returns the instances of this container by the previous plan, and those by the next plan
    /// that an earlier leader has already started in it.
    fn as_before(
        &self,
        container: ContainerId,
        may_run: impl Fn(ContainerId, &InstanceId) -> bool,
        holds: impl Fn(ContainerId, &InstanceId) -> bool,
    ) -> Vec<InstanceId> {
        let of = |plan: &PackingPlan| plan.container(container).map(|it| it.instances.clone());
        let mut instances = of(&self.last).unwrap_or_default();
        instances.retain(|id| match self.change.moved.get(id) {
            Some(step) => !holds(step.to, id) && (holds(step.from, id) || !may_run(step.to, id)),
            None => true,
        });
        let next = of(&self.next).unwrap_or_default().into_iter();
        instances.extend(next.filter(|id| holds(container, id)));
        instances.sort_unstable();
        instances.dedup();
        instances
    }

    /// Returns true if the change can be cancelled, since no instance of the next plan has been
    /// started or moved.
    pub fn can_be_taken_back(&self, may_run: impl Fn(ContainerId, &InstanceId) -> bool) -> bool {
        let mut moved = self.change.moved.iter();
        self.stage == RescalePhase::Gather && !moved.any(|(id, step)| may_run(step.to, id))
    }

    /// Returns the containers that instances move to.
    pub fn destinations(&self) -> BTreeSet<ContainerId> {
        self.change.moved.values().map(|step| step.to).collect()
    }

    /// Returns true if containers are still being started, or if a moving instance has not stopped
    /// in its old container.
    pub fn is_waiting(
        &self,
        may_run: impl Fn(ContainerId, &InstanceId) -> bool,
        holds: impl Fn(ContainerId, &InstanceId) -> bool,
    ) -> bool {
        let mut moved = self.change.moved.iter();
        let waits = |id, step: &Move| may_run(step.from, id) && !holds(step.to, id);
        self.stage == RescalePhase::Gather || moved.any(|(id, step)| waits(id, step))
    }

    /// Handles an event and returns the action to take next.
    pub fn on(&mut self, event: ScalingEvent) -> ScalingAction {
        match (self.stage, event) {
            (RescalePhase::Gather, ScalingEvent::Gathered) => {
                self.stage = RescalePhase::Grow;
                ScalingAction::Enter(RescalePhase::Grow)
            }
            (RescalePhase::Gather, ScalingEvent::Settled) | (_, ScalingEvent::Gathered) => {
                ScalingAction::Enter(self.stage)
            }
            (RescalePhase::Grow, ScalingEvent::Settled) => ScalingAction::WriteSwitch,
            (RescalePhase::Switch, ScalingEvent::Settled) => {
                self.stage = RescalePhase::Shrink;
                ScalingAction::Enter(RescalePhase::Shrink)
            }
            (RescalePhase::Shrink, ScalingEvent::Settled) => ScalingAction::WriteDone,
            (_, ScalingEvent::SwitchWritten) => {
                self.stage = self.stage.max(RescalePhase::Switch);
                ScalingAction::Enter(self.stage)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::{JobDemand, PackingConfig, Placement, Resources, VertexDemand};

    fn plan(parallelism: u32, placement: &[(u32, &[u32])]) -> Arc<PackingPlan> {
        let demand =
            JobDemand::new("job").vertex(VertexDemand::new("v", parallelism, Resources::ZERO));
        let placement: Placement = placement
            .iter()
            .map(|(container, indices)| {
                let instances = indices.iter().map(|index| InstanceId::new("v", *index));
                (ContainerId(*container), instances.collect())
            })
            .collect();
        Arc::new(PackingPlan::of(&demand, &PackingConfig::default(), placement).unwrap())
    }

    fn indices(instances: Vec<InstanceId>) -> Vec<u32> {
        instances.into_iter().map(|id| id.index).collect()
    }

    const ONE: ContainerId = ContainerId(1);
    const TWO: ContainerId = ContainerId(2);

    fn scaling(last: Arc<PackingPlan>, next: Arc<PackingPlan>) -> Scaling {
        Scaling::new((PlanVersion(1), last), (PlanVersion(2), next), false)
    }

    fn gathered(last: Arc<PackingPlan>, next: Arc<PackingPlan>) -> Scaling {
        let mut scaling = scaling(last, next);
        let enters = scaling.on(ScalingEvent::Gathered);
        assert_eq!(enters, ScalingAction::Enter(RescalePhase::Grow));
        scaling
    }

    #[test]
    fn nothing_is_changed_before_the_containers_are_there_but_what_has_moved_already_stays() {
        let last = plan(2, &[(1, &[0, 1])]);
        let scaling = scaling(last, plan(3, &[(1, &[0]), (2, &[1, 2])]));
        let at = |holder| move |at, id: &InstanceId| at == holder && id.index == 1;
        let nowhere = |_, _: &InstanceId| false;
        let told = |may_run: &dyn Fn(ContainerId, &InstanceId) -> bool,
                    holds: &dyn Fn(ContainerId, &InstanceId) -> bool| {
            [ONE, TWO].map(|container| indices(scaling.instances(container, may_run, holds)))
        };
        assert_eq!(told(&at(ONE), &at(ONE)), [vec![0, 1], vec![]]);
        assert_eq!(told(&nowhere, &nowhere), [vec![0, 1], vec![]]);
        // A new leader learns from workers of moves that the previous leader has started.
        assert_eq!(told(&at(TWO), &nowhere), [vec![0], vec![]]);
        assert_eq!(told(&at(TWO), &at(ONE)), [vec![0, 1], vec![]]);
        assert_eq!(told(&at(TWO), &at(TWO)), [vec![0], vec![1]]);
        assert!(scaling.needs(ONE) && scaling.needs(TWO));
        assert!(scaling.lacks(ONE) && !scaling.lacks(TWO));
        assert!(scaling.is_waiting(nowhere, nowhere));
        assert!(scaling.can_be_taken_back(at(ONE)) && !scaling.can_be_taken_back(at(TWO)));
    }

    #[test]
    fn routes_switch_when_all_runs_and_what_goes_is_stopped_after_that() {
        let last = plan(4, &[(1, &[0, 2]), (2, &[1, 3])]);
        let mut scaling = gathered(last, plan(2, &[(1, &[0]), (2, &[1])]));
        let all = |_, _: &_| true;
        assert_eq!(indices(scaling.instances(ONE, all, all)), [0, 2]);
        assert_eq!(scaling.routes().0, PlanVersion(1));
        assert_eq!(
            scaling.on(ScalingEvent::Settled),
            ScalingAction::WriteSwitch
        );
        scaling.on(ScalingEvent::SwitchWritten);
        assert_eq!(scaling.routes().0, PlanVersion(2));
        assert_eq!(scaling.last(), PlanVersion(1));
        assert_eq!(indices(scaling.instances(ONE, all, all)), [0, 2]);
        assert_eq!(
            indices(scaling.instances(ONE, |_, _| false, |_, _| false)),
            [0]
        );
        scaling.on(ScalingEvent::Settled);
        assert_eq!(indices(scaling.instances(ONE, all, all)), [0]);
        assert_eq!(scaling.on(ScalingEvent::Settled), ScalingAction::WriteDone);
    }

    #[test]
    fn what_moves_is_started_when_it_has_stopped_where_it_was() {
        let last = plan(2, &[(1, &[0, 1])]);
        let scaling = gathered(last, plan(2, &[(1, &[0]), (2, &[1])]));
        let held_at = |holder| move |at, _: &InstanceId| at == holder;
        assert_eq!(
            indices(scaling.instances(ONE, held_at(ONE), held_at(ONE))),
            [0]
        );
        assert!(
            scaling
                .instances(TWO, held_at(ONE), held_at(ONE))
                .is_empty()
        );
        assert!(scaling.is_waiting(held_at(ONE), held_at(ONE)));
        assert_eq!(
            indices(scaling.instances(TWO, |_, _| false, |_, _| false)),
            [1]
        );
        // The old worker returns after a long silence: the instance stays with the new one.
        assert_eq!(
            indices(scaling.instances(TWO, |_, _| true, |_, _| true)),
            [1]
        );
        assert!(!scaling.is_waiting(|_, _| true, |_, _| true));
    }

    #[test]
    fn a_container_that_is_given_back_stays_until_nobody_routes_to_it() {
        let last = plan(2, &[(1, &[0]), (2, &[1])]);
        let mut scaling = gathered(last, plan(1, &[(1, &[0])]));
        assert_eq!(scaling.containers(), BTreeSet::from([ONE, TWO]));
        assert!(scaling.needs(ONE) && !scaling.needs(TWO));
        assert!(scaling.has(ONE) && scaling.has(TWO));
        scaling.on(ScalingEvent::SwitchWritten);
        assert_eq!(scaling.containers(), BTreeSet::from([ONE, TWO]));
        scaling.on(ScalingEvent::Settled);
        assert_eq!(scaling.containers(), BTreeSet::from([ONE]));
        assert!(scaling.has(ONE) && !scaling.has(TWO));
    }
}
