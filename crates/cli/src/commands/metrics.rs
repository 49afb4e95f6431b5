//! `ardea metrics`: the metrics of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea::command_line::ClusterConnection;
use ardea::command_line::Context;
use ardea::console::format_number::{duration, moment};
use ardea::console::{Failure, MessageKind, print_notice};
use ardea_config::nearest;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{MetricsQuery, MetricsRange, RangeQuery, SampleKind, SampleView};
use serde_json::json;

use crate::args::MetricsArgs;
use crate::columns::table;

/// Prints the latest values, or those of a time span.
pub fn run(args: &MetricsArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of_job(&args.job.place, &args.job.job, context)?;
    let job = &args.job.job;
    if let (Some(since), Some(name)) = (args.since, &args.name) {
        check_since(since)?;
        let query = RangeQuery {
            name: name.clone(),
            vertex: args.vertex.clone(),
            instance: args.instance,
            container: args.container,
            from_ms: Some(now_ms().saturating_sub(millis(since))),
            to_ms: None,
        };
        let range = cluster.wait_for(cluster.client.metrics_range(job, &query))?;
        if range.series.is_empty() {
            check(&cluster, args)?;
            print_notice(MessageKind::Warning, &nothing_since(since), context.json);
        }
        return context.print(&range_text(&range), || json!(range));
    }
    let query = MetricsQuery {
        name: args.name.clone(),
        vertex: args.vertex.clone(),
        instance: args.instance,
        container: args.container,
    };
    let samples = cluster.wait_for(cluster.client.metrics(job, &query))?;
    if samples.is_empty() {
        check(&cluster, args)?;
    }
    context.print(&latest_text(&samples), || json!(samples))
}

/// Refuses a time span of less than a second.
fn check_since(since: Duration) -> Result<(), Failure> {
    if since >= Duration::from_secs(1) {
        return Ok(());
    }
    let what = "--since is too short: it must be at least one second";
    let hint = "values are kept per second for a minute and per ten seconds for an hour: \
                write for example --since 10m";
    Err(Failure::usage(what, hint))
}

/// Describes an empty result: the series exist, but have no values in the time span `since`.
fn nothing_since(since: Duration) -> String {
    format!(
        "there are no values of the last {}: the job's leader has values since it was elected, of an hour at most, and a value of one second \
         or ten seconds becomes available at the end of that time; try again in a few seconds, or with a longer --since",
        duration(since)
    )
}

/// Returns an error that names the first filter without a match. `Ok` if all filters match, and
/// values are only missing so far.
fn check(cluster: &ClusterConnection, args: &MetricsArgs) -> Result<(), Failure> {
    let all = MetricsQuery::default();
    let all = cluster.wait_for(cluster.client.metrics(&args.job.job, &all))?;
    match missing(&all, args) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// Extracts the value that a filter compares.
type ValueOf<'a> = &'a dyn Fn(&SampleView) -> String;

fn missing(all: &[SampleView], args: &MetricsArgs) -> Option<Failure> {
    let job = &args.job.job;
    if all.is_empty() {
        let what = format!("there are no metrics of job {job:?} yet");
        let error = Error::new(ErrorCode::StateUnavailable, what);
        return Some(error.hint("try again in a few seconds").into());
    }
    // Each filter applies to the samples that match the filters before it.
    let mut left: Vec<&SampleView> = all.iter().collect();
    let of_label = |label: &'static str| {
        move |sample: &SampleView| sample.labels.get(label).cloned().unwrap_or_default()
    };
    let questions: [(&str, Option<String>, ValueOf<'_>); 4] = [
        ("metric", args.name.clone(), &|sample| sample.name.clone()),
        ("vertex", args.vertex.clone(), &of_label("vertex")),
        (
            "container",
            args.container.map(|n| n.to_string()),
            &of_label("container"),
        ),
        (
            "instance",
            args.instance.map(|n| n.to_string()),
            &of_label("instance"),
        ),
    ];
    let mut of = format!("job {job:?}");
    for (what, wanted, value) in questions {
        let Some(wanted) = wanted else {
            continue;
        };
        let is_meant = |sample: &SampleView| {
            let value = value(sample);
            value == wanted || what == "metric" && is_part_of(&value, &wanted)
        };
        if !left.iter().any(|sample| is_meant(sample)) {
            let there = left.iter().map(|sample| value(sample)).collect();
            return Some(absent(what, &wanted, &of, &there));
        }
        left.retain(|sample| is_meant(sample));
        of = format!("{what} {wanted:?} of {of}");
    }
    None
}

/// Returns true if the series is part of this histogram.
fn is_part_of(name: &str, histogram: &str) -> bool {
    let part = name.strip_prefix(histogram);
    part.is_some_and(|part| matches!(part, "_bucket" | "_sum" | "_count"))
}

/// Returns the metrics that were probably meant; empty if there are too many.
fn meant_metrics<'a>(wanted: &str, names: &[&'a str]) -> Vec<&'a str> {
    if let Some(meant) = nearest(wanted, names.iter().copied()) {
        return vec![meant];
    }
    let wanted = wanted.to_lowercase().replace(['-', '.', ' '], "_");
    let containing = names.iter().copied();
    let containing: Vec<&str> = containing.filter(|name| name.contains(&wanted)).collect();
    match containing.len() <= 5 && !wanted.is_empty() {
        true => containing,
        false => Vec::new(),
    }
}

fn absent(what: &str, wanted: &str, of: &str, there: &BTreeSet<String>) -> Failure {
    let names = there
        .iter()
        .map(String::as_str)
        .filter(|name| !name.is_empty());
    let names: Vec<&str> = names.collect();
    let meant = match what {
        "metric" => meant_metrics(wanted, &names),
        "vertex" => nearest(wanted, names.iter().copied()).into_iter().collect(),
        _ => Vec::new(),
    };
    let known = match &names[..] {
        [] => format!("it has no {what} at all"),
        names => format!("it has: {}", names.join(", ")),
    };
    let hint = match (&meant[..], what) {
        ([], _) => known,
        // The names are not listed, since there are dozens.
        (meant, "metric") => format!(
            "did you mean {}? without --name all are shown",
            meant.join(" or ")
        ),
        (meant, _) => format!("did you mean {}? {known}", meant.join(" or ")),
    };
    Failure::usage(format!("there is no {what} {wanted:?} of {of}"), hint)
}

fn latest_text(samples: &[SampleView]) -> String {
    let rows: Vec<Vec<String>> = samples
        .iter()
        .map(|sample| {
            vec![
                sample.name.clone(),
                labels(&sample.labels),
                value(sample.value),
                unit(&sample.name).to_string(),
            ]
        })
        .collect();
    table(&["metric", "of", ">value", "unit"], &rows)
}

/// Returns the unit of a metric, from its name.
fn unit(name: &str) -> &'static str {
    let of = name.strip_suffix("_total").unwrap_or(name);
    // The parts of a histogram: the total count, and the counts up to each bound.
    let parts = ["_count", "_bucket"].iter();
    if let Some(of) = parts.filter_map(|part| of.strip_suffix(part)).next() {
        return match of {
            "ardea_latency_seconds" => "marks",
            "ardea_complete_latency_seconds" => "messages",
            _ => "counted",
        };
    }
    let of = of.strip_suffix("_sum").unwrap_or(of);
    let last = of.rsplit('_').next().unwrap_or(of);
    match last {
        "seconds" => "s",
        "bytes" => "bytes",
        "ratio" => "of 1",
        _ if of.contains("_records") => "records",
        _ if of.contains("_messages_") => "messages",
        "in" | "out" if of.contains("_bytes_") => "bytes",
        "in" | "out" | "reused" if of.contains("_frames_") => "frames",
        "placements" => "plans",
        "findings" => "findings",
        "messages" => "messages",
        "snapshots" => "snapshots",
        "entries" => "entries",
        "keys" => "keys",
        "epochs" => "epochs",
        _ if of.contains("_epochs_") => "epochs",
        "rollbacks" => "rollbacks",
        "attempt" => "attempt",
        "slices" => "slices",
        "restarts" => "restarts",
        "exceptions" => "exceptions",
        "threads" => "threads",
        "connected" => "connections",
        "slots" => "slots",
        "lines" => "lines",
        "sleeps" | "full" => "times",
        "fds" => "files",
        "id" => "process",
        "batches" => "batches",
        "repeated" if of.contains("_batches_") => "batches",
        _ => "",
    }
}

fn range_text(range: &MetricsRange) -> String {
    let mut text = String::new();
    for series in &range.series {
        text += &format!("{} {}", series.name, labels(&series.labels));
        let unit = unit(&series.name);
        if series.kind == SampleKind::Counter && range.step_ms > 0 {
            let step = duration(Duration::from_millis(range.step_ms));
            let unit = if unit.is_empty() { "how many" } else { unit };
            text += &format!(": {unit} more in each {step}");
        } else if !unit.is_empty() {
            text += &format!(": {unit}");
        }
        text.push('\n');
        let points = series
            .points
            .iter()
            .map(|point| vec![format!("  {}", moment(point.at_ms)), value(point.value)]);
        text += &table(&["  when (UTC)", ">value"], &points.collect::<Vec<_>>());
    }
    text
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let pairs = labels.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

/// Formats a number with all its digits, without trailing zeros.
fn value(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| value.to_string())
}

fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use ardea_rest::{PointView, SeriesView};

    use super::*;
    use ardea::command_line::ClusterArgs;

    use crate::args::RemoteJob;

    fn asked(name: Option<&str>, vertex: Option<&str>, instance: Option<u32>) -> MetricsArgs {
        MetricsArgs {
            job: RemoteJob {
                job: "job".into(),
                place: ClusterArgs::default(),
            },
            name: name.map(String::from),
            vertex: vertex.map(String::from),
            instance,
            container: None,
            since: None,
        }
    }

    fn sample(name: &str, vertex: &str, instance: &str) -> SampleView {
        let labels = [("vertex", vertex), ("instance", instance)];
        SampleView {
            name: name.into(),
            labels: labels
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            kind: SampleKind::Counter,
            value: Some(1.0),
            at_ms: 0,
        }
    }

    #[test]
    fn what_there_is_not_is_told_with_what_there_is() {
        let all = [
            sample("ardea_records_in_total", "counts", "0"),
            sample("ardea_records_in_total", "counts", "1"),
            sample("ardea_records_in_total", "words", "0"),
        ];
        let told = |args: &MetricsArgs| match missing(&all, args) {
            Some(Failure::Error(error)) => error.to_string(),
            other => format!("{other:?}"),
        };
        let vertex = told(&asked(None, Some("cuonts"), None));
        assert!(
            vertex.contains("no vertex \"cuonts\" of job \"job\""),
            "{vertex}"
        );
        assert!(
            vertex.ends_with("did you mean counts? it has: counts, words"),
            "{vertex}"
        );
        let metric = told(&asked(Some("ardea_record_in_total"), None, None));
        assert!(
            metric.contains("did you mean ardea_records_in_total?"),
            "{metric}"
        );
        let part = told(&asked(Some("records_in"), None, None));
        assert!(
            part.ends_with("did you mean ardea_records_in_total? without --name all are shown"),
            "{part}"
        );
        let instance = told(&asked(None, Some("words"), Some(1)));
        assert!(
            instance.contains("no instance \"1\" of vertex \"words\""),
            "{instance}"
        );
        assert!(instance.ends_with("it has: 0"), "{instance}");
        assert_eq!(told(&asked(None, Some("counts"), Some(1))), "None");
        assert!(missing(&[], &asked(None, None, None)).is_some());
    }

    #[test]
    fn a_histogram_is_known_by_its_own_name() {
        let all = [sample("ardea_latency_seconds_bucket", "counts", "0")];
        let of = |vertex| {
            missing(
                &all,
                &asked(Some("ardea_latency_seconds"), Some(vertex), None),
            )
        };
        assert!(of("counts").is_none());
        let told = of("words").map(|failure| format!("{failure:?}"));
        assert!(told.is_some_and(|told| told.contains("vertex")));
    }

    #[test]
    fn a_time_without_a_second_is_refused() {
        for short in [Duration::ZERO, Duration::from_millis(999)] {
            assert!(check_since(short).is_err());
        }
        assert!(check_since(Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn every_metric_of_the_catalogue_has_a_unit() {
        for metric in ardea_metrics::catalogue::ALL {
            assert_ne!(unit(metric.name), "", "{}", metric.name);
        }
        assert_eq!(unit("ardea_latency_seconds_bucket"), "marks");
        assert_eq!(unit("ardea_latency_seconds_sum"), "s");
        let messages = unit("ardea_complete_latency_seconds_count");
        assert_eq!(messages, "messages");
        assert_eq!(unit("somebodys_own"), "");
    }

    #[test]
    fn a_counters_range_says_over_which_time_each_value_is() {
        let series = SeriesView {
            name: "ardea_busy_seconds_total".into(),
            labels: BTreeMap::new(),
            kind: SampleKind::Counter,
            points: vec![PointView {
                at_ms: 0,
                value: Some(0.5),
            }],
        };
        let text = range_text(&MetricsRange {
            series: vec![series],
            step_ms: 10_000,
        });
        let head = text.lines().next().unwrap();
        assert_eq!(head, "ardea_busy_seconds_total : s more in each 10.0 s");
    }
}
