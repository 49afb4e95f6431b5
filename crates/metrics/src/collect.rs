//! The conversion of the counters of instances and connections to samples.

use ardea_core::{LatencySnapshot, MessageCounts, MetricsSnapshot, Timestamp};

use crate::catalogue::{self as m, Metric};
use crate::{Batch, Buckets, Labels, Value};

/// The counters of one instance.
#[derive(Clone, Debug)]
pub struct InstanceCounters {
    /// The vertex's name.
    pub vertex: String,
    /// The instance number.
    pub instance: u32,
    /// The instance's counters. A snapshot by
    /// [`snapshot_at`](ardea_core::InstanceMetrics::snapshot_at) includes idle times.
    pub counters: MetricsSnapshot,
    /// The number of restarts of the instance since the start of its process.
    pub restarts: u64,
    /// The numbers of errors and panics by error code: `("ARD-201", 3)`.
    pub exceptions: Vec<(String, u64)>,
    /// The number of bytes received from other containers.
    pub received_bytes: u64,
    /// The message counts of the instance, if it is a source with acks.
    pub messages: Option<MessageCounters>,
    /// The latencies of the instance, if it has received a latency marker.
    pub latency: Option<LatencyCounters>,
}

/// The latencies from the sources to an instance, as measured by latency markers.
#[derive(Clone, Debug, Default)]
pub struct LatencyCounters {
    /// The values since the start of the process.
    pub all: LatencySnapshot,
    /// The values since the previous batch.
    pub recent: LatencySnapshot,
}

impl LatencyCounters {
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

/// The message counts of a source.
#[derive(Clone, Debug, Default)]
pub struct MessageCounters {
    /// The values since the start of the process.
    pub counts: MessageCounts,
    /// The complete latencies since the previous batch.
    pub recent: LatencySnapshot,
}

impl MessageCounters {
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

/// The traffic from the instances of a vertex in one container to the instances of another vertex
/// in other containers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EdgeCounters {
    /// The sending vertex.
    pub vertex: String,
    /// The receiving vertex.
    pub to: String,
    /// The number of bytes sent.
    pub sent_bytes: u64,
}

impl EdgeCounters {
    /// Adds the values to the batch of the process.
    pub fn write(&self, batch: &mut Batch) {
        let labels = Labels::of([("vertex", &*self.vertex), ("to", &*self.to)]);
        let value = Value::Counter(self.sent_bytes as f64);
        batch.push(m::SENT_BYTES.name, &labels, value);
    }
}

/// The records from the instances of a vertex in one container to the instances of another vertex.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VertexPairCounters {
    /// The sending vertex.
    pub vertex: String,
    /// The receiving vertex.
    pub to: String,
    /// The number of records sent.
    pub records: u64,
}

impl VertexPairCounters {
    /// Adds the values to the batch of the process.
    pub fn write(&self, batch: &mut Batch) {
        let labels = Labels::of([("vertex", &*self.vertex), ("to", &*self.to)]);
        let value = Value::Counter(self.records as f64);
        batch.push(m::VERTEX_PAIR_RECORDS.name, &labels, value);
    }
}

/// The records from one instance to another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PairCounters {
    /// The sending vertex.
    pub vertex: String,
    /// The sending instance.
    pub instance: u32,
    /// The receiving vertex.
    pub to: String,
    /// The receiving instance.
    pub to_instance: u32,
    /// The number of records sent.
    pub records: u64,
}

impl PairCounters {
    /// Adds the values to the batch of the process.
    pub fn write(&self, batch: &mut Batch) {
        let (instance, to_instance) = (self.instance.to_string(), self.to_instance.to_string());
        let labels = Labels::of([
            ("vertex", &*self.vertex),
            ("instance", &*instance),
            ("to", &*self.to),
            ("to_instance", &*to_instance),
        ]);
        let value = Value::Counter(self.records as f64);
        batch.push(m::PAIR_RECORDS.name, &labels, value);
    }
}

impl InstanceCounters {
    /// Creates the counters of an instance from a snapshot, without restarts and exceptions.
    pub fn new(vertex: impl Into<String>, instance: u32, counters: MetricsSnapshot) -> Self {
        InstanceCounters {
            vertex: vertex.into(),
            instance,
            counters,
            restarts: 0,
            exceptions: Vec::new(),
            received_bytes: 0,
            messages: None,
            latency: None,
        }
    }

    /// Adds the values to the batch of the process.
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
        if let Some(child) = &counters.child {
            tell(&m::INSTANCE_PROCESS, f64::from(child.id));
            tell(&m::INSTANCE_PROCESS_RESTARTS, child.restarts as f64);
            tell(&m::INSTANCE_PROCESS_CPU, child.cpu.as_secs_f64());
            tell(&m::INSTANCE_PROCESS_RESIDENT, child.resident_bytes as f64);
            tell(&m::INSTANCE_PROCESS_OMITTED, child.omitted_lines as f64);
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
        if counters.batches > 0 {
            tell(&m::MICRO_BATCHES, counters.batches as f64);
            tell(&m::MICRO_BATCH_WAIT, counters.batches_waited.as_secs_f64());
        }
        if counters.snapshots_taken > 0 {
            tell(&m::CUTS, counters.snapshots as f64);
            tell(&m::SNAPSHOT_ENTRIES, counters.snapshot_entries as f64);
            tell(&m::SNAPSHOT_BYTES, counters.snapshot_bytes as f64);
            tell(&m::SNAPSHOT_SECONDS, counters.snapshots_took.as_secs_f64());
            tell(&m::SNAPSHOT_BUSY, counters.snapshots_busy.as_secs_f64());
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

/// The counters of one connection to another container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// The container at the other end.
    pub peer: String,
    /// The kind of the connection: `shm`, `uds`, `tcp`, or the name of a custom transport.
    pub transport: String,
    /// True while there is a connection.
    pub is_connected: bool,
    /// The number of frames received.
    pub frames_in: u64,
    /// The number of bytes received.
    pub bytes_in: u64,
    /// The number of bytes sent.
    pub bytes_out: u64,
    /// The number of records received for streams that are not open.
    pub stray_records: u64,
    /// The rings of a connection over shared memory.
    pub ring: Option<RingCounters>,
}

/// The counters of the rings of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingCounters {
    /// The size of the ring of received frames, in bytes.
    pub capacity_bytes: u64,
    /// The number of bytes in that ring that were not received yet.
    pub fill_bytes: u64,
    /// The number of messages received.
    pub messages: u64,
    /// The number of slots without a message, because their producer gave them up.
    pub abandoned: u64,
    /// The number of times that the network thread slept while the ring was empty.
    pub sleeps: u64,
    /// The number of times that the network thread waited for room in the peer's ring.
    pub full: u64,
}

impl LinkCounters {
    /// Adds the values to the batch of the process.
    pub fn write(&self, batch: &mut Batch) {
        let labels = Labels::of([("peer", &self.peer), ("transport", &self.transport)]);
        for (metric, count) in [
            (m::LINK_BYTES_IN, self.bytes_in),
            (m::LINK_BYTES_OUT, self.bytes_out),
            (m::LINK_FRAMES_IN, self.frames_in),
            (m::LINK_STRAY_RECORDS, self.stray_records),
        ] {
            batch.push(metric.name, &labels, Value::Counter(count as f64));
        }
        let connected = Value::Gauge(f64::from(u8::from(self.is_connected)));
        batch.push(m::LINK_CONNECTED.name, &labels, connected);
        let Some(ring) = &self.ring else {
            return;
        };
        for (metric, bytes) in [
            (m::RING_CAPACITY, ring.capacity_bytes),
            (m::RING_FILL, ring.fill_bytes),
        ] {
            batch.push(metric.name, &labels, Value::Gauge(bytes as f64));
        }
        for (metric, count) in [
            (m::RING_MESSAGES, ring.messages),
            (m::RING_ABANDONED, ring.abandoned),
            (m::RING_SLEEPS, ring.sleeps),
            (m::RING_FULL, ring.full),
        ] {
            batch.push(metric.name, &labels, Value::Counter(count as f64));
        }
    }
}

/// Returns the seconds since 1970.
pub(crate) fn seconds(time: Timestamp) -> f64 {
    time.as_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::LatencyHistogram;
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
            batches: 1,
            watermark: Timestamp::from_secs(70),
            snapshots_taken: 1,
            state_keys: 1,
            child: Some(ardea_core::ChildProcessSnapshot::default()),
            ..MetricsSnapshot::default()
        };
        let latencies = LatencyHistogram::default();
        latencies.count(Duration::from_millis(3));
        let messages = MessageCounters {
            counts: MessageCounts {
                complete: latencies.snapshot(),
                ..MessageCounts::default()
            },
            recent: latencies.snapshot(),
        };
        InstanceCounters {
            exceptions: vec![("ARD-201".to_string(), 3)],
            messages: Some(messages),
            latency: Some(LatencyCounters {
                all: latencies.snapshot(),
                recent: latencies.snapshot(),
            }),
            ..InstanceCounters::new("words", 7, counters)
        }
        .write(&mut batch);
        let once = |sample: &&crate::Sample| {
            let extra = ["reason", "quantile"];
            extra.iter().all(|label| sample.labels.get(label).is_none())
        };
        let plain = batch.samples.iter().filter(once).count();
        // Failed messages are reported by reason, latencies also by quantile.
        assert_eq!(names(&batch).len(), plain + 3);
        // The worker writes the records of pairs of instances, from the counters of queues.
        let of_instances = m::ALL.iter().filter(|metric| {
            metric.labels.contains(&"instance") && metric.name != m::PAIR_RECORDS.name
        });
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
    fn a_job_without_a_guarantee_tells_nothing_of_snapshots() {
        let now = Timestamp::from_secs(100);
        let mut batch = Batch::new(Labels::none(), now, now);
        InstanceCounters::new("words", 7, MetricsSnapshot::default()).write(&mut batch);
        let of_snapshots = |name: &&str| name.contains("snapshot") || name.contains("aligned");
        assert_eq!(names(&batch).into_iter().find(of_snapshots), None);
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
            InstanceCounters::new("words", 7, counters).write(&mut batch);
            assert!(!names(&batch).contains(m::WATERMARK_LAG.name));
        }
    }
}
