//! Drained hosts: containers on them are replaced by new containers on other hosts.
//!
//! A scheduler that manages hosts repeatedly reports the containers of the job that must leave
//! their hosts. This causes a regular change of plans: the next plan has the same instances under
//! new container numbers, which the scheduler starts on allowed hosts. So the change is stored
//! before it is executed, a new leader continues it, and it delays records no longer than a
//! rescale. A container for which there is no room elsewhere stays.

use crate::packing::ContainerId;

use super::{JobMaster, MasterAction, MasterStatus};

/// A container that must leave its host, as reported by the scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainersToMove {
    /// The container.
    pub container: ContainerId,
    /// The name of the host that the container must leave.
    pub host: String,
    /// The reason for which no other host can take the container at the moment; `None` if one can.
    pub stuck: Option<String>,
}

impl JobMaster {
    /// Handles the scheduler's complete list of containers that must leave their hosts.
    pub(super) fn displaced(
        &mut self,
        displaced: Vec<ContainersToMove>,
        actions: &mut Vec<MasterAction>,
    ) {
        let is_stuck = |id: &ContainerId| {
            let mut displaced = displaced.iter();
            displaced.any(|it| it.container == *id && it.stuck.is_some())
        };
        self.stuck.retain(is_stuck);
        for it in &displaced {
            if let Some(why) = &it.stuck
                && self.stuck.insert(it.container)
            {
                actions.push(MasterAction::Note(MasterStatus::Stuck {
                    container: it.container,
                    host: it.host.clone(),
                    why: why.clone(),
                }));
            }
        }
        self.displaced = displaced;
    }

    /// Proposes the next plan, if containers can leave their hosts and no other change is pending.
    /// Returns true if it has proposed a plan.
    pub(super) fn decide_moves(&mut self, actions: &mut Vec<MasterAction>) -> bool {
        // A finished job is not moved.
        if self.displaced.is_empty() || self.has_finished() || self.is_last_attempt() {
            return false;
        }
        let Some(record) = self.record_store.record() else {
            return false;
        };
        let Ok(plan) = self.plan_to_follow(record) else {
            return false;
        };
        let mut can_go = self.displaced.clone();
        can_go.retain(|it| it.stuck.is_none() && plan.container(it.container).is_some());
        if can_go.is_empty() {
            return false;
        }
        let (next, became) = plan.with_new_containers(can_go.iter().map(|it| it.container));
        let mut record = record.clone();
        for ContainersToMove {
            container, host, ..
        } in can_go
        {
            if let Some(to) = became.get(&container).copied() {
                let moves = MasterStatus::Moves {
                    container,
                    host,
                    to,
                };
                actions.push(MasterAction::Note(moves));
            }
        }
        // The scheduler reports the remaining containers again.
        self.displaced.clear();
        self.put_next(&mut record, plan, next);
        self.record_store.propose(record);
        true
    }
}
