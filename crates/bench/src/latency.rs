//! Latency of a record, split into time at the source, in queues, between containers, and in the
//! steps.
//!
//! A spout emits tuples at a modest rate into a chain of steps. If there are several containers,
//! consecutive steps run in different ones. Each tuple carries the time it was due and the time it
//! left the step before. So the times between steps and within steps add up to the end-to-end
//! latency. The network's part of the time between two steps is measured by a transport that notes
//! when frames enter and leave it. "TurboStream", section II-B, has such a split.

mod chain;
mod flows;
mod params;

pub(crate) use chain::{ChainLoad, topology};
pub use params::LatencyParams;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use serde_json::json;

use crate::cluster::{DistributedRun, Load, Sample, merged};
use crate::noise::{self, Noise};
use crate::report::{Field, Report, Unit, latency, machine_of, rounded, seconds};
use crate::usage::Spent;

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are
/// invalid; errors of the cluster.
pub fn run(params: &LatencyParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.containers * params.threads, params.duration)?;
    progress("starting a cluster");
    let settings = [
        format!("job.containers={}", params.containers),
        format!("threads={}", params.threads),
        format!("spin={}", format_duration(params.spin)),
    ];
    let load = ChainLoad::of(params);
    let spread = DistributedRun::start("latency", (1, params.containers), &settings, |socket| {
        Load::chain(socket, load)
    })?;
    spread.warm_up(params.warmup, params.duration, progress);
    let measured = spread.measure(params.duration)?;
    let last = spread.end()?;
    report(params, &last, measured.spent(), noise)
}

fn report(params: &LatencyParams, last: &[Sample], spent: Spent, noise: Noise) -> Result<Report> {
    let split = Split::of(params, last);
    let mut figures = vec![("duration_s", json!(seconds(spent.wall)))];
    figures.extend(split.figures());
    figures.extend(latency(&merged(last)?, Unit::Micros));
    let count = |name| last.iter().map(|it| it.count(name)).sum::<u64>();
    figures.push(("lost", json!(count("emitted").abs_diff(count("counted")))));
    let peaks: Option<Vec<f64>> = last.iter().map(|sample| sample.rss_mb).collect();
    let rss_mb = peaks.map(|peaks| rounded(peaks.iter().sum(), 10.0));
    figures.extend(machine_of(spent, rss_mb, noise));
    Ok(Report {
        bench: "latency",
        parameters: params.fields(),
        figures,
    })
}

/// The mean latency of each part, in nanoseconds a tuple.
#[derive(Clone, PartialEq, Debug, Default)]
struct Split {
    tuples: u64,
    /// From end to end.
    mean: f64,
    source: f64,
    /// The time in queues before each step.
    queue: Vec<f64>,
    transport: Vec<f64>,
    /// The time within each step.
    service: Vec<f64>,
}

impl Split {
    fn of(params: &LatencyParams, samples: &[Sample]) -> Self {
        let sum = |name: &str| samples.iter().map(|it| it.count(name)).sum::<u64>();
        let tuples = sum("tuples");
        let mean = |name: &str| sum(name) as f64 / tuples.max(1) as f64;
        let mut split = Split {
            tuples,
            mean: mean("whole_ns"),
            source: mean("source_ns"),
            ..Split::default()
        };
        for step in 0..params.steps {
            let between = mean(&format!("between_{step}_ns"));
            // The clocks of two threads are read one after the other, so a part is limited to the
            // whole.
            let transport = flows::transit(samples, step, params.duration).min(between);
            split.transport.push(transport);
            split.queue.push(between - transport);
            split.service.push(mean(&format!("service_{step}_ns")));
        }
        split
    }

    fn figures(&self) -> Vec<Field> {
        let micros = |nanos: f64| rounded(nanos / 1e3, 10.0);
        let each = |parts: &[f64]| json!(parts.iter().copied().map(micros).collect::<Vec<f64>>());
        let sum = |parts: &[f64]| parts.iter().sum::<f64>();
        let share = |part: f64| (self.mean > 0.0).then(|| rounded(part / self.mean, 1e4));
        let (queue, transport) = (sum(&self.queue), sum(&self.transport));
        let service = sum(&self.service);
        vec![
            ("tuples", json!(self.tuples)),
            ("mean_us", json!(micros(self.mean))),
            ("source_us", json!(micros(self.source))),
            ("queue_us", json!(micros(queue))),
            ("transport_us", json!(micros(transport))),
            ("service_us", json!(micros(service))),
            ("source_share", json!(share(self.source))),
            ("queue_share", json!(share(queue))),
            ("transport_share", json!(share(transport))),
            ("service_share", json!(share(service))),
            ("edge_queue_us", each(&self.queue)),
            ("edge_transport_us", each(&self.transport)),
            ("step_service_us", each(&self.service)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_parts_of_a_tuples_way_add_up_to_all_of_it() {
        let params = LatencyParams {
            steps: 2,
            duration: Duration::from_nanos(1_000),
            ..LatencyParams::default()
        };
        let told = |numbers: &[(&str, u64)]| Sample {
            numbers: numbers
                .iter()
                .map(|(name, it)| (name.to_string(), *it))
                .collect::<BTreeMap<_, _>>(),
            ..Sample::default()
        };
        // Ten tuples of ten bytes: 50 bytes are in flight for 1,000 ns, so that each of 100 bytes
        // was in flight for 500 ns.
        let one = told(&[
            ("source_ns", 1_000),
            ("between_1_ns", 6_000),
            ("service_1_ns", 200),
            ("whole_ns", 17_300),
            ("tuples", 10),
            ("sent_0_within", 100),
            ("sent_0_left_ns", 600),
            ("received_1_within", 90),
            ("received_1_left_ns", 500),
        ]);
        let other = told(&[
            ("between_0_ns", 10_000),
            ("service_0_ns", 100),
            ("received_0_within", 100),
            ("received_0_left_ns", 100),
        ]);
        let split = Split::of(&params, &[one, other]);
        assert_eq!(split.transport, [500.0, 0.0]);
        assert_eq!(split.queue, [500.0, 600.0]);
        let parts = split.source
            + split.queue.iter().sum::<f64>()
            + split.transport.iter().sum::<f64>()
            + split.service.iter().sum::<f64>();
        assert!((parts - split.mean).abs() < 1e-6, "{split:?}");
        let told = split.figures();
        let figure = |name| &told.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(figure("edge_transport_us"), &json!([0.5, 0.0]));
        assert_eq!(figure("transport_share"), &json!(0.289));
    }
}
