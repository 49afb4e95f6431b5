//! Metrics of functions in processes of their own.

use std::time::{Duration, Instant};

use ardea_instance::protocol::{MetricKind, UserMetric};
use pyo3::prelude::*;

/// The interval at which changed metrics are taken.
const INTERVAL: Duration = Duration::from_secs(1);

/// The metrics of `ardea.metrics` in this process.
pub(crate) struct FunctionMetrics {
    next: Instant,
}

impl FunctionMetrics {
    /// Creates the metrics of a process.
    pub(crate) fn new() -> Self {
        FunctionMetrics {
            next: Instant::now() + INTERVAL,
        }
    }

    /// Takes the changes, at most once a second; also before if `is_last`.
    pub(crate) fn take(&mut self, is_last: bool) -> Vec<UserMetric> {
        let now = Instant::now();
        if !is_last && now < self.next {
            return Vec::new();
        }
        self.next = now + INTERVAL;
        let changes = Python::attach(|py| -> PyResult<Vec<(String, String, f64)>> {
            let metrics = py.import("ardea.metrics")?;
            metrics.call_method0("take_changes")?.extract()
        });
        let changes = changes.unwrap_or_default().into_iter();
        let changes = changes.map(|(name, kind, value)| UserMetric {
            name,
            kind: match kind.as_str() {
                "counter" => MetricKind::Counter,
                _ => MetricKind::Gauge,
            },
            value,
        });
        changes.collect()
    }
}
