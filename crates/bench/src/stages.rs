//! A long pipeline at a modest rate: what each of many stages adds to the latency from end to end.
//!
//! Payments pass one stage after the other, as at a payment processor: most stages look at a payment by itself, and every
//! thirtieth keeps what each account has spent, so that there the payments of an account have to meet.

mod params;
mod payments;

pub use params::StagesParams;

use std::thread;
use std::time::Duration;

use ardea_connectors::generate;
use ardea_core::{Parallelism, Result, Sink, supplier};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};
use ardea_pipeline::Pipeline;
use serde_json::json;

use crate::PATIENCE;
use crate::meter::{Meter, MeterP, Timing};
use crate::noise;
use crate::report::{Report, Unit, latency, machine, throughput};
use crate::usage::{Meanwhile, forget_peak};

use payments::{Payment, pass_stages};

/// The name of the source's vertex.
const SOURCE: &str = "payments";

/// Runs the benchmark; `progress` is told what is going on.
///
/// Latency is from the moment at which a payment was due until it has passed all stages and is at the sink. Payments that have not
/// been sent ten seconds after the measured time, since the job can't keep up with the rate, are given up, and have none.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters make no sense; the job's own failure.
pub fn run(params: &StagesParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    run_with(params, PATIENCE, progress)
}

fn run_with(
    params: &StagesParams,
    patience: Duration,
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    params.check()?;
    forget_peak();
    progress("listening to the machine's own noise");
    let noise = noise::listen(params.threads, params.duration)?;
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
    let (meanwhile, before) = (Meanwhile::begin(), emitted(&job));
    thread::sleep(params.duration);
    let (spent, after) = (meanwhile.spent(), emitted(&job));
    if !job.wait(patience).is_over() {
        progress("giving up the payments that are late");
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

/// How many payments have left the source.
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
