//! Cancellation of a change of plans if the containers of the next plan cannot be started.
//!
//! No running instance is changed before the scheduler has started all containers of the next plan
//! in their new sizes, and each of them has a worker. The change is cancelled if the scheduler
//! refuses for too long, if a container does not start, or if a user requests the previous number
//! of containers or instances. The current plan then becomes the next plan, under a new version. So
//! the change ends like any other change, and no version ever denotes two plans.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{JobDemand, PackingPlan};

use super::scheduler_calls::Subject;
use super::{JobMaster, JobPhase, MasterAction, MasterStatus};
use crate::control::{JobRecord, RescalePhase, ScalingEvent};

impl JobMaster {
    /// Continues a change of plans as soon as all containers of the next plan exist and have
    /// workers.
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
        if are_there && scaling.stage() == RescalePhase::Gather {
            scaling.on(ScalingEvent::Gathered);
            self.settle_all(now, actions);
        }
    }

    /// Returns true if the scheduler has not confirmed the required containers yet.
    pub(super) fn waits_for_scheduler(&self) -> bool {
        self.scheduler_calls.is_waiting(Subject::Job)
    }

    /// Returns true if the change to the next plan can be cancelled, since no running instance has
    /// been changed for it.
    pub(super) fn can_cancel_change(&self, record: &JobRecord) -> bool {
        let Some(previous) = record.previous.as_ref() else {
            return false;
        };
        match (&self.attempts, &self.scaling) {
            // The coordinator may have stored the next plan as soon as it was passed to it.
            (Some(lives), _) => lives.runs_by(previous.version, record.plan_version),
            (None, Some(scaling)) => scaling.can_be_taken_back(self.may_run()),
            (None, None) => false,
        }
    }

    /// Cancels a change of plans if the scheduler has refused its containers, or their workers are
    /// missing, for too long. Returns true if it has cancelled the change.
    pub(super) fn decide_return(&mut self, now: Duration, actions: &mut Vec<MasterAction>) -> bool {
        let Some(record) = self.record_store.record() else {
            return false;
        };
        let Some(why) = self.cancellation_reason(now, record) else {
            return false;
        };
        if !self.can_cancel_change(record) || record.is_taken_back() {
            return false;
        }
        let note = MasterStatus::PlanCancelled(why);
        let mut record = record.clone();
        record.cancel_change();
        actions.push(MasterAction::Note(note));
        self.record_store.propose(record);
        true
    }

    /// Returns the reason to stop waiting for the containers of the next plan, if any.
    fn cancellation_reason(&self, now: Duration, record: &JobRecord) -> Option<String> {
        let refusal = self.scheduler_calls.refusal(Subject::Job);
        let refusal = refusal.filter(|(_, since)| now >= *since + self.config.room_within);
        if let Some((why, _)) = refusal {
            return Some(why.to_string());
        }
        let within = self.config.up_within;
        let awaited = self.longest_awaited(&record.previous.as_ref()?.plan);
        let (id, _) = awaited.filter(|(_, since)| now >= *since + within)?;
        Some(format!("container {id} has not started in {within:?}"))
    }

    /// Returns a description of the condition that the job waits for, if a user may have to act,
    /// otherwise `None`.
    pub fn waits_for(&self) -> Option<String> {
        let record = self.record_store.record()?;
        let refused = self.scheduler_calls.any_refusal();
        match (&self.phase, refused) {
            (JobPhase::Updating, Some(why)) if self.can_cancel_change(record) => {
                let within = self.config.room_within;
                Some(format!(
                    "{why}; the change is cancelled if that lasts for {within:?}"
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
    /// Returns true if the pending change is only a rescale, from `containers` to another number of
    /// containers.
    pub(super) fn is_rescaled_from(&self, containers: NonZeroU32) -> bool {
        let (Some(plan), Some(previous)) = (&self.plan, &self.previous) else {
            return false;
        };
        let (now, before) = (plan.containers().len(), previous.plan.containers().len());
        let wanted = containers.get() as usize;
        now != before && before == wanted && self.demand_before() == Some(self.demand.clone())
    }

    /// Returns true if the pending change has changed the demand, and the demand before was
    /// `demand`.
    pub(super) fn is_updated_from(&self, demand: &JobDemand) -> bool {
        self.demand != *demand && self.demand_before().as_ref() == Some(demand)
    }

    /// Returns true if the change is already being cancelled.
    fn is_taken_back(&self) -> bool {
        let before = self.previous.as_ref().map(|previous| &previous.plan);
        before.is_some() && before == self.plan.as_ref()
    }

    /// Returns the demand by which the previous plan was packed.
    fn demand_before(&self) -> Option<JobDemand> {
        let counts = counts(&self.previous.as_ref()?.plan);
        let counts = counts.iter().map(|(vertex, count)| (*vertex, *count));
        self.demand.rescaled(counts).ok()
    }

    /// Cancels the pending change: makes the previous plan the next one, under a new version.
    pub(super) fn cancel_change(&mut self) {
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

/// Counts the instances of each vertex in a plan.
fn counts(plan: &PackingPlan) -> BTreeMap<&str, u32> {
    let mut counts = BTreeMap::new();
    let instances = plan.containers().iter().flat_map(|it| &it.instances);
    for instance in instances {
        *counts.entry(instance.vertex.as_str()).or_default() += 1;
    }
    counts
}
