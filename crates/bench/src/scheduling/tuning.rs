//! Traces of the tuner: the real scheduler in virtual time, with a modelled cost of coordination.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_coordination::control::{Generation, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Epoch, Result};
use ardea_groups::{
    BatchStage, GroupScheduler, GroupSchedulerConfig, GroupSizing, LocalAction, LocalEvent,
    LocalScheduler, PlannedGroup, SchedulerAction, SchedulerEvent, StageGraph, ToGroupWorker,
    TunerConfig,
};
use serde_json::{Value, json};

use super::Outcome;
use super::params::SchedulingParams;
use crate::report::{rounded, seconds};
use crate::usage::Stopwatch;

const STALL: Duration = Duration::from_secs(1);
const WORKER: ContainerId = ContainerId(1);

pub(super) fn run(params: &SchedulingParams) -> Result<Outcome> {
    let watch = Stopwatch::begin();
    let traces: Result<Vec<Value>> = params
        .epoch
        .iter()
        .map(|epoch| trace(params, *epoch))
        .collect();
    let spent = watch.spent();
    let figures = vec![
        ("duration_s", json!(seconds(spent.wall))),
        ("coordination_ms_per_batch", Value::Null),
        ("batch_ms_p50", Value::Null),
        ("batch_ms_p95", Value::Null),
        ("messages_per_batch", Value::Null),
        ("traces", Value::Array(traces?)),
    ];
    Ok(Outcome { figures, spent })
}

/// One worker with one task a batch, in virtual time.
struct Trial<'a> {
    params: &'a SchedulingParams,
    epoch: Duration,
    now: Duration,
    leader: GroupScheduler,
    worker: LocalScheduler,
    to_leader: VecDeque<SchedulerEvent>,
    to_worker: VecDeque<LocalEvent>,
    groups: u32,
    /// The first epoch of the group that is planned during the stall, and the size of groups
    /// before it.
    stall: Option<(u64, u32)>,
}

fn trace(params: &SchedulingParams, epoch: Duration) -> Result<Value> {
    let config = GroupSchedulerConfig {
        sizing: GroupSizing::Tuned(TunerConfig::default()),
        ..GroupSchedulerConfig::default()
    };
    let graph = StageGraph::new(vec![BatchStage::source(1)])?;
    let begun = SchedulerEvent::Begun {
        generation: Generation(1),
        after: Epoch(0),
        workers: vec![WORKER],
    };
    let mut trial = Trial {
        params,
        epoch,
        now: Duration::ZERO,
        leader: GroupScheduler::new(MasterEpoch(1), graph, config)?,
        worker: LocalScheduler::new(WORKER, Duration::from_secs(1)),
        to_leader: VecDeque::from([begun]),
        to_worker: VecDeque::new(),
        groups: 0,
        stall: None,
    };
    while trial.groups < params.groups {
        trial.step();
    }
    let steps: Vec<Value> = trial
        .leader
        .trace()
        .map(|step| {
            json!({
                "size": step.size,
                "share": rounded(step.share, 1e4),
                "averaged_share": rounded(step.averaged_share, 1e4),
                "next_size": step.next_size,
            })
        })
        .collect();
    let last = trial.leader.trace().last().map(|step| step.next_size);
    Ok(json!({
        "epoch": format_duration(epoch),
        "stalled_at_epoch": trial.stall.map(|(epoch, _)| epoch),
        "settled": trial.stall.map(|(_, size)| size),
        "settled_after_stall": last,
        "steps": steps,
    }))
}

impl Trial<'_> {
    fn step(&mut self) {
        if let Some(event) = self.to_leader.pop_front() {
            self.lead(event);
        } else if let Some(event) = self.to_worker.pop_front() {
            // A task takes as long as its batch.
            if matches!(event, LocalEvent::Ended(_)) {
                self.now += self.epoch;
                self.to_leader.push_back(SchedulerEvent::Tick);
            }
            self.work(event);
        } else {
            self.now += Duration::from_millis(1);
            self.to_leader.push_back(SchedulerEvent::Tick);
        }
    }

    fn lead(&mut self, event: SchedulerEvent) {
        for action in self.leader.on(self.now, event) {
            match action {
                SchedulerAction::ToAll(message) => {
                    for group in &message.groups {
                        self.spend(group);
                    }
                    self.send(&message);
                }
                SchedulerAction::To(_, message) => self.send(&message),
                SchedulerAction::Ended(_) => self.groups += 1,
                _ => {}
            }
        }
    }

    /// Adds the cost of planning a group to the group that runs meanwhile.
    fn spend(&mut self, group: &PlannedGroup) {
        let mut cost = self.params.group_cost + self.params.batch_cost * group.epochs;
        if group.id.0 == u64::from(self.params.groups / 2) {
            cost += STALL;
            self.stall = Some((group.first.0, group.epochs));
        }
        self.to_leader.push_back(SchedulerEvent::Spent(cost));
    }

    fn send(&mut self, message: &ToGroupWorker) {
        self.to_worker
            .push_back(LocalEvent::FromLeader(message.clone()));
    }

    fn work(&mut self, event: LocalEvent) {
        let mut actions = Vec::new();
        self.worker.on(self.now, event, &mut actions);
        for action in actions {
            match action {
                LocalAction::Run(task) => self.to_worker.push_back(LocalEvent::Ended(task)),
                LocalAction::ToLeader(report) => {
                    self.to_leader.push_back(SchedulerEvent::From(report));
                }
                _ => {}
            }
        }
    }
}
