//! Logistic regression by mini-batch gradient descent: time and bytes of an iteration.
//!
//! The data has the shape of RCV1, a collection of texts: 677 thousand rows, 47 thousand features,
//! 0.16 % of them not zero ("Drizzle", SOSP 2017, section 6.5).

mod params;
mod rows;
mod scikit_learn;

pub use params::SgdParams;

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_iteration::{Dataset, MemoryExchange};
use ardea_ml::{Examples, LinearClassifier, StepSize};
use serde_json::json;

use crate::noise;
use crate::report::{Report, machine, rounded, seconds};
use crate::usage::{Stopwatch, reset_peak};

/// Iterations of the runs that measure bytes and arithmetic.
const SHORT_ITERATIONS: u64 = 50;

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; the failure of the training.
pub fn run(params: &SgdParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.workers, noise::LONG_ENOUGH)?;
    progress("generating rows");
    let examples = rows::generate(params)?;
    let scikit_learn = match params.scikit_learn {
        true => {
            progress("training with scikit-learn");
            scikit_learn::run(Some(&examples), params.l2)
        }
        false => scikit_learn::run(None, params.l2),
    };
    let dataset = Arc::new(examples.split(params.partitions, params.seed)?);
    let classifier = classifier(params);
    progress("training");
    let stopwatch = Stopwatch::begin();
    let training = classifier.train_partitions(&dataset)?;
    let spent = stopwatch.spent();
    progress("measuring the arithmetic alone");
    let short = params.iterations.min(SHORT_ITERATIONS);
    let begin = Instant::now();
    black_box(classifier.arithmetic_only(&dataset, short)?);
    let arithmetic_ms = millis(begin.elapsed()) / short as f64;
    progress("measuring bytes between workers");
    let bytes = measure_bytes(params, &dataset, short)?;
    let evaluation = training.model.evaluate(&examples)?;
    let (report, counters) = (&training.report, training.report.counters());
    let median_ms = median(report.iteration_times()).map(millis);
    let overhead_ms = median_ms.map(|ms| rounded(ms - arithmetic_ms, 1e4));
    let per_group = counters.coordination_time.as_secs_f64() * 1e6 / counters.groups.max(1) as f64;
    let mut figures = vec![
        ("duration_s", json!(seconds(spent.wall))),
        (
            "ms_per_iteration_p50",
            json!(median_ms.map(|ms| rounded(ms, 1e4))),
        ),
        (
            "arithmetic_ms_per_iteration",
            json!(rounded(arithmetic_ms, 1e4)),
        ),
        ("overhead_ms", json!(overhead_ms)),
        ("bytes_per_iteration", json!(bytes)),
        ("loss", json!(evaluation.loss)),
        ("accuracy", json!(rounded(evaluation.accuracy, 1e5))),
        ("objective", json!(training.objective)),
        ("non_zero", json!(training.model.non_zero())),
        (
            "coordination_messages",
            json!(counters.coordination_messages),
        ),
        ("coordination_us_per_group", json!(rounded(per_group, 1e1))),
    ];
    figures.extend(scikit_learn);
    figures.extend(machine(spent, noise));
    Ok(Report {
        bench: "sgd",
        parameters: params.fields(),
        figures,
    })
}

fn classifier(params: &SgdParams) -> LinearClassifier {
    let classifier = LinearClassifier::logistic_regression()
        .step(StepSize::Adaptive(0.5))
        .l2(params.l2)
        .batch(params.batch)
        .iterations(params.iterations)
        .threads(params.workers)
        .group(params.group);
    match params.sparse {
        true => classifier.l1(params.l1).filtered_updates(),
        false => classifier.dense_updates(),
    }
}

/// Trains in parties that exchange encoded updates, one per worker; returns the bytes that all send
/// per iteration.
fn measure_bytes(
    params: &SgdParams,
    dataset: &Arc<Dataset<Examples>>,
    iterations: u64,
) -> Result<u64> {
    let parties: Vec<_> = MemoryExchange::mesh(params.workers)
        .into_iter()
        .map(|exchange| {
            let classifier = classifier(params).threads(1).iterations(iterations);
            let dataset = Arc::clone(dataset);
            thread::spawn(move || {
                let training = classifier.exchange(Arc::new(exchange));
                let training = training.train_partitions(&dataset)?;
                Ok(training.report.counters().exchanged_bytes)
            })
        })
        .collect();
    let mut bytes = 0;
    for party in parties {
        let outcome: Result<u64> = party.join().unwrap_or_else(|_| {
            Err(Error::new(
                ErrorCode::Internal,
                "a party of the training has panicked",
            ))
        });
        bytes += outcome?;
    }
    Ok(bytes / iterations)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn median(times: &[Duration]) -> Option<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(sparse: bool) -> SgdParams {
        SgdParams {
            rows: 4_000,
            features: 2_000,
            density: 0.01,
            batch: 500,
            iterations: 60,
            sparse,
            ..SgdParams::default()
        }
    }

    #[test]
    fn a_model_is_trained_and_measured() {
        let report = run(&small(false), &mut |_| {}).unwrap();
        let figure = |name| report.figure(name).as_f64().unwrap();
        assert!(figure("accuracy") > 0.7, "{report:?}");
        assert!(figure("ms_per_iteration_p50") > 0.0);
        assert_eq!(figure("coordination_messages"), 48.0);
        assert!(report.figure("scikit_learn_loss").is_null());
    }

    #[test]
    fn sparse_updates_take_fewer_bytes() {
        let bytes = |sparse| {
            let report = run(&small(sparse), &mut |_| {}).unwrap();
            report.figure("bytes_per_iteration").as_u64().unwrap()
        };
        let (sparse, dense) = (bytes(true), bytes(false));
        assert!(sparse < dense, "{sparse} bytes against {dense}");
    }
}
