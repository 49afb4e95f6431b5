//! Decisions at the end of groups: about the plan, and about the number of workers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{GroupScheduler, GroupSummary, SchedulerAction};
use crate::elasticity::{ElasticityPolicy, GroupLoad, ScalingDecision};
use crate::figures::RangeFigures;
use crate::optimizer::{GroupStatistics, Optimizer, RangeStatistics, StageStatistics};
use crate::placement::RangeId;
use ardea_coordination::packing::ContainerId;

/// The optimizer, the elasticity policy, and their inputs up to the group before.
#[derive(Debug, Default)]
pub(super) struct Adaptation {
    pub(super) optimizer: Option<Box<dyn Optimizer>>,
    pub(super) elasticity: Option<Box<dyn ElasticityPolicy>>,
    /// The totals of each range at the end of the group before, with their worker.
    ranges_before: BTreeMap<RangeId, (ContainerId, RangeFigures)>,
    /// The time in which all tasks had run at the end of the group before.
    busy_before: Duration,
    /// The requested number of workers, until it is reached.
    requested: Option<u32>,
}

impl Adaptation {
    /// Forgets the totals of an earlier attempt.
    pub(super) fn begin(&mut self) {
        self.ranges_before.clear();
        self.busy_before = Duration::ZERO;
        self.requested = None;
    }
}

impl GroupScheduler {
    /// Calls the optimizer and the elasticity policy with a group that has ended.
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
        if self.adaptation.elasticity.is_some() {
            let load = self.load(summary);
            let policy = self.adaptation.elasticity.as_mut();
            if let Some(wanted) = policy.map(|policy| policy.wanted_workers(&load)) {
                self.request_workers(wanted, load, actions);
            }
        }
    }

    fn request_workers(
        &mut self,
        wanted: u32,
        load: GroupLoad,
        actions: &mut Vec<SchedulerAction>,
    ) {
        let requested = (wanted != load.workers).then_some(wanted);
        if requested.is_some() && requested != self.adaptation.requested {
            actions.push(SchedulerAction::Scale(ScalingDecision { wanted, load }));
        }
        self.adaptation.requested = requested;
    }

    fn load(&mut self, summary: &GroupSummary) -> GroupLoad {
        let busy = summary.totals.work.busy();
        let before = std::mem::replace(&mut self.adaptation.busy_before, busy);
        GroupLoad {
            group: summary.group,
            duration: summary.duration,
            workers: u32::try_from(self.eligible().len()).unwrap_or(u32::MAX),
            worker_threads: self.config.worker_threads,
            busy: busy.saturating_sub(before),
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
