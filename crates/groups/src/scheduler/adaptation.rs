//! Decisions about the plan at the end of groups.

use std::collections::BTreeMap;

use super::{GroupScheduler, GroupSummary, SchedulerAction};
use crate::figures::RangeFigures;
use crate::optimizer::{GroupStatistics, Optimizer, RangeStatistics, StageStatistics};
use crate::placement::RangeId;
use ardea_coordination::packing::ContainerId;

/// The optimizer, and its input up to the group before.
#[derive(Debug, Default)]
pub(super) struct Adaptation {
    pub(super) optimizer: Option<Box<dyn Optimizer>>,
    /// The totals of each range at the end of the group before, with their worker.
    ranges_before: BTreeMap<RangeId, (ContainerId, RangeFigures)>,
}

impl Adaptation {
    /// Forgets the totals of an earlier attempt.
    pub(super) fn begin(&mut self) {
        self.ranges_before.clear();
    }
}

impl GroupScheduler {
    /// Calls the optimizer with a group that has ended.
    pub(super) fn adapt(&mut self, summary: &GroupSummary, actions: &mut Vec<SchedulerAction>) {
        if self.adaptation.optimizer.is_some() {
            let statistics = self.statistics(summary);
            let optimizer = self.adaptation.optimizer.as_mut();
            let decisions = optimizer.map(|optimizer| optimizer.on_group(&statistics));
            actions.extend(
                decisions
                    .filter(|decisions| !decisions.is_empty())
                    .map(SchedulerAction::Decided),
            );
        }
    }

    /// Returns the work of each range since the group before. It may include tasks of the next
    /// group, which some workers have begun.
    fn statistics(&mut self, summary: &GroupSummary) -> GroupStatistics {
        let mut latest = BTreeMap::new();
        for (worker, member) in &self.members {
            for figures in &member.ranges {
                if self.placement.worker(figures.at) == Some(*worker) {
                    latest.insert(figures.at, (*worker, *figures));
                }
            }
        }
        let mut stages: Vec<StageStatistics> = self
            .graph
            .numbered()
            .map(|(stage, _)| StageStatistics {
                stage,
                ranges: Vec::new(),
            })
            .collect();
        for (at, (worker, figures)) in &latest {
            let before = self.adaptation.ranges_before.get(at);
            // The totals begin at zero when a range has moved.
            let before = before
                .filter(|(place, before)| place == worker && before.tasks <= figures.tasks)
                .map_or(RangeFigures::zero(*at), |(_, before)| *before);
            if let Some(stage) = stages.get_mut(at.stage.index()) {
                stage.ranges.push(RangeStatistics {
                    range: at.range,
                    worker: *worker,
                    tasks: figures.tasks - before.tasks,
                    work: figures.work.since(before.work),
                });
            }
        }
        self.adaptation.ranges_before = latest;
        GroupStatistics {
            group: summary.group,
            batches: summary.batches,
            duration: summary.duration,
            stages,
        }
    }
}
