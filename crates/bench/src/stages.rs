//! A long pipeline at a modest rate: what each of many stages adds to the latency from end to end.
//!
//! Payments pass one stage after the other, as at a payment processor: most stages look at a payment by itself, and every
//! thirtieth keeps what each account has spent, so that there the payments of an account have to meet.

use std::thread;
use std::time::Duration;

use ardea_connect::generate;
use ardea_core::settings::duration::format_duration;
use ardea_core::{Boundedness, Error, ErrorCode, Parallelism, Result, Sink, supplier};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};
use ardea_pipeline::{Pipeline, Stream, Timed};
use serde_json::json;

use crate::meter::{Meter, MeterP, Timing};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine, throughput};
use crate::usage::{Meanwhile, forget_peak};

/// Every so many stages one is keyed by the account.
const KEYED_EVERY: u32 = 30;
/// How many accounts pay.
const ACCOUNTS: u64 = 1_000;
/// What an account may spend in all, in cents, before a keyed stage refuses.
const LIMIT: u64 = 100_000;
/// The most stages that one pipeline may have.
const MOST_STAGES: u32 = 10_000;
/// The name of the source's vertex.
const SOURCE: &str = "payments";
/// For how long payments follow the measured ones, so that those end as they began: in a running job.
const TAIL: Duration = Duration::from_millis(100);

/// What `ardea bench stages` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct StagesParams {
    /// How many stages a payment passes.
    pub stages: u32,
    /// Payments a second.
    pub rate: u64,
    /// How long is measured.
    pub duration: Duration,
    /// How long runs before that.
    pub warmup: Duration,
    /// Cooperative threads.
    pub threads: u32,
    /// How long a thread with nothing to do looks for work before it sleeps.
    pub spin: Duration,
    /// Whether stages share tasklets; off to measure what that gains.
    pub fuse: bool,
}

impl Default for StagesParams {
    fn default() -> Self {
        StagesParams {
            stages: 150,
            rate: 1_000,
            duration: Duration::from_secs(20),
            warmup: Duration::from_secs(5),
            threads: 1,
            spin: NodeConfig::default().spin,
            fuse: true,
        }
    }
}

impl StagesParams {
    fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorCode::InvalidConfig, what));
        if self.stages == 0 || self.stages > MOST_STAGES {
            return wrong(format!(
                "{} stages are not between 1 and {MOST_STAGES}",
                self.stages
            ));
        }
        if self.rate == 0 {
            return wrong("a rate of zero measures nothing; give at least 1 a second".into());
        }
        if self.threads == 0 {
            return wrong("zero threads run nothing; give at least 1".into());
        }
        if self.duration.is_zero() {
            return wrong("a duration of zero measures nothing".into());
        }
        Ok(())
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            ("stages", json!(self.stages)),
            ("rate", json!(self.rate)),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            ("threads", json!(self.threads)),
            ("spin", json!(format_duration(self.spin))),
            ("fuse", json!(self.fuse)),
        ]
    }

    /// Payments from the first one on until some time after the last measured one.
    fn count(&self) -> u64 {
        let span = self.warmup + self.duration + TAIL;
        let count = u128::from(self.rate) * span.as_micros() / 1_000_000;
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// Runs the benchmark; `progress` is told what is going on.
///
/// Latency is from the moment at which a payment was due until it has passed all stages and is at the sink.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; the job's own failure.
pub fn run(params: &StagesParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    forget_peak();
    progress("listening to the machine's own noise");
    let noise = noise::listen(params.threads);
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
    stages(p.read_from(source).with_source_time(), params.stages)
        .write_to(Sink::new("meter", measure).parallelism(Parallelism::ONE));
    p
}

/// A payment on its way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Payment {
    id: u64,
    account: u64,
    cents: u64,
    passed: u32,
    /// How many stages have refused it.
    refused: u32,
}

impl Payment {
    fn new(id: u64) -> Self {
        Payment {
            id,
            account: id * 7 % ACCOUNTS,
            cents: id * 31 % 50_000,
            passed: 0,
            refused: 0,
        }
    }

    fn pass(mut self, is_refused: bool) -> Self {
        self.passed += 1;
        self.refused += u32::from(is_refused);
        self
    }

    fn digest(&self) -> u64 {
        self.id ^ u64::from(self.passed) << 32 ^ u64::from(self.refused) << 48
    }
}

fn stages<B: Boundedness>(
    from: Stream<Payment, B, Timed>,
    stages: u32,
) -> Stream<Payment, B, Timed> {
    (1..=stages).fold(from, |payments, stage| {
        if stage % KEYED_EVERY == 0 {
            payments.key_by(|payment| payment.account).map_stateful(
                format!("limit {stage}"),
                || 0,
                |spent, _, payment: Payment| {
                    *spent += payment.cents;
                    payment.pass(*spent > LIMIT)
                },
            )
        } else {
            payments.map(move |payment| {
                let is_refused = payment.id % ACCOUNTS == u64::from(stage);
                payment.pass(is_refused)
            })
        }
    })
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
    fn a_payment_passes_every_stage_and_is_refused_by_some() {
        let p = Pipeline::new("stages");
        let payments =
            ardea_connect::collections::items((0..20_000).map(Payment::new).collect::<Vec<_>>());
        let source = p.read_from(payments).with_source_time();
        let passed = stages(source, 65).collect();
        p.run().unwrap();
        let passed = passed.take_sorted();
        assert_eq!(passed.len(), 20_000);
        assert!(passed.iter().all(|payment| payment.passed == 65));
        // By a stage of its own, or by the two that keep what the account has spent, or by all three.
        let most = passed.iter().map(|payment| payment.refused).max();
        assert_eq!(most, Some(3));
    }

    #[test]
    fn parameters_that_measure_nothing_are_refused() {
        let wrong = [
            StagesParams {
                stages: 0,
                ..short()
            },
            StagesParams { rate: 0, ..short() },
            StagesParams {
                threads: 0,
                ..short()
            },
            StagesParams {
                duration: Duration::ZERO,
                ..short()
            },
        ];
        for params in wrong {
            let error = run(&params, &mut |_| {}).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
        }
    }
}
