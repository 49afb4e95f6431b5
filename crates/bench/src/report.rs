//! The result of a bench: its parameters and its measurements.

use std::path::PathBuf;
use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Guarantee;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::noise::Noise;
use crate::usage::{Spent, peak_resident_mb};

/// A field of a report, under its fixed name.
pub type Field = (&'static str, Value);

/// The result of one run. Names are fixed, so that it can be compared with a run of another system.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of the bench.
    pub bench: &'static str,
    /// The parameters, each under its own name.
    pub parameters: Vec<Field>,
    /// The measurements; `null` if one could not be made.
    pub figures: Vec<Field>,
}

impl Report {
    /// Returns the fields that identify the run: `system`, `version`, `bench` and the parameters.
    pub fn head(&self) -> Map<String, Value> {
        let who = [
            ("system", json!("ardea")),
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("bench", json!(self.bench)),
        ];
        named(who.iter().chain(&self.parameters))
    }

    /// Returns all fields as one flat object.
    pub fn to_json(&self) -> Value {
        let mut fields = self.head();
        fields.extend(named(&self.figures));
        Value::Object(fields)
    }

    /// Returns the figure of this name; `null` if there is none.
    pub fn figure(&self, name: &str) -> &Value {
        self.figures
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(&Value::Null, |(_, value)| value)
    }
}

/// A value that a report shows.
pub(crate) trait FieldValue {
    fn to_json(&self) -> Value;
}

macro_rules! shown {
    ($($name:ty),*) => {
        $(impl FieldValue for $name {
            fn to_json(&self) -> Value {
                json!(self)
            }
        })*
    };
}

shown!(bool, u32, u64, usize, f64, &str, String);

impl FieldValue for Duration {
    fn to_json(&self) -> Value {
        json!(format_duration(*self))
    }
}

impl FieldValue for Guarantee {
    fn to_json(&self) -> Value {
        json!(self.as_str())
    }
}

impl FieldValue for PathBuf {
    fn to_json(&self) -> Value {
        json!(self.display().to_string())
    }
}

impl<T: FieldValue> FieldValue for Option<T> {
    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, FieldValue::to_json)
    }
}

impl FieldValue for &PathBuf {
    fn to_json(&self) -> Value {
        (*self).to_json()
    }
}

/// Returns fields of `$params` under their names. `name = value` is a field with another value.
macro_rules! fields {
    (@value $params:expr, $name:ident) => {
        $crate::report::FieldValue::to_json(&$params.$name)
    };
    (@value $params:expr, $name:ident, $value:expr) => {
        $crate::report::FieldValue::to_json(&$value)
    };
    ($params:expr; $($name:ident $(= $value:expr)?),* $(,)?) => {
        vec![$((
            stringify!($name),
            $crate::report::fields!(@value $params, $name $(, $value)?),
        )),*]
    };
}
pub(crate) use fields;

fn named<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Map<String, Value> {
    fields
        .into_iter()
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect()
}

/// The unit of reported latencies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Millis,
    Micros,
}

/// Returns the quantiles, the maximum and the number of latencies in a histogram of nanoseconds.
/// Quantiles are `null` if it is empty.
pub(crate) fn latency(nanos: &Histogram<u64>, unit: Unit) -> Vec<Field> {
    let told = |nanos: u64| match unit {
        Unit::Millis => rounded(nanos as f64 / 1e6, 1e4),
        Unit::Micros => rounded(nanos as f64 / 1e3, 1e2),
    };
    let quantile = |q: f64| (!nanos.is_empty()).then(|| told(nanos.value_at_quantile(q)));
    let names = match unit {
        Unit::Millis => [
            "p50_ms", "p90_ms", "p99_ms", "p999_ms", "p9999_ms", "max_ms",
        ],
        Unit::Micros => [
            "p50_us", "p90_us", "p99_us", "p999_us", "p9999_us", "max_us",
        ],
    };
    let quantiles = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];
    names
        .into_iter()
        .zip(quantiles.map(quantile))
        .map(|(name, value)| (name, json!(value)))
        .chain([("latencies", json!(nanos.len()))])
        .collect()
}

/// Returns the number of `events`, their rate, and the number for each CPU second.
pub(crate) fn throughput(events: u64, spent: Spent) -> Vec<Field> {
    let per_cpu = spent.per_cpu_second(events);
    vec![
        ("duration_s", json!(seconds(spent.wall))),
        ("events", json!(events)),
        (
            "achieved_rate",
            json!((events as f64 / spent.wall.as_secs_f64()).round()),
        ),
        ("events_per_cpu_s", json!(per_cpu.map(f64::round))),
    ]
}

/// Returns the resources used and the machine's noise. Memory is the peak since the bench began. So
/// call this when its jobs have ended, and before any baseline runs.
pub(crate) fn machine(spent: Spent, noise: Noise) -> Vec<Field> {
    let rss_mb = peak_resident_mb().map(|mb| rounded(mb, 10.0));
    machine_of(spent, rss_mb, noise)
}

/// Returns the same of other processes, with their peak resident memory.
pub(crate) fn machine_of(spent: Spent, rss_mb: Option<f64>, noise: Noise) -> Vec<Field> {
    vec![
        ("cpu_seconds", json!(seconds(spent.cpu))),
        ("rss_mb", json!(rss_mb)),
        ("noise_p9999_ms", json!(rounded(noise.p9999_ms, 1e4))),
        ("noise_max_ms", json!(rounded(noise.max_ms, 1e4))),
    ]
}

/// Returns seconds, rounded to the millisecond.
pub(crate) fn seconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64(), 1e3)
}

/// Rounds to `1 / steps`.
pub(crate) fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nanoseconds;

    #[test]
    fn a_report_is_one_flat_object_of_what_was_asked_and_what_was_measured() {
        let report = Report {
            bench: "b",
            parameters: vec![("rate", json!(5))],
            figures: vec![("p50_ms", Value::Null)],
        };
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            report.to_json(),
            json!({ "system": "ardea", "version": version, "bench": "b", "rate": 5, "p50_ms": null })
        );
        assert_eq!(report.figure("rate"), &Value::Null);
    }

    #[test]
    fn no_latencies_are_null_and_not_zero() {
        let mut nanos = nanoseconds().unwrap();
        let none = latency(&nanos, Unit::Millis);
        assert!(none[..6].iter().all(|(_, value)| value.is_null()));
        assert_eq!(none[6], ("latencies", json!(0)));
        nanos.record(1_500).unwrap();
        assert_eq!(latency(&nanos, Unit::Micros)[0], ("p50_us", json!(1.5)));
    }
}
