//! What instances and links have counted, as samples.

use ardea_core::{LatencySnapshot, MessageCounts, MetricsSnapshot, Timestamp};

use crate::catalogue::{self as m, Metric};
use crate::{Batch, Buckets, Labels, Value};

/// What one instance has counted.
#[derive(Clone, Debug)]
pub struct InstanceReading {
    /// The vertex's name.
    pub vertex: String,
    /// Which instance.
    pub instance: u32,
    /// Its counters; with [`snapshot_at`](ardea_core::InstanceMetrics::snapshot_at) also times at rest.
    pub counters: MetricsSnapshot,
    /// Times it was started again within its process.
    pub restarts: u64,
    /// Errors and panics, by code: `("ARD-201", 3)`.
    pub exceptions: Vec<(String, u64)>,
    /// The number of its process, if it has one of its own; 0 while that is not there.
    pub process: Option<u32>,
    /// Bytes that came from other containers.
    pub received_bytes: u64,
    /// What became of its messages, if it is a source that counts them.
    pub messages: Option<MessageReading>,
    /// Of marks of latency, if one has come.
    pub latency: Option<LatencyReading>,
}

/// How long marks of latency took from the sources to an instance.
#[derive(Clone, Debug, Default)]
pub struct LatencyReading {
    /// Since its process began.
    pub all: LatencySnapshot,
    /// Since the batch before.
    pub recent: LatencySnapshot,
}

impl LatencyReading {
    fn write(&self, labels: &Labels, batch: &mut Batch) {
        let all = Value::Histogram(Buckets::of_snapshot(&self.all));
        batch.push(m::LATENCY.name, labels, all);
        write_quantiles(&m::LATENCY_QUANTILE, &self.recent, labels, batch);
    }
}

fn write_quantiles(metric: &Metric, of: &LatencySnapshot, labels: &Labels, batch: &mut Batch) {
    for (name, share) in [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999), ("1", 1.0)] {
        if let Some(latency) = of.quantile(share) {
            let labels = labels.with("quantile", name);
            let value = Value::Gauge(latency.as_secs_f64());
            batch.push(metric.name, &labels, value);
        }
    }
}

/// What became of a source's messages.
#[derive(Clone, Debug, Default)]
pub struct MessageReading {
    /// Since its process began.
    pub counts: MessageCounts,
    /// Complete latencies since the batch before.
    pub recent: LatencySnapshot,
}

impl MessageReading {
    fn write(&self, labels: &Labels, batch: &mut Batch) {
        let counts = &self.counts;
        for (metric, count) in [
            (m::MESSAGES_EMITTED, counts.emitted),
            (m::MESSAGES_ACKED, counts.acked),
        ] {
            batch.push(metric.name, labels, Value::Counter(count as f64));
        }
        for (reason, count) in [
            ("bolt", counts.failed),
            ("timeout", counts.timed_out),
            ("lost", counts.lost),
        ] {
            let labels = labels.with("reason", reason);
            let value = Value::Counter(count as f64);
            batch.push(m::MESSAGES_FAILED.name, &labels, value);
        }
        let pending = Value::Gauge(counts.pending as f64);
        batch.push(m::MESSAGES_PENDING.name, labels, pending);
        let complete = Value::Histogram(Buckets::of_snapshot(&counts.complete));
        batch.push(m::COMPLETE_LATENCY.name, labels, complete);
        write_quantiles(&m::COMPLETE_QUANTILE, &self.recent, labels, batch);
    }
}

/// What the instances of a vertex in one container have sent to those of another elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EdgeReading {
    /// The vertex that sends.
    pub vertex: String,
    /// The vertex that reads.
    pub to: String,
    /// Bytes that were sent.
    pub sent_bytes: u64,
}

impl EdgeReading {
    /// Adds what was read to the batch of its process.
    pub fn write(&self, batch: &mut Batch) {
        let labels = Labels::of([("vertex", &*self.vertex), ("to", &*self.to)]);
        let value = Value::Counter(self.sent_bytes as f64);
        batch.push(m::SENT_BYTES.name, &labels, value);
    }
}

impl InstanceReading {
    /// Counters alone: no restarts, no exceptions.
    pub fn new(vertex: impl Into<String>, instance: u32, counters: MetricsSnapshot) -> Self {
        InstanceReading {
            vertex: vertex.into(),
            instance,
            counters,
            restarts: 0,
            exceptions: Vec::new(),
            process: None,
            received_bytes: 0,
            messages: None,
            latency: None,
        }
    }

    /// Adds what was read to the batch of its process.
    pub fn write(&self, batch: &mut Batch) {
        let instance = self.instance.to_string();
        let labels = Labels::of([("vertex", &*self.vertex), ("instance", &*instance)]);
        let now = batch.at;
        let mut tell = |metric: &Metric, number: f64| {
            let value = match metric.kind {
                m::Kind::Counter => Value::Counter(number),
                _ => Value::Gauge(number),
            };
            batch.push(metric.name, &labels, value);
        };
        let counters = &self.counters;
        tell(&m::RECORDS_IN, counters.records_in as f64);
        tell(&m::RECORDS_OUT, counters.records_out as f64);
        if let Some(process) = self.process {
            tell(&m::INSTANCE_PROCESS, f64::from(process));
        }
        tell(&m::LATE, counters.late as f64);
        tell(&m::LATE_IN_PART, counters.late_in_part as f64);
        tell(&m::BAD, counters.bad as f64);
        tell(&m::BUSY, counters.busy.as_secs_f64());
        tell(&m::BUSY_CPU, counters.busy_cpu.as_secs_f64());
        tell(&m::CHAIN, counters.chain.as_secs_f64());
        tell(&m::BLOCKED, counters.blocked_for.as_secs_f64());
        tell(&m::IDLE, counters.idle_for.as_secs_f64());
        tell(&m::BLOCKED_SLICES, counters.blocked as f64);
        tell(&m::LONGEST_SLICE, counters.longest_slice.as_secs_f64());
        tell(&m::QUEUE_FILL, f64::from(counters.queue_permille) / 1_000.0);
        tell(&m::EPOCHS, counters.epochs as f64);
        if counters.cuts_taken > 0 {
            tell(&m::CUTS, counters.cuts as f64);
            tell(&m::CUT_ENTRIES, counters.cut_entries as f64);
            tell(&m::CUT_BYTES, counters.cut_bytes as f64);
            tell(&m::CUT_SECONDS, counters.cuts_took.as_secs_f64());
            tell(&m::CUT_BUSY, counters.cuts_busy.as_secs_f64());
            tell(&m::ALIGNED, counters.aligned_for.as_secs_f64());
        }
        if counters.state_keys + counters.state_disk_keys > 0 {
            tell(&m::STATE_KEYS, counters.state_keys as f64);
            tell(&m::STATE_BYTES, counters.state_bytes as f64);
            tell(&m::STATE_DISK_KEYS, counters.state_disk_keys as f64);
            tell(&m::STATE_DISK_BYTES, counters.state_disk_bytes as f64);
        }
        tell(&m::RESTARTS, self.restarts as f64);
        tell(&m::RECEIVED_BYTES, self.received_bytes as f64);
        if counters.watermark.is_event_time() {
            tell(&m::WATERMARK, seconds(counters.watermark));
            tell(
                &m::WATERMARK_LAG,
                now.since(counters.watermark).as_secs_f64(),
            );
        }
        for (code, count) in &self.exceptions {
            let labels = labels.with("code", code);
            batch.push(m::EXCEPTIONS.name, &labels, Value::Counter(*count as f64));
        }
        if let Some(messages) = &self.messages {
            messages.write(&labels, batch);
        }
        if let Some(latency) = &self.latency {
            latency.write(&labels, batch);
        }
    }
}

/// What one connection to another container has counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkReading {
    /// The container at the other end.
    pub peer: String,
    /// Frames that came in.
    pub frames_in: u64,
    /// Bytes of these.
    pub bytes_in: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// Records that came for streams which nobody has open.
    pub stray_records: u64,
}

impl LinkReading {
    /// Adds what was read to the batch of its process.
    pub fn write(&self, batch: &mut Batch) {
        let labels = Labels::of([("peer", &self.peer)]);
        for (metric, count) in [
            (m::LINK_BYTES_IN, self.bytes_in),
            (m::LINK_BYTES_OUT, self.bytes_out),
            (m::LINK_FRAMES_IN, self.frames_in),
            (m::LINK_STRAY_RECORDS, self.stray_records),
        ] {
            batch.push(metric.name, &labels, Value::Counter(count as f64));
        }
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(time: Timestamp) -> f64 {
    time.as_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Latencies;
    use std::collections::BTreeSet;
    use std::time::Duration;

    fn names(batch: &Batch) -> BTreeSet<&str> {
        batch.samples.iter().map(|s| s.name.as_str()).collect()
    }

    #[test]
    fn an_instance_tells_all_of_its_metrics_once_with_the_kinds_of_the_catalogue() {
        let now = Timestamp::from_secs(100);
        let mut batch = Batch::new(Labels::none(), now, now);
        let counters = MetricsSnapshot {
            watermark: Timestamp::from_secs(70),
            cuts_taken: 1,
            state_keys: 1,
            ..MetricsSnapshot::default()
        };
        let latencies = Latencies::default();
        latencies.count(Duration::from_millis(3));
        let messages = MessageReading {
            counts: MessageCounts {
                complete: latencies.snapshot(),
                ..MessageCounts::default()
            },
            recent: latencies.snapshot(),
        };
        InstanceReading {
            process: Some(4711),
            exceptions: vec![("ARD-201".to_string(), 3)],
            messages: Some(messages),
            latency: Some(LatencyReading {
                all: latencies.snapshot(),
                recent: latencies.snapshot(),
            }),
            ..InstanceReading::new("words", 7, counters)
        }
        .write(&mut batch);
        let once = |sample: &&crate::Sample| {
            let extra = ["reason", "quantile"];
            extra.iter().all(|label| sample.labels.get(label).is_none())
        };
        let plain = batch.samples.iter().filter(once).count();
        // Failed messages are told by reason, latencies by quantile as well.
        assert_eq!(names(&batch).len(), plain + 3);
        let of_instances = m::ALL
            .iter()
            .filter(|metric| metric.labels.contains(&"instance"));
        assert_eq!(
            names(&batch),
            of_instances.map(|metric| metric.name).collect()
        );
        for sample in &batch.samples {
            let metric = m::find(sample.name.as_str()).expect("it is in the catalogue");
            assert_eq!(metric.kind.as_str(), sample.value.kind());
        }
        let lag = batch
            .samples
            .iter()
            .find(|s| s.name.as_str() == m::WATERMARK_LAG.name);
        assert_eq!(lag.map(|sample| &sample.value), Some(&Value::Gauge(30.0)));
    }

    #[test]
    fn a_job_without_a_guarantee_tells_nothing_of_cuts() {
        let now = Timestamp::from_secs(100);
        let mut batch = Batch::new(Labels::none(), now, now);
        InstanceReading::new("words", 7, MetricsSnapshot::default()).write(&mut batch);
        let of_cuts = |name: &&str| name.contains("cut") || name.contains("aligned");
        assert_eq!(names(&batch).into_iter().find(of_cuts), None);
    }

    #[test]
    fn a_watermark_that_is_no_time_is_not_told() {
        for watermark in [Timestamp::MIN, Timestamp::MAX] {
            let now = Timestamp::from_secs(100);
            let mut batch = Batch::new(Labels::none(), now, now);
            let counters = MetricsSnapshot {
                watermark,
                ..MetricsSnapshot::default()
            };
            InstanceReading::new("words", 7, counters).write(&mut batch);
            assert!(!names(&batch).contains(m::WATERMARK_LAG.name));
        }
    }
}
