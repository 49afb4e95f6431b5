//! From one packing plan to the next while the job runs: in which order instances start, routes switch and instances stop.
//!
//! ```text
//! gather  the containers of the next plan are started, and nothing else is changed: it can be taken back
//!   │     until each of them has a worker
//! grow    what the next plan has, and the last had not, is started; what moves is stopped first where it was
//!   │     until every instance of the next plan runs
//! switch  records are routed by the next plan
//!   │     until every worker does so
//! shrink  what the next plan has no longer is stopped, and containers without instances are given back
//! ```
//!
//! So a record is never routed to an instance that has not been started, and an instance is stopped only when nobody routes to
//! it any more. An instance that moves is missing for as long as it takes to start it: senders hold what is for it.
//! What was routed by the last plan is under way until all is done: a worker that starts meanwhile is told of that plan as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::packing::{ContainerId, InstanceId, Move, PackingPlan, PlanChange};

use crate::control::PlanVersion;

/// The stages of a change of plans, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Starting containers, until each of the next plan has a worker. What runs stays where it is.
    Gather,
    /// Starting what is new, until all of the next plan runs.
    Grow,
    /// Routing by the next plan, until everybody does.
    Switch,
    /// Stopping what is no longer wanted, until it has stopped.
    Shrink,
}

/// What happens to a change of plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScalingEvent {
    /// Every container of the next plan has a worker.
    Gathered,
    /// Every worker does all that this stage asks of it.
    Settled,
    /// It is written down that the routes switch.
    SwitchWritten,
}

/// What a change of plans wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScalingAction {
    /// Write down that the routes switch: a master that takes over must not switch them back.
    WriteSwitch,
    /// Tell everybody what the new stage asks of them.
    Enter(Stage),
    /// It is done: write down that there is one plan again.
    WriteDone,
}

/// A change of plans.
#[derive(Debug)]
pub struct Scaling {
    last: Arc<PackingPlan>,
    next: Arc<PackingPlan>,
    last_version: PlanVersion,
    next_version: PlanVersion,
    change: PlanChange,
    stage: Stage,
}

impl Scaling {
    /// From one plan to the next; `switched` if a master before this one has written that the routes switch.
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
                true => Stage::Switch,
                false => Stage::Gather,
            },
        }
    }

    /// The stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The number of the plan that it leads to.
    pub fn next(&self) -> PlanVersion {
        self.next_version
    }

    /// The plan by which records are routed in this stage.
    pub fn routes(&self) -> (PlanVersion, &Arc<PackingPlan>) {
        match self.stage {
            Stage::Gather | Stage::Grow => (self.last_version, &self.last),
            Stage::Switch | Stage::Shrink => (self.next_version, &self.next),
        }
    }

    /// The number of the plan by which records that are still under way may have been routed. Whoever comes now has to be there for
    /// those who still hold some.
    pub fn last(&self) -> PlanVersion {
        self.last_version
    }

    /// The containers that are there in this stage.
    pub fn containers(&self) -> BTreeSet<ContainerId> {
        let both = self.last.containers().iter().chain(self.next.containers());
        let ids = both.map(|container| container.id);
        ids.filter(|id| self.has(*id)).collect()
    }

    /// Whether this container is there in this stage: one that the next plan has not is given back when everybody routes by that.
    pub fn has(&self, container: ContainerId) -> bool {
        let last = match self.stage {
            Stage::Gather | Stage::Grow | Stage::Switch => self.last.container(container),
            Stage::Shrink => None,
        };
        last.is_some() || self.next.container(container).is_some()
    }

    /// Whether this container has to have a worker, for the change to go on or for what runs.
    pub fn needs(&self, container: ContainerId) -> bool {
        self.next.container(container).is_some() || self.runs_before(container)
    }

    /// Whether the job lacks something while this container has no worker: not as long as one is just gathered for the next plan.
    pub fn lacks(&self, container: ContainerId) -> bool {
        match self.stage {
            Stage::Gather => self.runs_before(container),
            Stage::Grow | Stage::Switch | Stage::Shrink => self.needs(container),
        }
    }

    /// Whether this container runs what it did by the last plan, as nothing has been changed yet.
    fn runs_before(&self, container: ContainerId) -> bool {
        self.stage == Stage::Gather && self.last.container(container).is_some()
    }

    /// The containers of the next plan.
    pub fn next_containers(&self) -> impl Iterator<Item = ContainerId> + '_ {
        let containers = self.next.containers().iter();
        containers.map(|container| container.id)
    }

    /// What this container has to run in this stage. `may_run` says whether any process of a container may be running an instance,
    /// `holds` whether its worker does, or has been told to.
    pub fn instances(
        &self,
        container: ContainerId,
        may_run: impl Fn(ContainerId, &InstanceId) -> bool,
        holds: impl Fn(ContainerId, &InstanceId) -> bool,
    ) -> Vec<InstanceId> {
        if self.stage == Stage::Gather {
            return self.as_before(container, may_run, holds);
        }
        let next = self.next.container(container);
        let arriving = |id: &InstanceId| match self.change.moved.get(id) {
            // Not before it has stopped where it was; once it runs here it stays, whoever comes back.
            Some(step) => !may_run(step.from, id) || holds(step.to, id),
            None => true,
        };
        let next = next.map_or(&[][..], |plan| &plan.instances);
        let mut instances: Vec<_> = next.iter().filter(|id| arriving(id)).cloned().collect();
        let last = self.last.container(container);
        let leaving = last.map_or(&[][..], |plan| &plan.instances).iter();
        let leaving = leaving.filter(|id| self.change.stopped.contains_key(id));
        match self.stage {
            Stage::Grow => instances.extend(leaving.cloned()),
            // One that has died by now is not started again.
            Stage::Switch => {
                instances.extend(leaving.filter(|id| holds(container, id)).cloned());
            }
            Stage::Gather | Stage::Shrink => {}
        }
        instances.sort_unstable();
        instances
    }

    /// What this container ran by the last plan, and what of the next one a master before this one has already had started here.
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

    /// Whether nothing has been changed yet, so that the change can be taken back.
    pub fn can_be_taken_back(&self, may_run: impl Fn(ContainerId, &InstanceId) -> bool) -> bool {
        let mut moved = self.change.moved.iter();
        self.stage == Stage::Gather && !moved.any(|(id, step)| may_run(step.to, id))
    }

    /// The containers that instances move to.
    pub fn destinations(&self) -> BTreeSet<ContainerId> {
        self.change.moved.values().map(|step| step.to).collect()
    }

    /// Whether containers are still gathered, or an instance waits until it has stopped where it was.
    pub fn is_waiting(
        &self,
        may_run: impl Fn(ContainerId, &InstanceId) -> bool,
        holds: impl Fn(ContainerId, &InstanceId) -> bool,
    ) -> bool {
        let mut moved = self.change.moved.iter();
        let waits = |id, step: &Move| may_run(step.from, id) && !holds(step.to, id);
        self.stage == Stage::Gather || moved.any(|(id, step)| waits(id, step))
    }

    /// Deals with an event.
    pub fn on(&mut self, event: ScalingEvent) -> ScalingAction {
        match (self.stage, event) {
            (Stage::Gather, ScalingEvent::Gathered) => {
                self.stage = Stage::Grow;
                ScalingAction::Enter(Stage::Grow)
            }
            (Stage::Gather, ScalingEvent::Settled) | (_, ScalingEvent::Gathered) => {
                ScalingAction::Enter(self.stage)
            }
            (Stage::Grow, ScalingEvent::Settled) => ScalingAction::WriteSwitch,
            (Stage::Switch, ScalingEvent::Settled) => {
                self.stage = Stage::Shrink;
                ScalingAction::Enter(Stage::Shrink)
            }
            (Stage::Shrink, ScalingEvent::Settled) => ScalingAction::WriteDone,
            (_, ScalingEvent::SwitchWritten) => {
                self.stage = self.stage.max(Stage::Switch);
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
        assert_eq!(enters, ScalingAction::Enter(Stage::Grow));
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
        // A new master hears of the one before it what it can't know.
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
        // The old worker comes back from a long silence: the new one keeps it.
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
