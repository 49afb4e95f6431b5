//! The settings of a process's metrics.

use std::time::Duration;

use ardea_config::{Kind, Resolved, Setting};
use ardea_core::Result;

use crate::sink::OTLP;

/// The maximum reporting interval.
pub(crate) const MOST_EVERY: Duration = Duration::from_secs(60);

/// The definitions of the settings under `metrics`.
///
/// ```
/// use ardea_config::{Resolver, Schema};
/// use ardea_metrics::{METRICS_SETTINGS, MetricsConfig};
///
/// let schema = Schema::of(METRICS_SETTINGS);
/// let resolved = Resolver::new(&schema).flags(["metrics.sinks=prometheus"]).resolve()?;
/// assert_eq!(MetricsConfig::from_settings(&resolved)?.sinks, "prometheus");
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub static METRICS_SETTINGS: &[Setting] = &[
    Setting {
        key: "metrics.sinks",
        kind: Kind::Text,
        default: "",
        about: "metrics sinks of each process, in addition to the job's leader: names with arguments, such as prometheus:127.0.0.1:9464+,json-lines:metrics.jsonl",
        trades: "each has a thread in every process of the job",
    },
    Setting {
        key: "metrics.otlp",
        kind: Kind::Text,
        default: "",
        about: "the URL of an OpenTelemetry collector to which each process sends its metrics, such as http://127.0.0.1:4318/v1/metrics",
        trades: "a thread and a request per interval in every process of the job",
    },
    Setting {
        key: "metrics.every",
        kind: Kind::Duration {
            least: Duration::from_millis(100),
            most: MOST_EVERY,
        },
        default: "1s",
        about: "interval at which a process reports its metrics",
        trades: "a shorter interval shows changes sooner, and costs some kilobytes each time",
    },
];

/// The parsed values of [`METRICS_SETTINGS`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricsConfig {
    /// The list of sinks, including that of `metrics.otlp`, for
    /// [`MetricsManager::start`](crate::MetricsManager::start).
    pub sinks: String,
    /// The reporting interval: the time between two batches.
    pub every: Duration,
}

impl MetricsConfig {
    /// Reads the values from resolved settings.
    ///
    /// # Errors
    /// If the schema lacks [`METRICS_SETTINGS`].
    pub fn from_settings(resolved: &Resolved) -> Result<Self> {
        Ok(MetricsConfig {
            sinks: all_sinks(
                resolved.text("metrics.sinks")?,
                resolved.text("metrics.otlp")?,
            ),
            every: resolved.duration("metrics.every")?,
        })
    }
}

/// Returns the list of sinks, including the one that `metrics.otlp` selects.
fn all_sinks(sinks: &str, otlp: &str) -> String {
    let otlp = match otlp.trim() {
        "" => String::new(),
        url => format!("{OTLP}:{url}"),
    };
    let lists = [sinks.trim(), &otlp];
    let lists: Vec<&str> = lists.into_iter().filter(|it| !it.is_empty()).collect();
    lists.join(",")
}

impl Default for MetricsConfig {
    fn default() -> Self {
        MetricsConfig {
            sinks: String::new(),
            every: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_one_more_sink() {
        assert_eq!(all_sinks("", " "), "");
        assert_eq!(all_sinks("prometheus", ""), "prometheus");
        assert_eq!(all_sinks("", "http://a:4318"), "otlp:http://a:4318");
        let both = all_sinks("prometheus", "http://a:4318/v1/metrics");
        assert_eq!(both, "prometheus,otlp:http://a:4318/v1/metrics");
    }
}
