//! A long pipeline at a modest rate: the latency that each of many stages adds.
//!
//! Payments pass one stage after the other, as at a payment processor. Most stages are stateless.
//! Every thirtieth is keyed by account and sums the spending of each.

mod params;
mod workload;

pub use params::StagesParams;

use std::thread;
use std::time::Duration;

use ardea_connectors::generate;
use ardea_core::{Parallelism, Result, Sink, supplier};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};
use ardea_pipeline::Pipeline;
use serde_json::json;

use crate::LATE_RESULTS_TIMEOUT;
use crate::meter::{Meter, MeterP, Timing};
use crate::noise;
use crate::report::{Report, Unit, latency, machine, throughput};
use crate::usage::{Stopwatch, reset_peak};

use workload::{Payment, pass_stages};

/// The name of the source's vertex.
const SOURCE: &str = "payments";

/// Runs the benchmark; `progress` receives status texts.
///
/// Latency counts from the time a payment was due until it has passed all stages and reached the
/// sink. Payments not sent within ten seconds after the measured time are abandoned, and have no
/// latency.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are
/// invalid; the job's own failure.
pub fn run(params: &StagesParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    run_with(params, LATE_RESULTS_TIMEOUT, progress)
}

fn run_with(
    params: &StagesParams,
    patience: Duration,
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    params.check()?;
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.threads, params.duration)?;
    let node = Node::start(NodeConfig {
        fuse: params.fuse,
        spin: params.spin,
        ..NodeConfig::with_threads(params.threads)
    })?;
    let meter = Meter::new()?;
    progress("warming up");
    let from = node.clock().wall() + params.warmup;
    let timing = Timing::Records {
        from,
        until: from + params.duration,
    };
    let job = pipeline(params, timing, &meter).submit(&node, JobConfig::default())?;
    let tasklets = node.tasklets();
    thread::sleep(params.warmup);
    progress("measuring");
    let (meanwhile, before) = (Stopwatch::begin(), emitted(&job));
    thread::sleep(params.duration);
    let (spent, after) = (meanwhile.spent(), emitted(&job));
    if !job.wait(patience).is_over() {
        progress("dropping the payments that are late");
        job.drain();
    }
    job.join()?;
    let mut figures = throughput(after.saturating_sub(before), spent);
    let totals = meter.totals();
    figures.push(("results", json!(totals.results)));
    figures.push(("tasklets", json!(tasklets)));
    figures.extend(latency(&totals.latency, Unit::Millis));
    figures.extend(machine(spent, noise));
    Ok(Report {
        bench: "stages",
        parameters: params.fields(),
        figures,
    })
}

/// Returns the number of payments emitted by the source.
fn emitted(job: &JobHandle) -> u64 {
    job.sum(SOURCE, |counters| counters.records_out)
}

fn pipeline(params: &StagesParams, timing: Timing, meter: &Meter) -> Pipeline {
    let p = Pipeline::new("stages");
    let source = generate::at_rate(params.rate, Payment::new)
        .limit(params.count())
        .build()
        .named(SOURCE);
    let meter = meter.clone();
    let measure = supplier(move || {
        MeterP::<Payment, _>::new(|payment| (1, payment.digest()), timing, meter.clone())
    });
    pass_stages(p.read_from(source).with_source_time(), params.stages)
        .write_to(Sink::new("meter", measure).parallelism(Parallelism::ONE));
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short() -> StagesParams {
        StagesParams {
            stages: 65,
            duration: Duration::from_millis(200),
            warmup: Duration::from_millis(500),
            threads: 2,
            ..StagesParams::default()
        }
    }

    #[test]
    fn every_payment_arrives_and_the_measured_ones_have_latencies() {
        let report = run(&short(), &mut |_| {}).unwrap();
        assert_eq!(report.figure("results"), &json!(800));
        assert!(report.figure("p9999_ms").is_number(), "{report:?}");
    }

    #[test]
    fn a_job_that_cannot_keep_up_ends_all_the_same() {
        let params = StagesParams {
            rate: 1_000_000_000,
            ..short()
        };
        let report = run_with(&params, Duration::from_millis(10), &mut |_| {}).unwrap();
        let results = report.figure("results").as_u64().unwrap();
        assert!((1..params.count()).contains(&results), "{report:?}");
    }
}
