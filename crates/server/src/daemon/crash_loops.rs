//! Detection of crash loops: instances of a vertex fail repeatedly and mostly wait for restarts, so
//! they report no load.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_core::Timestamp;
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{History, Labels, Resolution, Selector};

/// Time window in which failures count. Restart delays are at most ten seconds.
const LOOKED_AT: Duration = Duration::from_secs(25);

/// Number of failures in the window above which an instance is in a crash loop.
const CRASH_LOOP_FAILURES: f64 = 1.5;

/// Time window in which the share of an instance's accounted time is measured.
const PRESENT: Duration = Duration::from_secs(5);

/// Minimum share of accounted time (busy, idle or blocked) of a running instance. A running
/// instance accounts for all of its time.
const THERE: f64 = 0.5;

/// Returns true if an instance of the vertex is in a crash loop: it fails repeatedly and is down
/// most of the time.
pub(crate) fn is_failing(history: &History, vertex: &str, now_ms: u64) -> bool {
    let mut failures = BTreeMap::<Labels, f64>::new();
    let curves = grown(history, &catalogue::EXCEPTIONS, vertex, now_ms);
    for (labels, growth) in curves {
        *failures.entry(instance(&labels)).or_default() += growth;
    }
    failures.retain(|_, failures| *failures > CRASH_LOOP_FAILURES);
    failures
        .into_keys()
        .any(|labels| is_away(history, vertex, &labels, now_ms))
}

/// Returns true if an instance is down most of the time: it accounts for little time, or its
/// process is missing.
fn is_away(history: &History, vertex: &str, of: &Labels, now_ms: u64) -> bool {
    let process = Selector::of(catalogue::INSTANCE_PROCESS.name).with("vertex", vertex);
    let mut processes = history.latest(&process).into_iter();
    if let Some(process) = processes.find(|one| instance(&one.labels) == *of) {
        return process.value == 0.0;
    }
    let times = [
        catalogue::BUSY,
        catalogue::CHAIN,
        catalogue::BLOCKED,
        catalogue::IDLE,
    ];
    let shares = times.iter().map(|metric| {
        let selector = Selector::of(metric.name).with("vertex", vertex);
        let mut curves = history.recent(&selector, PRESENT, at(now_ms)).into_iter();
        let curve = curves.find(|curve| instance(&curve.labels) == *of);
        let points = curve.map_or_else(Vec::new, |curve| curve.points);
        points.iter().map(|point| point.value).sum::<f64>() / (points.len().max(1) as f64)
    });
    shares.sum::<f64>() < THERE
}

/// Returns the labels that identify an instance.
fn instance(labels: &Labels) -> Labels {
    labels.only(&["container", "instance"])
}

/// Returns the recent growth of each series of a vertex's counter. For a process that still
/// reports, the window ends at its last batch. For a process that has ended, it ends now.
fn grown(history: &History, metric: &Metric, vertex: &str, now_ms: u64) -> BTreeMap<Labels, f64> {
    let selector = Selector::of(metric.name).with("vertex", vertex);
    let looked_at_ms = u64::try_from(LOOKED_AT.as_millis()).unwrap_or(u64::MAX);
    let (from, to) = (at(now_ms.saturating_sub(looked_at_ms)), at(now_ms));
    let by_clock = history.range(&selector, Resolution::Seconds, from, to);
    // The windows that end at a batch replace those of the same series that end now.
    let told = history.recent(&selector, LOOKED_AT, to);
    let curves = by_clock.into_iter().chain(told);
    curves
        .map(|curve| {
            let growth = curve.points.iter().map(|point| point.value).sum();
            (curve.labels, growth)
        })
        .collect()
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use ardea_metrics::{Batch, HistoryConfig, Value};

    use super::*;

    const SECONDS: u64 = 20;

    fn second(at: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + at as i64 * 1_000_000)
    }

    /// A batch of an instance 0 of `counts` at this time after the start of its process, with a
    /// rate of failures and a share of accounted time.
    fn batch(started: u64, at: u64, every: Duration, failures: f64, share: f64) -> Batch {
        let process = Labels::of([("container", "1")]);
        let mut batch = Batch::new(process, second(started), second(at)).every(every);
        let of = Labels::of([("vertex", "counts"), ("instance", "0")]);
        let elapsed = (at - started) as f64;
        let failed = Value::Counter((elapsed * failures).floor());
        batch.push(
            catalogue::EXCEPTIONS.name,
            &of.with("code", "ARD-201"),
            failed,
        );
        batch.push(catalogue::IDLE.name, &of, Value::Counter(elapsed * share));
        batch
    }

    #[test]
    fn who_fails_again_and_again_is_failing_at_any_time_however_seldom_it_tells_so() {
        for every in [1, 5, 30, 60] {
            for (failures, share, expected) in [(0.1, 0.01, true), (0.1, 0.95, false)] {
                let mut history = History::new(HistoryConfig::default(), second(0));
                for now in 0..240 {
                    if now % every == 0 {
                        let every = Duration::from_secs(every);
                        history.take(&batch(0, now, every, failures, share), second(now));
                    }
                    let found = is_failing(&history, "counts", (1_000 + now) * 1_000);
                    // The instance must fail for a while first.
                    if !expected || now >= every.max(30) {
                        assert_eq!(found, expected, "each {every} s, after {now} s: {share}");
                    }
                }
            }
        }
    }

    #[test]
    fn failures_count_for_a_while_when_the_process_that_told_them_was_started_again() {
        let mut history = History::new(HistoryConfig::default(), second(0));
        let every = Duration::from_secs(1);
        for now in 0..=20 {
            history.take(&batch(0, now, every, 0.2, 0.01), second(now));
        }
        // The next process has had no failure yet, so it reports none.
        let process = Labels::of([("container", "1")]);
        for now in 22..=60 {
            let next = Batch::new(process.clone(), second(21), second(now));
            history.take(&next, second(now));
            let found = is_failing(&history, "counts", (1_000 + now) * 1_000);
            assert!(found || now > 30, "{now}");
            assert!(!found || now <= 50, "{now}");
        }
    }

    /// A history in which instance 0 of `counts` has this rate of failures and share of accounted
    /// time, while instance 1 is healthy.
    fn history(failures: f64, share: f64, process: Option<f64>) -> History {
        let mut history = History::new(HistoryConfig::default(), second(0));
        let process_labels = Labels::of([("container", "1")]);
        for at in 0..=SECONDS {
            let mut batch = Batch::new(process_labels.clone(), second(0), second(at));
            let of = |instance| Labels::of([("vertex", "counts"), ("instance", instance)]);
            let elapsed = at as f64;
            let failed = of("0").with("code", "ARD-201");
            let failed_so_often = Value::Counter((elapsed * failures).floor());
            batch.push(catalogue::EXCEPTIONS.name, &failed, failed_so_often);
            let idle = |share: f64| Value::Counter(elapsed * share);
            batch.push(catalogue::IDLE.name, &of("0"), idle(share));
            batch.push(catalogue::IDLE.name, &of("1"), idle(1.0));
            if let Some(number) = process {
                batch.push(
                    catalogue::INSTANCE_PROCESS.name,
                    &of("0"),
                    Value::Gauge(number),
                );
            }
            history.take(&batch, second(at));
        }
        history
    }

    #[test]
    fn who_fails_again_and_again_and_is_hardly_there_is_failing() {
        let now_ms = (1_000 + SECONDS) * 1_000;
        for (failures, share, process, expected) in [
            (0.2, 0.01, None, true),
            (30.0, 0.1, None, true),
            // Failing but present.
            (1.0, 0.95, None, false),
            // Not failing, and without accounted time because it shares its thread.
            (0.0, 0.0, None, false),
            // The proxy of an instance process is always present.
            (0.2, 1.0, Some(0.0), true),
            (0.2, 1.0, Some(4711.0), false),
        ] {
            let found = is_failing(&history(failures, share, process), "counts", now_ms);
            assert_eq!(found, expected, "{failures} {share} {process:?}");
        }
        assert!(!is_failing(&history(0.2, 0.0, None), "words", now_ms));
    }
}
