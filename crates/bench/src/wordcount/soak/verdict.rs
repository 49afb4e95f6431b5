//! The samples of a long run, and the verdict on its trends.

use std::time::Duration;

use serde_json::json;

use crate::report::{Field, Report, rounded, seconds};
use crate::trend::Trend;
use crate::usage::{ResourceUsage, Spent};
use crate::wordcount::run::counted;

/// The limit of the drift of throughput, in percent.
const MOST_DRIFT_PERCENT: f64 = 3.0;

/// Relative growth of memory over the whole run below which it counts as constant.
const LEAST_GROWTH: f64 = 0.01;

/// The number of standard errors by which a slope may differ from zero; about 95 % of runs without
/// a trend are within it.
const ERRORS: f64 = 2.0;

/// The work between two moments, and the resources held at the second.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The time since the warm-up ended.
    pub(super) elapsed: Duration,
    pub(super) tuples: u64,
    pub(super) spent: Spent,
    pub(super) processes: usize,
    pub(super) held: ResourceUsage,
    pub(super) failed: u64,
}

impl Sample {
    /// Returns the report of this sample.
    pub(super) fn report(&self, number: usize) -> Report {
        let mut figures = vec![
            ("sample", json!(number)),
            ("elapsed_s", json!(seconds(self.elapsed))),
        ];
        figures.extend(counted(self.tuples, self.spent));
        figures.extend([
            ("cpu_seconds", json!(seconds(self.spent.cpu))),
            ("rss_mb", json!(rounded(self.held.rss_mb, 100.0))),
            ("processes", json!(self.processes)),
            ("open_files", json!(self.held.files)),
            ("os_threads", json!(self.held.threads)),
            ("failed", json!(self.failed)),
        ]);
        Report {
            bench: "soak",
            parameters: Vec::new(),
            figures,
        }
    }
}

/// The totals of a run.
pub(super) struct Whole {
    pub(super) tuples: u64,
    pub(super) spent: Spent,
}

/// Returns the totals of all samples.
pub(super) fn whole(samples: &[Sample]) -> Whole {
    Whole {
        tuples: samples.iter().map(|sample| sample.tuples).sum(),
        spent: Spent {
            wall: samples.iter().map(|sample| sample.spent.wall).sum(),
            cpu: samples.iter().map(|sample| sample.spent.cpu).sum(),
        },
    }
}

/// Returns the trends, their limits, and the verdicts; `null` if there are too few samples.
pub(super) fn verdict(samples: &[Sample]) -> Vec<Field> {
    let over_hours = |of: &dyn Fn(&Sample) -> Option<f64>| {
        let hours = |sample: &Sample| sample.elapsed.as_secs_f64() / 3600.0;
        let points = samples.iter().map(|it| of(it).map(|y| (hours(it), y)));
        Trend::of(&points.collect::<Option<Vec<_>>>()?)
    };
    let rss = over_hours(&|sample| Some(sample.held.rss_mb));
    let per_cpu = over_hours(&|sample| sample.spent.per_cpu_second(sample.tuples));
    let per_second = over_hours(&|sample| {
        let wall = sample.spent.wall.as_secs_f64();
        (wall > 0.0).then(|| sample.tuples as f64 / wall)
    });
    let limit = rss.map(|rss| (ERRORS * rss.error).max(LEAST_GROWTH * rss.mean / rss.span));
    let rss_held = rss.zip(limit).map(|(rss, limit)| rss.slope <= limit);
    let drift = |trend: Option<Trend>| {
        let percent = trend.map(|trend| 100.0 * trend.drift());
        percent.filter(|percent| percent.is_finite())
    };
    let per_cpu_held = drift(per_cpu).map(|drift| drift.abs() < MOST_DRIFT_PERCENT);
    let held = rss_held.zip(per_cpu_held).map(|(rss, drift)| rss && drift);
    let told = |value: Option<f64>| json!(value.map(|value| rounded(value, 1e3)));
    let ends = |of: fn(&ResourceUsage) -> u64| {
        let of = |sample: &Sample| of(&sample.held);
        (samples.first().map(of), samples.last().map(of))
    };
    let (files, threads) = (ends(|held| held.files), ends(|held| held.threads));
    vec![
        ("samples", json!(samples.len())),
        ("rss_slope_mb_per_h", told(rss.map(|rss| rss.slope))),
        ("rss_slope_limit_mb_per_h", told(limit)),
        ("rss_held", json!(rss_held)),
        ("drift_percent", told(drift(per_cpu))),
        ("drift_limit_percent", json!(MOST_DRIFT_PERCENT)),
        ("drift_held", json!(per_cpu_held)),
        ("wall_drift_percent", told(drift(per_second))),
        ("held", json!(held)),
        ("open_files_first", json!(files.0)),
        ("open_files_last", json!(files.1)),
        ("os_threads_first", json!(threads.0)),
        ("os_threads_last", json!(threads.1)),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Returns a sample for each minute of two hours, with memory and throughput as functions of
    /// the minute.
    fn minutes(rss_mb: impl Fn(u64) -> f64, per_cpu: impl Fn(u64) -> u64) -> Vec<Sample> {
        (1..=120)
            .map(|minute| Sample {
                elapsed: Duration::from_secs(60 * minute),
                tuples: per_cpu(minute) * 60,
                spent: Spent {
                    wall: Duration::from_secs(60),
                    cpu: Duration::from_secs(60),
                },
                processes: 1,
                held: ResourceUsage {
                    rss_mb: rss_mb(minute),
                    files: 20,
                    threads: 4,
                },
                failed: 0,
            })
            .collect()
    }

    fn told(samples: &[Sample], name: &str) -> Value {
        let verdict = verdict(samples);
        let found = verdict.into_iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no {name}")).1
    }

    #[test]
    fn what_stays_holds_however_noisy_it_is() {
        let noisy = |minute: u64| 100.0 + (minute * 7919 % 13) as f64;
        let samples = minutes(noisy, |minute| 1_000_000 + minute * 104_729 % 50_000);
        for name in ["rss_held", "drift_held", "held"] {
            assert_eq!(told(&samples, name), true, "{:?}", verdict(&samples));
        }
        assert_eq!(told(&samples, "open_files_last"), 20);
    }

    #[test]
    fn memory_that_grows_steadily_does_not_hold() {
        let leaks = |minute: u64| 100.0 + minute as f64 / 20.0 + (minute % 3) as f64;
        let samples = minutes(leaks, |_| 1_000_000);
        assert_eq!(told(&samples, "rss_held"), false, "{:?}", verdict(&samples));
        assert_eq!(told(&samples, "drift_held"), true);
        assert_eq!(told(&samples, "held"), false);
        let slope = told(&samples, "rss_slope_mb_per_h").as_f64().unwrap();
        assert!((slope - 3.0).abs() < 0.2, "{slope}");
        let shrinks = minutes(|minute| 300.0 - minute as f64, |_| 1_000_000);
        assert_eq!(told(&shrinks, "held"), true);
    }

    #[test]
    fn throughput_that_drifts_in_either_direction_does_not_hold() {
        for change in [-400i64, 400] {
            let drifts = |minute: u64| (1_000_000 + change * minute as i64) as u64;
            let samples = minutes(|_| 100.0, drifts);
            assert_eq!(
                told(&samples, "drift_held"),
                false,
                "{:?}",
                verdict(&samples)
            );
            assert_eq!(told(&samples, "rss_held"), true);
        }
    }

    #[test]
    fn two_samples_tell_nothing() {
        let samples = minutes(|_| 100.0, |_| 1_000);
        for name in ["rss_held", "drift_held", "held", "drift_percent"] {
            assert_eq!(told(&samples[..2], name), Value::Null, "{name}");
        }
    }
}
