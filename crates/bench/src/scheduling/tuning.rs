//! Traces of the tuner: the real scheduler in virtual time, with a modelled cost of coordination.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_coordination::control::{Generation, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use ardea_core::{MicroBatch, Result};
use ardea_groups::{
    BatchStage, GroupScheduler, GroupSchedulerConfig, GroupSizing, LocalAction, LocalEvent,
    LocalScheduler, PlannedGroup, SchedulerAction, SchedulerEvent, StageGraph, TaskFigures,
    ToGroupWorker, TunerConfig, TunerStep,
};
use serde_json::json;

use super::params::SchedulingParams;
use crate::report::{Report, fields, rounded};

const STALL: Duration = Duration::from_secs(1);
const WORKER: ContainerId = ContainerId(1);

/// The sizes of tuned groups for micro-batches of one length.
pub(super) struct Trace {
    pub(super) micro_batch: Duration,
    /// The groups that counted, in their order.
    pub(super) steps: Vec<TunerStep>,
    /// The step whose coordination took a second longer.
    pub(super) stalled: Option<usize>,
}

impl Trace {
    /// Returns a report for each step.
    pub(super) fn reports(&self, params: &SchedulingParams) -> Vec<Report> {
        let of_step = |(number, step): (usize, &TunerStep)| Report {
            bench: "scheduling",
            parameters: fields!(params; micro_batch = self.micro_batch, group_cost, batch_cost),
            figures: vec![
                ("group", json!(number + 1)),
                ("size", json!(step.size)),
                ("share", json!(rounded(step.share, 1e4))),
                ("averaged_share", json!(rounded(step.averaged_share, 1e4))),
                ("next_size", json!(step.next_size)),
                ("is_stalled", json!(self.stalled == Some(number))),
            ],
        };
        self.steps.iter().enumerate().map(of_step).collect()
    }

    /// Returns the name of the micro-batches in a chart.
    pub(super) fn name(&self) -> String {
        format!("micro-batches of {}", format_duration(self.micro_batch))
    }
}

/// One worker with one task a micro-batch, in virtual time.
struct Trial<'a> {
    params: &'a SchedulingParams,
    micro_batch: Duration,
    now: Duration,
    leader: GroupScheduler,
    worker: LocalScheduler,
    to_leader: VecDeque<SchedulerEvent>,
    to_worker: VecDeque<LocalEvent>,
    /// The number of steps at the begin of the stall.
    stalled: Option<usize>,
}

/// Runs a trial with micro-batches of this length.
pub(super) fn trace(params: &SchedulingParams, micro_batch: Duration) -> Result<Trace> {
    let config = GroupSchedulerConfig {
        sizing: GroupSizing::Tuned(TunerConfig::default()),
        ..GroupSchedulerConfig::default()
    };
    let graph = StageGraph::new(vec![BatchStage::source(1)])?;
    let begun = SchedulerEvent::Begun {
        generation: Generation(1),
        after: MicroBatch(0),
        workers: vec![WORKER],
    };
    let mut trial = Trial {
        params,
        micro_batch,
        now: Duration::ZERO,
        leader: GroupScheduler::new(MasterEpoch(1), graph, config)?,
        worker: LocalScheduler::new(WORKER, Duration::from_secs(1)),
        to_leader: VecDeque::from([begun]),
        to_worker: VecDeque::new(),
        stalled: None,
    };
    let steps = params.trace_groups as usize;
    while trial.leader.trace().count() < steps {
        trial.step();
    }
    let steps: Vec<TunerStep> = trial.leader.trace().copied().collect();
    // The stall counts for the group that runs meanwhile, whose share stands out.
    let from = trial.stalled.unwrap_or(steps.len());
    let stalled = (from..steps.len()).max_by(|a, b| steps[*a].share.total_cmp(&steps[*b].share));
    Ok(Trace {
        micro_batch,
        steps,
        stalled,
    })
}

impl Trial<'_> {
    fn step(&mut self) {
        if let Some(event) = self.to_leader.pop_front() {
            self.lead(event);
        } else if let Some(event) = self.to_worker.pop_front() {
            // A task takes as long as its micro-batch.
            if matches!(event, LocalEvent::Ended(..)) {
                self.now += self.micro_batch;
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
                _ => {}
            }
        }
    }

    /// Adds the cost of planning a group to the group that runs meanwhile.
    fn spend(&mut self, group: &PlannedGroup) {
        let mut cost = self.params.group_cost + self.params.batch_cost * group.batches;
        let steps = self.leader.trace().count();
        if self.stalled.is_none() && steps >= self.params.trace_groups as usize / 2 {
            cost += STALL;
            self.stalled = Some(steps);
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
                LocalAction::Run(task) => {
                    let ended = LocalEvent::Ended(task, TaskFigures::default());
                    self.to_worker.push_back(ended);
                }
                LocalAction::ToLeader(report) => {
                    self.to_leader.push_back(SchedulerEvent::From(report));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn traces() -> Vec<Trace> {
        let params = SchedulingParams {
            tune: true,
            ..SchedulingParams::default()
        };
        let traces = params.micro_batch.iter();
        traces
            .map(|length| trace(&params, *length).unwrap())
            .collect()
    }

    #[test]
    fn micro_batches_of_different_lengths_settle_at_different_sizes_within_the_bounds() {
        let traces = traces();
        let settled: Vec<u32> = traces
            .iter()
            .map(|trace| {
                let stalled = trace.stalled.unwrap();
                let before = &trace.steps[stalled - 1];
                assert!((0.05..=0.10).contains(&before.averaged_share), "{before:?}");
                assert_eq!(before.size, before.next_size);
                before.size
            })
            .collect();
        let [short, long] = settled[..] else {
            panic!("two lengths by default");
        };
        assert!(short > long, "{short} {long}");
    }

    #[test]
    fn a_stall_of_a_second_moves_the_size_by_one_step_at_most() {
        let factor = TunerConfig::default().factor;
        for trace in traces() {
            let stalled = trace.stalled.unwrap();
            let settled = trace.steps[stalled].size;
            let after = trace.steps[stalled..].iter();
            let (least, most) = after.fold((settled, settled), |(least, most), step| {
                (least.min(step.next_size), most.max(step.next_size))
            });
            assert!(most <= settled * factor, "{settled} became {most}");
            assert!(least >= settled - 1, "{settled} became {least}");
        }
    }

    #[test]
    fn a_step_is_a_report_with_fixed_names() {
        let trace = traces().remove(0);
        let reports = trace.reports(&SchedulingParams::default());
        assert_eq!(reports.len(), 60);
        let stalled = reports
            .iter()
            .filter(|report| report.figure("is_stalled") == &Value::Bool(true));
        assert_eq!(stalled.count(), 1);
        assert_eq!(reports[0].to_json()["micro_batch"], "100ms");
        assert_eq!(reports[0].figure("size"), &json!(2));
    }
}
