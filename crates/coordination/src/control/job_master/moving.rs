//! Containers whose hosts are drained: others take their place, on other hosts.
//!
//! A scheduler that sees hosts says which of the job's containers are to leave theirs, again and again, as long as that is so. What follows is
//! a change of plans like any other: the next plan has the same instances under new numbers of containers, which the scheduler
//! starts where they may be. So it is stored before it is done, whoever takes over goes on with it, and records wait no longer than they do when
//! the job is rescaled. A container for which there is no room stays where it is.

use crate::packing::ContainerId;

use super::{JobMaster, MasterAction, Note};

/// A container that is to leave its host, as the scheduler says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Displaced {
    /// The container.
    pub container: ContainerId,
    /// The host, by its name in the cluster.
    pub host: String,
    /// Why it can go nowhere else at the moment, if that is so.
    pub stuck: Option<String>,
}

impl JobMaster {
    /// These containers are to leave their hosts, and no others.
    pub(super) fn displaced(&mut self, displaced: Vec<Displaced>, actions: &mut Vec<MasterAction>) {
        let is_stuck = |id: &ContainerId| {
            let mut displaced = displaced.iter();
            displaced.any(|it| it.container == *id && it.stuck.is_some())
        };
        self.stuck.retain(is_stuck);
        for it in &displaced {
            if let Some(why) = &it.stuck
                && self.stuck.insert(it.container)
            {
                actions.push(MasterAction::Note(Note::Stuck {
                    container: it.container,
                    host: it.host.clone(),
                    why: why.clone(),
                }));
            }
        }
        self.displaced = displaced;
    }

    /// Has the next plan written, if containers can leave their hosts, and nothing else is being changed; whether it does.
    pub(super) fn decide_moves(&mut self, actions: &mut Vec<MasterAction>) -> bool {
        // What has come to its end goes nowhere.
        if self.displaced.is_empty() || self.has_finished() || self.are_lives_over() {
            return false;
        }
        let Some(record) = self.keeper.record() else {
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
        for Displaced {
            container, host, ..
        } in can_go
        {
            if let Some(to) = became.get(&container).copied() {
                let moves = Note::Moves {
                    container,
                    host,
                    to,
                };
                actions.push(MasterAction::Note(moves));
            }
        }
        // The scheduler says it again of those that are left then.
        self.displaced.clear();
        self.put_next(&mut record, plan, next);
        self.keeper.propose(record);
        true
    }
}
