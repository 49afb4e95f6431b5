//! A run: a cluster counts windows, a part of it may be killed, and the output is compared with the
//! expected one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ardea_core::{Result, Timestamp};
use serde_json::{Value, json};

use super::ads::AdsLoad;
use super::cdf::write_cdf;
use super::local;
use super::params::YsbParams;
use crate::cluster::{Kind, Load, Sample, merged};
use crate::long_running::commits;
use crate::long_running::fixture::{Fixture, published_in, rss_mb, spent};
use crate::long_running::published::{self, Verdict};
use crate::long_running::span::Plan;
use crate::long_running::watch::WINDOW;
use crate::noise;
use crate::report::{Field, Report, machine_of, rounded, seconds};

/// A window is affected if its latency exceeds the highest one before the kill by more than this
/// fraction of it, and by [`AFFECTED`].
const AFFECTED_SHARE: f64 = 1.0;
const AFFECTED: Duration = Duration::from_millis(10);

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are
/// invalid; errors of the cluster or the job.
pub fn run(params: &YsbParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    match params.is_local() {
        true => local::run(params, progress),
        false => run_on_cluster(params, progress),
    }
}

fn run_on_cluster(params: &YsbParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.instances(), params.duration)?;
    progress("starting a cluster");
    let mut load = None;
    let size = (params.hosts(), params.workers);
    let mut stand = Fixture::start("ysb", size, &params.settings(), |socket| {
        let ads = params.load(published_in(&socket));
        load = Some(ads.clone());
        Load::new(socket, Kind::Ads(ads))
    })?;
    progress("warming up");
    let plan = stand.begin(params.warmup, params.duration);
    progress("measuring");
    let mut killed = None;
    let mut recovered = None;
    if let Some(kill) = params.kill {
        stand.poll_until(plan.from + params.at);
        progress("killing");
        let signal = stand.kill(kill.victim())?;
        recovered = stand.wait_until_recovered(&signal, kill.victim());
        killed = Some(plan.from + params.at);
    }
    stand.poll_until(plan.until);
    let hosts_cpu = stand.host_cpu_time();
    progress("waiting for all results");
    let (last, is_over) = stand.end(params.window + STILL);
    let mut figures: Vec<Field> = vec![("duration_s", json!(seconds(params.duration)))];
    figures.extend(latencies(params, &last, &plan, killed)?);
    let checked = load.filter(|_| is_over);
    let verdict = checked.map(|load| verdict(&load, &stand.published(), plan.start));
    figures.extend(outcome(recovered, verdict.transpose()?));
    figures.push(("host_cpu_seconds", json!(seconds(hosts_cpu))));
    figures.extend(match params.guarantee.keeps_state() {
        true => stand.commits().figures(),
        false => commits::none(),
    });
    figures.extend(machine_of(
        spent(&last, params.duration),
        rss_mb(&last),
        noise,
    ));
    Ok(Report {
        bench: "ysb",
        parameters: params.fields(),
        figures,
    })
}

/// Returns the figures of a failure and of the comparison with the expected output.
pub(super) fn outcome(recovered: Option<Duration>, verdict: Option<Verdict>) -> Vec<Field> {
    let recovered = recovered.map(|time| rounded(time.as_secs_f64() * 1e3, 1e3));
    vec![
        ("recovery_ms", json!(recovered)),
        ("lost", json!(verdict.map(|verdict| verdict.lost))),
        (
            "duplicated",
            json!(verdict.map(|verdict| verdict.duplicated)),
        ),
    ]
}

/// Returns the latencies of all windows, and the figures of those that ended after the kill. Writes
/// their distribution if requested.
pub(super) fn latencies(
    params: &YsbParams,
    last: &[Sample],
    plan: &Plan,
    killed: Option<Timestamp>,
) -> Result<Vec<Field>> {
    if let Some(path) = &params.cdf {
        write_cdf(path, &merged(last)?)?;
    }
    Ok(windows(last, plan, killed))
}

/// The results are complete after a window and this time without new ones.
const STILL: Duration = Duration::from_secs(2);

/// Returns the latencies of all windows, and the figures of those that ended after the kill.
fn windows(last: &[Sample], plan: &Plan, killed: Option<Timestamp>) -> Vec<Field> {
    let late = late_windows(last);
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let all = merged(last).ok().filter(|all| !all.is_empty());
    let quantile = |q: f64| -> Value {
        json!(
            all.as_ref()
                .map(|all| rounded(ms(all.value_at_quantile(q)), 1e4))
        )
    };
    let in_time = |end: i64| (plan.from.as_micros()..plan.until.as_micros()).contains(&end);
    let before = |end: i64| killed.is_none_or(|killed| end < killed.as_micros());
    let measured = late.iter().filter(|(end, _)| in_time(**end));
    let (calm, shaken): (Vec<_>, Vec<_>) = measured.partition(|(end, _)| before(**end));
    let longest = calm.iter().map(|(_, late)| ms(**late)).reduce(f64::max);
    let limit =
        longest.map(|longest| longest * (1.0 + AFFECTED_SHARE) + AFFECTED.as_secs_f64() * 1e3);
    let affected = shaken
        .iter()
        .filter(|(_, late)| Some(ms(**late)) > limit)
        .count();
    let spike = shaken.iter().map(|(_, late)| ms(**late)).reduce(f64::max);
    let is_known = killed.is_some() && limit.is_some();
    vec![
        ("windows", json!(calm.len() + shaken.len())),
        ("latencies", json!(all.as_ref().map_or(0, |all| all.len()))),
        ("window_p50_ms", quantile(0.5)),
        ("window_p99_ms", quantile(0.99)),
        ("window_max_ms", quantile(1.0)),
        ("calm_max_ms", json!(longest.map(|late| rounded(late, 1e4)))),
        ("spike_ms", json!(spike.map(|late| rounded(late, 1e4)))),
        ("windows_affected", json!(is_known.then_some(affected))),
    ]
}

/// Returns the latency of the latest result of each window in nanoseconds, by its end in
/// microseconds.
fn late_windows(last: &[Sample]) -> BTreeMap<i64, u64> {
    let mut late: BTreeMap<i64, u64> = BTreeMap::new();
    for (name, nanos) in last.iter().flat_map(|sample| &sample.numbers) {
        if let Some(end) = name.strip_prefix(WINDOW).and_then(|end| end.parse().ok()) {
            let known = late.entry(end).or_default();
            *known = (*nanos).max(*known);
        }
    }
    late
}

/// Compares the output, in a folder unless it is in Redis, with the expected one.
pub(super) fn verdict(load: &AdsLoad, folder: &Path, start: Timestamp) -> Result<Verdict> {
    #[cfg(all(feature = "kafka", feature = "redis"))]
    if let Some(hash) = &load.redis {
        return Ok(load.verdict(start, &super::servers::published(hash)?));
    }
    let lines: Vec<(u64, i64, u64)> = published::lines(folder, |line| {
        let mut parts = line.split(' ');
        let campaign = parts.next()?.parse().ok()?;
        let end = parts.next()?.parse().ok()?;
        Some((campaign, end, parts.next()?.parse().ok()?))
    })?;
    Ok(load.verdict(start, &lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_behind_the_kill_are_affected_if_they_are_later_than_those_before() {
        let second = Duration::from_secs(1);
        let plan = Plan::after(Timestamp::from_secs(0), second, second, 4 * second);
        let end = |at: u64| (plan.from + Duration::from_millis(at)).as_micros();
        let ms = 1_000_000;
        let numbers = [
            (500, 5),
            (1_000, 7),
            (2_000, 900),
            (3_000, 6),
            (9_000, 9_000),
        ];
        let numbers = numbers.map(|(at, late)| (format!("{WINDOW}{}", end(at)), late * ms));
        let sample = Sample {
            numbers: numbers.into(),
            ..Sample::default()
        };
        let killed = Some(plan.from + 3 * second / 2);
        let figures = windows(&[sample], &plan, killed);
        let figure = |name: &str| {
            let found = figures.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone()).unwrap()
        };
        assert_eq!(figure("windows"), json!(4));
        assert_eq!(figure("calm_max_ms"), json!(7.0));
        assert_eq!(figure("spike_ms"), json!(900.0));
        assert_eq!(figure("windows_affected"), json!(1));
        assert_eq!(figure("window_p50_ms"), Value::Null);
    }
}
