//! The effects of the group size: latency, recovery from a lost worker, and reaction to a new one.

use std::time::Duration;

use ardea_core::Result;
use serde_json::{Value, json};

use super::params::SchedulingParams;
use super::virtual_cluster::{VirtualCluster, VirtualSettings};
use super::{processes, quantile_ms};
use crate::report::{Report, fields, rounded};

/// The number of workers in virtual time by default.
const WORKERS: u32 = 4;
/// The number of groups before a worker is lost or joins.
const GROUPS_BEFORE: u32 = 4;
/// The least number of micro-batches before that.
const LEAST_BATCHES: u32 = 50;

/// The figures of a group size in virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SizeFigures {
    /// The median time from the end of a micro-batch at the sources to its results.
    latency: Duration,
    /// The time from the loss of a worker until the last micro-batch with more than three times
    /// that latency.
    recovery: Duration,
    /// The time from the arrival of a worker until the end of its first task.
    reaction: Duration,
}

/// Measures one group size.
pub(super) fn report(params: &SchedulingParams, size: u32) -> Result<Report> {
    let batch_ms = match params.simulated {
        true => None,
        false => {
            let params = SchedulingParams {
                group: size,
                ..params.clone()
            };
            let led = processes::lead_processes(&params)?.0;
            Some((quantile_ms(&led, 0.5), quantile_ms(&led, 0.95)))
        }
    };
    let settings = settings(params, size);
    let simulated = simulate(&settings)?;
    let millis = |time: Duration| json!(rounded(time.as_secs_f64() * 1e3, 10.0));
    let (p50, p95) = batch_ms.unzip();
    Ok(Report {
        bench: "scheduling",
        parameters: fields!(settings; group = size, micro_batch, virtual_workers = settings.workers,
            slots = settings.slots, checkpoint_batches = size, batches = params.batches),
        figures: vec![
            ("batch_ms_p50", p50.unwrap_or(Value::Null)),
            ("batch_ms_p95", p95.unwrap_or(Value::Null)),
            ("latency_ms_p50", millis(simulated.latency)),
            ("recovery_ms", millis(simulated.recovery)),
            ("reaction_ms", millis(simulated.reaction)),
        ],
    })
}

fn settings(params: &SchedulingParams, size: u32) -> VirtualSettings {
    let lengths = params.micro_batch.first().copied();
    VirtualSettings {
        workers: params.workers.unwrap_or(WORKERS).max(2),
        slots: params.slots,
        group: size,
        micro_batch: lengths.unwrap_or(Duration::from_millis(100)),
    }
}

/// Runs a cluster that loses a worker, and one that gets another, each in the middle of a group.
fn simulate(settings: &VirtualSettings) -> Result<SizeFigures> {
    let batches =
        (settings.group * GROUPS_BEFORE).max(LEAST_BATCHES.next_multiple_of(settings.group));
    let moment = settings.micro_batch * batches + settings.micro_batch * settings.group / 2;
    let mut cluster = VirtualCluster::new(settings)?;
    cluster.run_until_time(moment)?;
    let latency = cluster.median_latency();
    cluster.kill_one();
    let recovered = cluster.run_until_calm(moment, latency * 3)?;
    let mut cluster = VirtualCluster::new(settings)?;
    cluster.run_until_time(moment)?;
    let joined = cluster.join_one();
    let used = cluster.run_until_used(joined)?;
    Ok(SizeFigures {
        latency,
        recovery: recovered.saturating_sub(moment),
        reaction: used - moment,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated(size: u32) -> SizeFigures {
        let params = SchedulingParams::default();
        simulate(&settings(&params, size)).unwrap()
    }

    #[test]
    fn recovery_and_reaction_take_longer_in_large_groups_and_latency_does_not() {
        let (small, large) = (simulated(2), simulated(40));
        assert_eq!(small.latency, large.latency);
        assert!(small.recovery < large.recovery, "{small:?} {large:?}");
        assert!(small.reaction < large.reaction, "{small:?} {large:?}");
        let two_groups = Duration::from_millis(100) * 80;
        assert!(large.reaction < two_groups, "{large:?}");
    }

    #[test]
    fn a_size_is_a_report_with_fixed_names() {
        let params = SchedulingParams {
            simulated: true,
            ..SchedulingParams::default()
        };
        let report = report(&params, 5).unwrap();
        assert_eq!(report.to_json()["group"], 5);
        assert_eq!(report.figure("batch_ms_p50"), &Value::Null);
        assert!(report.figure("recovery_ms").as_f64().unwrap() > 0.0);
    }
}
