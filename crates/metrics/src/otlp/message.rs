//! The messages of OTLP for metrics: the used fields of `opentelemetry.proto.metrics.v1`.

use std::collections::BTreeMap;

use ardea_core::Timestamp;
use prost::Message;

use crate::{Batch, Buckets, Labels, Quantiles, Value, catalogue};

/// The temporality of sums since the start of the process.
const CUMULATIVE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportMetricsServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<MetricMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct MetricMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(message, optional, tag = "5")]
    gauge: Option<GaugePoints>,
    #[prost(message, optional, tag = "7")]
    sum: Option<SumPoints>,
    #[prost(message, optional, tag = "9")]
    histogram: Option<HistogramPoints>,
    #[prost(message, optional, tag = "11")]
    summary: Option<SummaryPoints>,
}

#[derive(Clone, PartialEq, Message)]
struct GaugePoints {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct SumPoints {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramPoints {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
struct SummaryPoints {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<SummaryPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct NumberPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    as_double: Option<f64>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct SummaryPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, tag = "5")]
    sum: f64,
    #[prost(message, repeated, tag = "6")]
    quantile_values: Vec<QuantileValue>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct QuantileValue {
    #[prost(double, tag = "1")]
    quantile: f64,
    #[prost(double, tag = "2")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
}

/// The start and end of the measurement of a point, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Interval {
    start_time_unix_nano: u64,
    time_unix_nano: u64,
}

/// Returns the request with all samples of a batch.
pub(super) fn request(batch: &Batch) -> ExportMetricsServiceRequest {
    let during = Interval {
        start_time_unix_nano: nanos(batch.started),
        time_unix_nano: nanos(batch.at),
    };
    let mut metrics = BTreeMap::<&str, MetricMessage>::new();
    for sample in &batch.samples {
        let name = sample.name.as_str();
        let metric = metrics.entry(name).or_insert_with(|| metric(name));
        add(metric, &sample.labels, &sample.value, during);
    }
    let service = attribute("service.name", "ardea");
    let process = batch.process.iter();
    let process = process.map(|(name, value)| attribute(name, value));
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: std::iter::once(service).chain(process).collect(),
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "ardea".into(),
                    version: env!("CARGO_PKG_VERSION").into(),
                }),
                metrics: metrics.into_values().collect(),
            }],
        }],
    }
}

/// Returns a metric without points.
fn metric(name: &str) -> MetricMessage {
    let plain = name.strip_suffix("_total").unwrap_or(name);
    let unit = match plain.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "1",
    };
    MetricMessage {
        name: name.into(),
        description: catalogue::find(name).map_or("", |it| it.about).into(),
        unit: unit.into(),
        ..MetricMessage::default()
    }
}

/// Adds a value as a point.
fn add(metric: &mut MetricMessage, labels: &Labels, value: &Value, during: Interval) {
    match value {
        Value::Counter(number) => {
            let sum = metric.sum.get_or_insert_with(|| SumPoints {
                data_points: Vec::new(),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            });
            sum.data_points.push(number_point(labels, *number, during));
        }
        Value::Gauge(number) => {
            let gauge = metric.gauge.get_or_insert_default();
            gauge
                .data_points
                .push(number_point(labels, *number, during));
        }
        Value::Histogram(buckets) => {
            let histogram = metric.histogram.get_or_insert_with(|| HistogramPoints {
                data_points: Vec::new(),
                aggregation_temporality: CUMULATIVE,
            });
            let point = histogram_point(labels, buckets, during);
            histogram.data_points.push(point);
        }
        Value::Summary(quantiles) => {
            let summary = metric.summary.get_or_insert_default();
            let point = summary_point(labels, quantiles, during);
            summary.data_points.push(point);
        }
    }
}

fn number_point(labels: &Labels, number: f64, during: Interval) -> NumberPoint {
    NumberPoint {
        start_time_unix_nano: during.start_time_unix_nano,
        time_unix_nano: during.time_unix_nano,
        as_double: Some(number),
        attributes: attributes(labels),
    }
}

fn histogram_point(labels: &Labels, buckets: &Buckets, during: Interval) -> HistogramPoint {
    HistogramPoint {
        start_time_unix_nano: during.start_time_unix_nano,
        time_unix_nano: during.time_unix_nano,
        count: buckets.count(),
        sum: Some(buckets.sum),
        bucket_counts: buckets.counts.clone(),
        explicit_bounds: buckets.bounds.to_vec(),
        attributes: attributes(labels),
    }
}

fn summary_point(labels: &Labels, quantiles: &Quantiles, during: Interval) -> SummaryPoint {
    let values = quantiles.values.iter();
    SummaryPoint {
        start_time_unix_nano: during.start_time_unix_nano,
        time_unix_nano: during.time_unix_nano,
        count: quantiles.count,
        sum: quantiles.sum,
        quantile_values: values
            .map(|&(quantile, value)| QuantileValue { quantile, value })
            .collect(),
        attributes: attributes(labels),
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    let pairs = labels.iter();
    pairs.map(|(name, value)| attribute(name, value)).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue {
            string_value: Some(value.into()),
        }),
    }
}

fn nanos(time: Timestamp) -> u64 {
    u64::try_from(time.as_micros())
        .unwrap_or(0)
        .saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_value_is_a_point_of_its_metric_with_its_labels() {
        let labels = Labels::of([("job", "a"), ("container", "1")]);
        let mut batch = Batch::new(labels, Timestamp::from_secs(1), Timestamp::from_secs(5));
        for instance in ["0", "1"] {
            let of = Labels::of([("vertex", "words"), ("instance", instance)]);
            batch.push(catalogue::RECORDS_OUT.name, &of, Value::Counter(600.0));
            batch.push(catalogue::QUEUE_FILL.name, &of, Value::Gauge(0.5));
            let mut latency = Buckets::new(&[0.1, 1.0]);
            latency.observe(0.5);
            latency.observe(7.0);
            batch.push(catalogue::LATENCY.name, &of, Value::Histogram(latency));
        }
        let bytes = request(&batch).encode_to_vec();
        let read = ExportMetricsServiceRequest::decode(&bytes[..]).unwrap();
        let resource = &read.resource_metrics[0];
        let of_process = &resource.resource.as_ref().unwrap().attributes;
        assert!(of_process.contains(&attribute("service.name", "ardea")));
        assert!(of_process.contains(&attribute("job", "a")));
        let metrics = &resource.scope_metrics[0].metrics;
        let names: Vec<&str> = metrics.iter().map(|it| it.name.as_str()).collect();
        let expected = [
            "ardea_latency_seconds",
            "ardea_queue_fill_ratio",
            "ardea_records_out_total",
        ];
        assert_eq!(names, expected);
        let units: Vec<&str> = metrics.iter().map(|it| it.unit.as_str()).collect();
        assert_eq!(units, ["s", "1", "1"]);
        let latency = &metrics[0].histogram.as_ref().unwrap().data_points;
        assert_eq!(latency.len(), 2);
        assert_eq!(latency[0].bucket_counts, [0, 1, 1]);
        assert_eq!(latency[0].explicit_bounds, [0.1, 1.0]);
        assert_eq!((latency[0].count, latency[0].sum), (2, Some(7.5)));
        let written = metrics[2].sum.as_ref().unwrap();
        assert!(written.is_monotonic && written.aggregation_temporality == CUMULATIVE);
        let point = &written.data_points[1];
        assert_eq!(point.as_double, Some(600.0));
        assert_eq!(point.start_time_unix_nano, 1_000_000_000);
        assert_eq!(point.time_unix_nano, 5_000_000_000);
        assert!(point.attributes.contains(&attribute("instance", "1")));
    }
}
