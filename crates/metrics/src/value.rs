//! What a metric can be: a counter, a level, a distribution.

use std::sync::Arc;

use ardea_core::LatencySnapshot;

/// Upper bounds for latencies, in seconds: from 100 µs to a minute, about three a decade.
pub const LATENCY_BOUNDS_SECONDS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 30.0, 60.0,
];

/// The value of a sample.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Only grows while its process lives; begins at zero with it.
    Counter(f64),
    /// Goes up and down.
    Gauge(f64),
    /// Observations counted by size: those of several instances can be added up.
    Histogram(Buckets),
    /// Quantiles that the process computed itself: exact, but those of two instances can't be combined.
    Summary(Quantiles),
}

impl Value {
    /// As the text formats call it: `counter`, `gauge`, `histogram`, `summary`.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Counter(_) => "counter",
            Value::Gauge(_) => "gauge",
            Value::Histogram(_) => "histogram",
            Value::Summary(_) => "summary",
        }
    }

    /// The plain numbers that it consists of, as Prometheus names them: a distribution is several. For sinks that know only
    /// counters and gauges.
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

/// One plain number of a value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line<'a> {
    /// What is added to the metric's name: `_bucket`, `_sum`, `_count` or nothing.
    pub suffix: &'static str,
    /// A label of this line alone: `le` of a bucket, `quantile` of a summary.
    pub label: Option<(&'static str, &'a str)>,
    /// The number.
    pub number: f64,
    /// Whether it only grows while its process lives.
    pub is_counter: bool,
}

/// A number as Prometheus reads it.
pub(crate) fn number_text(number: f64) -> String {
    if number == f64::INFINITY {
        "+Inf".to_string()
    } else if number == f64::NEG_INFINITY {
        "-Inf".to_string()
    } else {
        number.to_string()
    }
}

/// Observations counted by size.
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
    /// One more than bounds: the last counts what is above all.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl Buckets {
    /// None observed, with these upper bounds, which belong to their buckets. They are sorted; what is not finite is left out.
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

    /// None observed, with [`LATENCY_BOUNDS_SECONDS`].
    pub fn of_latencies() -> Self {
        Buckets::new(LATENCY_BOUNDS_SECONDS)
    }

    /// What was counted, with [`LATENCY_BOUNDS_SECONDS`]; each time is taken for the longest of its bucket.
    pub fn of_snapshot(latencies: &LatencySnapshot) -> Self {
        let mut buckets = Buckets::of_latencies();
        for (longest, count) in latencies.buckets() {
            buckets.observe_many(longest.as_secs_f64(), count);
        }
        buckets.sum = latencies.sum().as_secs_f64();
        buckets
    }

    /// Counts an observation; one that is no number is left out.
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

    /// How many have been observed.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The sum of what has been observed.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Each bound with how many are not above it; at last infinity.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0u64, |sum, count| {
            *sum = sum.saturating_add(*count);
            Some(*sum)
        }))
    }
}

/// Quantiles that the process computed itself.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantiles {
    /// Rank, from 0 to 1, and value.
    pub values: Vec<(f64, f64)>,
    /// The sum of all observations.
    pub sum: f64,
    /// How many there were.
    pub count: u64,
}
