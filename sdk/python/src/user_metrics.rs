//! Metrics of functions, in processes of their own and in that of the job.

use std::time::{Duration, Instant};

use ardea_core::InstanceContext;
use ardea_instance::protocol::{MetricKind, UserMetric};
use ardea_instance::record_user_metric;
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
        let changes = Python::attach(|py| {
            let metrics = py.import("ardea.metrics")?;
            changes_of(&metrics.call_method0("take_changes")?)
        });
        changes.unwrap_or_default()
    }
}

/// Returns changes of `ardea.metrics`: name, kind and value.
fn changes_of(changes: &Bound<'_, PyAny>) -> PyResult<Vec<UserMetric>> {
    let changes: Vec<(String, String, f64)> = changes.extract()?;
    let changes = changes.into_iter().map(|(name, kind, value)| UserMetric {
        name,
        kind: match kind.as_str() {
            "counter" => MetricKind::Counter,
            _ => MetricKind::Gauge,
        },
        value,
    });
    Ok(changes.collect())
}

/// The metrics of an instance that calls a function in the process of the job.
#[derive(Default)]
pub(crate) struct EmbeddedMetrics {
    context: Option<InstanceContext>,
    /// `ardea.metrics.InstanceMetrics`, from the first call on.
    changes: Option<Py<PyAny>>,
}

impl EmbeddedMetrics {
    /// Sets the instance.
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.context = Some(context.clone());
    }

    /// Calls a function, and records the metrics that it changes.
    pub(crate) fn during<R>(&mut self, call: impl FnOnce() -> R) -> R {
        Python::attach(|py| {
            // Without its metrics a function works as well.
            let has_entered = self.enter(py).is_ok();
            let result = call();
            if has_entered {
                let _ = self.leave(py);
            }
            result
        })
    }

    fn enter(&mut self, py: Python<'_>) -> PyResult<()> {
        let changes = match &self.changes {
            Some(changes) => changes,
            None => {
                let class = py.import("ardea.metrics")?.getattr("InstanceMetrics")?;
                self.changes.insert(class.call0()?.unbind())
            }
        };
        changes.bind(py).call_method0("enter")?;
        Ok(())
    }

    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let (Some(changes), Some(context)) = (&self.changes, &self.context) else {
            return Ok(());
        };
        let changes = changes.bind(py).call_method0("leave")?;
        if changes.is_truthy()? {
            for metric in changes_of(&changes)? {
                // Python has checked the name and the value.
                let _ = record_user_metric(context, metric);
            }
        }
        Ok(())
    }
}
