//! The metrics that user code reports.
//!
//! They are kept for the process of the host, so that counters continue over restarts of an
//! instance. The worker of a container reads them with its own metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ardea_core::InstanceContext;

use crate::protocol::{MetricKind, UserMetric, Violation};

/// The maximum number of metrics of an instance; further names are ignored.
const MAX_METRICS: usize = 100;
/// The maximum length of a name.
const MAX_NAME_BYTES: usize = 100;

type ByName = BTreeMap<String, (MetricKind, f64)>;
/// The metrics by vertex and instance.
static METRICS: Mutex<BTreeMap<(String, u32), ByName>> = Mutex::new(BTreeMap::new());

fn lock() -> MutexGuard<'static, BTreeMap<(String, u32), ByName>> {
    METRICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records a value that an instance has reported.
///
/// # Errors
/// A name that is no name of a metric, or a value that is no number.
pub fn record_user_metric(context: &InstanceContext, metric: UserMetric) -> Result<(), Violation> {
    let UserMetric { name, kind, value } = metric;
    let is_name = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'_');
    if !is_name {
        let what = format!("{name:?} is no name of a metric: letters, digits and _");
        return Err(Violation::new(what));
    }
    if !value.is_finite() || (kind == MetricKind::Counter && value < 0.0) {
        let what = format!("the metric {name:?} can't have the value {value}");
        return Err(Violation::new(what));
    }
    let mut all = lock();
    let instance = (context.vertex.to_string(), context.instance.index);
    let metrics = all.entry(instance).or_default();
    if metrics.len() >= MAX_METRICS && !metrics.contains_key(&name) {
        return Ok(());
    }
    let (known, total) = metrics.entry(name).or_insert((kind, 0.0));
    *known = kind;
    match kind {
        MetricKind::Counter => *total += value,
        MetricKind::Gauge => *total = value,
    }
    Ok(())
}

/// Returns the metrics that user code of an instance has reported in this process: names without
/// the prefix `ardea_user_`, kinds and values.
pub fn user_metrics_of(vertex: &str, instance: u32) -> Vec<(String, MetricKind, f64)> {
    let all = lock();
    let metrics = all
        .get(&(vertex.to_owned(), instance))
        .into_iter()
        .flatten();
    metrics
        .map(|(name, (kind, value))| (name.clone(), *kind, *value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, kind: MetricKind, value: f64) -> UserMetric {
        UserMetric {
            name: name.into(),
            kind,
            value,
        }
    }

    #[test]
    fn counters_add_up_and_gauges_have_the_latest_value() {
        let context = InstanceContext::detached("counted");
        for value in [2.0, 3.0] {
            record_user_metric(&context, metric("lines", MetricKind::Counter, value)).unwrap();
            record_user_metric(&context, metric("fill", MetricKind::Gauge, value)).unwrap();
        }
        let expected = [
            ("fill".to_owned(), MetricKind::Gauge, 3.0),
            ("lines".to_owned(), MetricKind::Counter, 5.0),
        ];
        let instance = context.instance.index;
        assert_eq!(user_metrics_of("counted", instance), expected);
        assert_eq!(user_metrics_of("counted", instance + 1), []);
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let context = InstanceContext::detached("bounded");
        for number in 0..2 * MAX_METRICS {
            let name = format!("metric_{number}");
            record_user_metric(&context, metric(&name, MetricKind::Gauge, 1.0)).unwrap();
        }
        let metrics = user_metrics_of("bounded", context.instance.index);
        assert_eq!(metrics.len(), MAX_METRICS);
    }

    #[test]
    fn names_and_values_that_make_no_sense_are_refused() {
        let context = InstanceContext::detached("refused");
        for (name, kind, value) in [
            ("", MetricKind::Gauge, 1.0),
            ("a b", MetricKind::Gauge, 1.0),
            ("lines", MetricKind::Counter, -1.0),
            ("lines", MetricKind::Gauge, f64::NAN),
        ] {
            assert!(
                record_user_metric(&context, metric(name, kind, value)).is_err(),
                "{name:?}"
            );
        }
    }
}
