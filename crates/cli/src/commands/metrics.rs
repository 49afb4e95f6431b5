//! `ardea metrics`: what was measured of a job.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_api::{MetricsQuery, MetricsRange, RangeQuery, SampleView};
use serde_json::json;

use crate::args::MetricsArgs;
use crate::columns::table;
use crate::context::Context;
use crate::failure::Failure;
use crate::figures::moment;
use crate::reach::Reached;
use crate::stdout;

/// Prints the latest values, or those of a time.
pub fn run(args: &MetricsArgs, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of(&args.job.place, context)?;
    let job = &args.job.job;
    if let (Some(since), Some(name)) = (args.since, &args.name) {
        let query = RangeQuery {
            name: name.clone(),
            vertex: args.vertex.clone(),
            instance: args.instance,
            container: args.container,
            from_ms: Some(now_ms().saturating_sub(millis(since))),
            to_ms: None,
        };
        let range = cluster.ask(cluster.client.metrics_range(job, &query))?;
        return match context.json {
            true => stdout::print_json(&json!(range)),
            false => stdout::print(&range_text(&range)),
        };
    }
    let query = MetricsQuery {
        name: args.name.clone(),
        vertex: args.vertex.clone(),
        instance: args.instance,
        container: args.container,
    };
    let samples = cluster.ask(cluster.client.metrics(job, &query))?;
    match context.json {
        true => stdout::print_json(&json!(samples)),
        false => stdout::print(&latest_text(&samples)),
    }
}

fn latest_text(samples: &[SampleView]) -> String {
    let rows: Vec<Vec<String>> = samples
        .iter()
        .map(|sample| {
            vec![
                sample.name.clone(),
                labels(&sample.labels),
                value(sample.value),
            ]
        })
        .collect();
    table(&["metric", "of", ">value"], &rows)
}

fn range_text(range: &MetricsRange) -> String {
    let mut text = String::new();
    for series in &range.series {
        text += &format!("{} {}\n", series.name, labels(&series.labels));
        let points = series
            .points
            .iter()
            .map(|point| vec![format!("  {}", moment(point.at_ms)), value(point.value)]);
        text += &table(&["  when", ">value"], &points.collect::<Vec<_>>());
    }
    text
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let pairs = labels.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

/// As many digits as it has, and none behind the point that it hasn't.
fn value(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| value.to_string())
}

fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
