//! The values of metrics: counters, gauges, distributions.

use std::sync::Arc;

use ardea_core::LatencySnapshot;

/// Upper bounds of latency buckets, in seconds: from 100 µs to a minute, about three per power of
/// ten.
pub const LATENCY_BOUNDS_SECONDS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 30.0, 60.0,
];

/// The value of a sample.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A counter, which starts at zero with its process and only grows.
    Counter(f64),
    /// A gauge, which rises and falls.
    Gauge(f64),
    /// A histogram of observations. The histograms of several instances can be summed.
    Histogram(Buckets),
    /// Quantiles computed by the process. They are exact, but those of two instances can't be
    /// combined.
    Summary(Quantiles),
}

impl Value {
    /// Returns the name of the value's kind in the text formats: `counter`, `gauge`, `histogram`,
    /// `summary`.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Counter(_) => "counter",
            Value::Gauge(_) => "gauge",
            Value::Histogram(_) => "histogram",
            Value::Summary(_) => "summary",
        }
    }

    /// Splits the value into plain numbers, named as in Prometheus; a histogram or summary gives
    /// several. For sinks that support only counters and gauges.
    pub fn lines(&self, mut each: impl FnMut(Line<'_>)) {
        let mut line = |suffix, label: Option<(&'static str, &str)>, number, is_counter| {
            each(Line {
                suffix,
                label,
                number,
                is_counter,
            })
        };
        match self {
            Value::Counter(number) => line("", None, *number, true),
            Value::Gauge(number) => line("", None, *number, false),
            Value::Histogram(buckets) => {
                for (bound, count) in buckets.cumulative() {
                    let bound = number_text(bound);
                    line("_bucket", Some(("le", &bound)), count as f64, true);
                }
                line("_sum", None, buckets.sum, true);
                line("_count", None, buckets.count() as f64, true);
            }
            Value::Summary(quantiles) => {
                for (rank, value) in &quantiles.values {
                    let rank = number_text(*rank);
                    line("", Some(("quantile", &rank)), *value, false);
                }
                line("_sum", None, quantiles.sum, true);
                line("_count", None, quantiles.count as f64, true);
            }
        }
    }
}

/// A line: one plain number of a metric's value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line<'a> {
    /// The suffix of the metric's name: `_bucket`, `_sum`, `_count` or nothing.
    pub suffix: &'static str,
    /// An additional label of this line: `le` for a bucket, `quantile` for a summary.
    pub label: Option<(&'static str, &'a str)>,
    /// The number.
    pub number: f64,
    /// True if the number only grows while its process runs.
    pub is_counter: bool,
}

/// Formats a number for Prometheus.
pub(crate) fn number_text(number: f64) -> String {
    if number == f64::INFINITY {
        "+Inf".to_string()
    } else if number == f64::NEG_INFINITY {
        "-Inf".to_string()
    } else {
        number.to_string()
    }
}

/// A histogram: observations counted by size.
///
/// ```
/// use ardea_metrics::Buckets;
///
/// let mut latency = Buckets::new(&[0.001, 0.01, 0.1]);
/// for seconds in [0.0005, 0.002, 0.003, 7.0] {
///     latency.observe(seconds);
/// }
/// assert_eq!(latency.count(), 4);
/// let cumulative: Vec<_> = latency.cumulative().collect();
/// assert_eq!(cumulative, [(0.001, 1), (0.01, 3), (0.1, 3), (f64::INFINITY, 4)]);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Buckets {
    pub(crate) bounds: Arc<[f64]>,
    /// The number of observations in each bucket. The last bucket counts observations above all
    /// bounds.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl Buckets {
    /// Creates an empty histogram with these inclusive upper bounds. The bounds are sorted first;
    /// non-finite bounds are dropped.
    pub fn new(bounds: &[f64]) -> Self {
        let mut bounds: Vec<f64> = bounds.iter().copied().filter(|b| b.is_finite()).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        Buckets {
            counts: vec![0; bounds.len() + 1],
            bounds: bounds.into(),
            sum: 0.0,
        }
    }

    /// Creates an empty histogram with [`LATENCY_BOUNDS_SECONDS`].
    pub fn of_latencies() -> Self {
        Buckets::new(LATENCY_BOUNDS_SECONDS)
    }

    /// Converts a latency snapshot to a histogram with [`LATENCY_BOUNDS_SECONDS`]. Each latency
    /// counts as the upper bound of its bucket in the snapshot.
    pub fn of_snapshot(latencies: &LatencySnapshot) -> Self {
        let mut buckets = Buckets::of_latencies();
        for (longest, count) in latencies.buckets() {
            buckets.observe_many(longest.as_secs_f64(), count);
        }
        buckets.sum = latencies.sum().as_secs_f64();
        buckets
    }

    /// Counts an observation; NaN is ignored.
    pub fn observe(&mut self, value: f64) {
        self.observe_many(value, 1);
    }

    /// Counts `times` observations of one value.
    pub fn observe_many(&mut self, value: f64, times: u64) {
        if !value.is_nan() {
            let at = self.bounds.partition_point(|bound| *bound < value);
            self.counts[at] = self.counts[at].saturating_add(times);
            self.sum += value * times as f64;
        }
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the sum of all observations.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns each bound with the number of observations up to the bound. The last bound is
    /// infinity.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0u64, |sum, count| {
            *sum = sum.saturating_add(*count);
            Some(*sum)
        }))
    }
}

/// Quantiles of observations, computed by the process.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantiles {
    /// Pairs of a rank, from 0 to 1, and a value.
    pub values: Vec<(f64, f64)>,
    /// The sum of all observations.
    pub sum: f64,
    /// The number of observations.
    pub count: u64,
}
