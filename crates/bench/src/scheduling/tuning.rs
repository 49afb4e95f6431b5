//! Traces of `checkpoints.every=auto`: the coordinator in virtual time, with a modelled duration of
//! checkpoints. The group is the interval, in micro-batches.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_coordination::control::{CoordinatorConfig, CoordinatorEvent};
use ardea_core::{Error, ErrorCode, Result};
use serde_json::json;

use super::params::SchedulingParams;
use super::simulated::{Sent, VirtualLeader, VirtualWorkers};
use crate::report::{Report, fields, rounded};

const STALL: Duration = Duration::from_secs(1);

/// The interval between two ticks of a leader.
const TICK: Duration = Duration::from_millis(10);

/// The most ticks until the next checkpoint: an hour.
const MOST_TICKS: u32 = 360_000;

/// The sizes of tuned groups for micro-batches of one length.
pub(super) struct Trace {
    pub(super) micro_batch: Duration,
    /// The groups, in their order.
    pub(super) steps: Vec<TraceStep>,
    /// The step whose checkpoint took a second longer.
    pub(super) stalled: Option<usize>,
}

/// A group.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct TraceStep {
    /// The number of micro-batches until the next checkpoint was due.
    pub(super) size: u32,
    /// The duration of the checkpoint, as a share of the interval.
    pub(super) share: f64,
    pub(super) next_size: u32,
}

impl Trace {
    /// Returns a report for each step.
    pub(super) fn reports(&self, params: &SchedulingParams) -> Vec<Report> {
        let of_step = |(number, step): (usize, &TraceStep)| Report {
            bench: "scheduling",
            parameters: fields!(params; micro_batch = self.micro_batch, group_cost, batch_cost),
            figures: vec![
                ("group", json!(number + 1)),
                ("size", json!(step.size)),
                ("share", json!(rounded(step.share, 1e4))),
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

/// Runs a trial with micro-batches of this length.
pub(super) fn trace(params: &SchedulingParams, micro_batch: Duration) -> Result<Trace> {
    let config = CoordinatorConfig {
        tunes_interval: true,
        pause: Duration::ZERO,
        ..CoordinatorConfig::default()
    };
    let mut leader = VirtualLeader::start(1, config)?;
    let mut workers = VirtualWorkers::new(1);
    let batches = |interval: Duration| interval.as_secs_f64() / micro_batch.as_secs_f64();
    let stalled = params.trace_groups as usize / 2;
    let mut steps = Vec::new();
    while steps.len() < params.trace_groups as usize {
        let sent = next_epoch(&mut leader)?;
        let interval = leader.coordinator.interval();
        let each = params.batch_cost.mul_f64(batches(interval));
        let stall = match steps.len() == stalled {
            true => STALL,
            false => Duration::ZERO,
        };
        let took = params.group_cost + each + stall;
        leader.now += took;
        // The snapshot is acknowledged, and then the commit.
        let saved = workers.deliver(sent)?;
        leader.receive(&saved)?;
        let confirmed = workers.deliver(leader.take_sent()?)?;
        leader.receive(&confirmed)?;
        steps.push(TraceStep {
            size: batches(interval).round() as u32,
            share: took.as_secs_f64() / interval.as_secs_f64(),
            next_size: batches(leader.coordinator.interval()).round() as u32,
        });
    }
    Ok(Trace {
        micro_batch,
        steps,
        stalled: Some(stalled),
    })
}

/// Lets time pass until the next epoch ends. Returns the messages of its end.
fn next_epoch(leader: &mut VirtualLeader) -> Result<Sent> {
    for _ in 0..MOST_TICKS {
        leader.on(CoordinatorEvent::Tick)?;
        let sent = leader.take_sent()?;
        if !sent.is_empty() {
            return Ok(sent);
        }
        leader.now += TICK;
    }
    Err(Error::new(
        ErrorCode::Internal,
        "no simulated checkpoint begins",
    ))
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
        let lengths = params.traced_lengths();
        lengths
            .iter()
            .map(|length| trace(&params, *length).unwrap())
            .collect()
    }

    #[test]
    fn micro_batches_of_different_lengths_settle_at_different_sizes_within_the_bounds() {
        let traces = traces();
        let settled: Vec<u32> = traces
            .iter()
            .map(|trace| {
                let before = &trace.steps[trace.stalled.unwrap() - 1];
                assert!((0.05..=0.10).contains(&before.share), "{before:?}");
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
        for trace in traces() {
            let stalled = trace.stalled.unwrap();
            let settled = trace.steps[stalled].size;
            let after = trace.steps[stalled..].iter();
            let (least, most) = after.fold((settled, settled), |(least, most), step| {
                (least.min(step.next_size), most.max(step.next_size))
            });
            assert!(most <= settled * 2, "{settled} became {most}");
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
        assert_eq!(reports[0].figure("size"), &json!(10));
    }
}
