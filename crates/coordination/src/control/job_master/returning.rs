//! Changes of plans that are taken back, because containers of the next plan find no room.
//!
//! Until the scheduler has all containers of the next plan, of their new sizes, and each has a worker, nothing of what runs is changed.
//! When it refuses them for too long, when one of them doesn't come up, or somebody asks for the numbers that the job comes from, the plan that
//! it has becomes the next one, under a number of its own: so the change ends as every other does, and no number ever means two plans.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{JobDemand, PackingPlan};

use super::scheduler_desk::Subject;
use super::{JobMaster, JobPhase, MasterAction, Note};
use crate::control::{JobRecord, ScalingEvent, Stage};

impl JobMaster {
    /// Goes on with a change of plans when all containers of the next one are had, and have workers.
    pub(super) fn gather(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        if self.killing() || self.waits_for_scheduler() {
            return;
        }
        let Some(scaling) = &mut self.scaling else {
            return;
        };
        let mut containers = scaling.next_containers();
        let are_there = containers.all(|container| self.workers.contains_key(&container));
        drop(containers);
        if are_there && scaling.stage() == Stage::Gather {
            scaling.on(ScalingEvent::Gathered);
            self.settle_all(now, actions);
        }
    }

    /// Whether the scheduler has yet to say that it has the containers that there should be.
    pub(super) fn waits_for_scheduler(&self) -> bool {
        self.desk.is_waiting(Subject::Job)
    }

    /// Whether nothing has been changed yet for the sake of the next plan, and nothing can be.
    pub(super) fn can_take_back(&self, record: &JobRecord) -> bool {
        let Some(previous) = record.previous.as_ref() else {
            return false;
        };
        match (&self.lives, &self.scaling) {
            // Whoever conducts its epochs may have had the next plan written as soon as it was told of it.
            (Some(lives), _) => lives.runs_by(previous.version, record.plan_version),
            (None, Some(scaling)) => scaling.can_be_taken_back(self.may_run()),
            (None, None) => false,
        }
    }

    /// Takes a change of plans back whose containers have been refused, or waited for, too long; whether it does.
    pub(super) fn decide_return(&mut self, now: Duration, actions: &mut Vec<MasterAction>) -> bool {
        let Some(record) = self.keeper.record() else {
            return false;
        };
        let Some(why) = self.hopeless(now, record) else {
            return false;
        };
        if !self.can_take_back(record) || record.is_taken_back() {
            return false;
        }
        let note = Note::WentBack(why);
        let mut record = record.clone();
        record.take_back();
        actions.push(MasterAction::Note(note));
        self.keeper.propose(record);
        true
    }

    /// Why there is no use in waiting for the containers of the next plan any longer, if there is none.
    fn hopeless(&self, now: Duration, record: &JobRecord) -> Option<String> {
        let refusal = self.desk.refusal(Subject::Job);
        let refusal = refusal.filter(|(_, since)| now >= *since + self.config.room_within);
        if let Some((why, _)) = refusal {
            return Some(why.to_string());
        }
        let within = self.config.up_within;
        let awaited = self.longest_awaited(&record.previous.as_ref()?.plan);
        let (id, _) = awaited.filter(|(_, since)| now >= *since + within)?;
        Some(format!("container {id} has not come up in {within:?}"))
    }

    /// What the job waits for, if it waits for something that does not come by itself.
    pub fn waits_for(&self) -> Option<String> {
        let record = self.keeper.record()?;
        let refused = self.desk.any_refusal();
        match (&self.phase, refused) {
            (JobPhase::Updating, Some(why)) if self.can_take_back(record) => {
                let within = self.config.room_within;
                Some(format!(
                    "{why}; it goes back to what it was if that lasts for {within:?}"
                ))
            }
            (JobPhase::Starting | JobPhase::Updating | JobPhase::Recovering, Some(why)) => {
                Some(why.to_string())
            }
            _ => self.displaced.iter().find_map(|it| {
                let (container, host) = (it.container, &it.host);
                let why = it.stuck.as_ref()?;
                Some(format!(
                    "host {host} is drained, and container {container} has to stay there: {why}"
                ))
            }),
        }
    }
}

impl JobRecord {
    /// Whether the job had so many containers, is to have others, and nothing else is to change.
    pub(super) fn is_rescaled_from(&self, containers: NonZeroU32) -> bool {
        let (Some(plan), Some(previous)) = (&self.plan, &self.previous) else {
            return false;
        };
        let (now, before) = (plan.containers().len(), previous.plan.containers().len());
        let wanted = containers.get() as usize;
        now != before && before == wanted && self.demand_before() == Some(self.demand.clone())
    }

    /// Whether that is what the job asked for before it was to change.
    pub(super) fn is_updated_from(&self, demand: &JobDemand) -> bool {
        self.demand != *demand && self.demand_before().as_ref() == Some(demand)
    }

    /// Whether the job is on its way back already.
    fn is_taken_back(&self) -> bool {
        let before = self.previous.as_ref().map(|previous| &previous.plan);
        before.is_some() && before == self.plan.as_ref()
    }

    /// What the job asked for when it was packed by the plan before.
    fn demand_before(&self) -> Option<JobDemand> {
        let counts = counts(&self.previous.as_ref()?.plan);
        let counts = counts.iter().map(|(vertex, count)| (*vertex, *count));
        self.demand.rescaled(counts).ok()
    }

    /// Makes the plan before the next one, under another number.
    pub(super) fn take_back(&mut self) {
        let Some(before) = self.previous.as_ref().map(|it| Arc::clone(&it.plan)) else {
            return;
        };
        let count = |plan: &PackingPlan| plan.containers().len();
        let is_other_count = self.plan.as_ref().map(|plan| count(plan)) != Some(count(&before));
        match self.demand_before() {
            Some(demand) if demand != self.demand => self.demand = demand,
            _ if is_other_count => {
                let containers = u32::try_from(count(&before)).ok();
                self.packing.containers = containers.and_then(NonZeroU32::new);
            }
            _ => {}
        }
        self.plan = Some(before);
        self.plan_version.0 += 1;
    }
}

/// How many instances of each vertex there are by a plan.
fn counts(plan: &PackingPlan) -> BTreeMap<&str, u32> {
    let mut counts = BTreeMap::new();
    let instances = plan.containers().iter().flat_map(|it| &it.instances);
    for instance in instances {
        *counts.entry(instance.vertex.as_str()).or_default() += 1;
    }
    counts
}
