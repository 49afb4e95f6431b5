//! The periodic metrics of this worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{Clock, LatencySnapshot, MessageCounts, Result, Timestamp};
use ardea_instance::protocol::MetricKind;
use ardea_instance::user_metrics_of;
use ardea_metrics::{
    Batch, EdgeCounters, InstanceCounters, Labels, LatencyCounters, LinkCounters, MessageCounters,
    MetricsManager, PauseMeter, ProcessReading, RingCounters, Value, catalogue,
};
use ardea_network::exchange::RingCounts;

use crate::deployer::{Deployer, View};
use crate::failures::Failures;
use crate::network::Network;
use crate::pair_metrics::PairMetrics;

/// Maximum time until the first metrics batch.
const FIRST_AFTER: Duration = Duration::from_secs(1);

/// The collector of metrics batches. It collects a batch at regular intervals and passes it to the
/// metrics sinks of the process.
pub(crate) struct Gauges {
    process: Labels,
    clock: Clock,
    started: Timestamp,
    every: Duration,
    due: Instant,
    network: Network,
    failures: Arc<Failures>,
    for_master: LeaderBatches,
    /// The complete latencies of each instance as of the previous batch.
    complete: BTreeMap<(Arc<str>, u32), LatencySnapshot>,
    /// The latencies measured by latency markers, for each instance, as of the previous batch.
    latency: BTreeMap<(Arc<str>, u32), LatencySnapshot>,
    pairs: PairMetrics,
    pauses: PauseMeter,
}

impl Gauges {
    pub(crate) fn new(with: &Deployer<'_>) -> Self {
        let clock = with.node.clock().clone();
        Gauges {
            process: with.process.clone(),
            started: clock.wall(),
            clock,
            every: with.metrics_every,
            // With a long interval, the first batch still comes soon.
            due: Instant::now() + with.metrics_every.min(FIRST_AFTER),
            network: with.network.clone(),
            failures: Arc::clone(&with.failures),
            for_master: LeaderBatches::default(),
            complete: BTreeMap::new(),
            latency: BTreeMap::new(),
            pairs: PairMetrics::default(),
            pauses: PauseMeter::default(),
        }
    }

    /// Counts a wait of the calling thread that was to last at most `planned`.
    pub(crate) fn waited(&mut self, planned: Duration, elapsed: Duration) {
        self.pauses.slept(planned, elapsed);
    }

    /// Returns the time until the next batch is due.
    pub(crate) fn due_in(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Makes the next batch due now.
    pub(crate) fn be_due(&mut self) {
        self.due = Instant::now();
    }

    /// Collects a batch if one is due. Returns the encoded batch for the leader. Returns an error
    /// for the first batch that cannot be encoded.
    pub(crate) fn read_if_due(
        &mut self,
        view: Option<View<'_>>,
        metrics: &MetricsManager,
    ) -> Option<Result<Vec<u8>>> {
        if !self.due_in().is_zero() {
            return None;
        }
        self.due = Instant::now() + self.every;
        let batch = Arc::new(self.read(view, metrics));
        metrics.send(&batch);
        self.for_master.pack(&batch)
    }

    fn read_instances(&mut self, view: &View<'_>, batch: &mut Batch) {
        let mut messages = BTreeMap::<(Arc<str>, u32), MessageCounts>::new();
        for report in view.messages() {
            let of = (report.vertex, report.instance);
            messages.entry(of).or_default().add(&report.counts);
        }
        let came = view.crossings.traffic().received().into_iter();
        let mut received: BTreeMap<(Arc<str>, u32), u64> = came
            .map(|came| ((came.vertex, came.instance), came.bytes))
            .collect();
        for report in view.deployment.instances() {
            let of = (report.vertex, report.instance);
            let failures = self.failures.of(&of.0, of.1);
            let exceptions = failures.exceptions.iter();
            InstanceCounters {
                restarts: failures.restarts,
                exceptions: exceptions
                    .map(|(code, count)| (code.to_string(), *count))
                    .collect(),
                received_bytes: received.remove(&of).unwrap_or(0),
                messages: messages.remove(&of).map(|counts| self.since(&of, counts)),
                latency: (report.latency.count() > 0).then(|| {
                    let all = report.latency;
                    let before = self.latency.insert(of.clone(), all.clone());
                    let recent = all.since(&before.unwrap_or_default());
                    LatencyCounters { all, recent }
                }),
                ..InstanceCounters::new(&*of.0, of.1, report.metrics)
            }
            .write(batch);
            write_user_metrics(&of.0, of.1, batch);
        }
        for sent in view.crossings.traffic().sent() {
            let reading = EdgeCounters {
                vertex: sent.from.to_string(),
                to: sent.to.to_string(),
                sent_bytes: sent.bytes,
            };
            reading.write(batch);
        }
        self.pairs.write(|| view.deployment.pair_traffic(), batch);
    }

    /// Returns the counters of an instance with the latencies since the previous batch.
    fn since(&mut self, of: &(Arc<str>, u32), counts: MessageCounts) -> MessageCounters {
        let before = self.complete.insert(of.clone(), counts.complete.clone());
        MessageCounters {
            recent: counts.complete.since(&before.unwrap_or_default()),
            counts,
        }
    }

    fn read(&mut self, view: Option<View<'_>>, metrics: &MetricsManager) -> Batch {
        let batch = Batch::new(self.process.clone(), self.started, self.clock.wall());
        let mut batch = batch.every(self.every);
        if let Some(view) = view {
            self.read_instances(&view, &mut batch);
            let none = Labels::none();
            for (metric, count) in [
                (
                    catalogue::LOST_RECORDS,
                    view.crossings.lost_records() + view.deployment.misrouted(),
                ),
                (
                    catalogue::LOST_BACKCHANNEL_MESSAGES,
                    view.backchannel.lost_messages(),
                ),
            ] {
                batch.push(metric.name, &none, Value::Counter(count as f64));
            }
            let recovery = view.crossings.recovery();
            let kept = Value::Gauge(recovery.kept_bytes() as f64);
            batch.push(catalogue::KEPT_BYTES.name, &none, kept);
            let reused = Value::Counter(recovery.reused_frames() as f64);
            batch.push(catalogue::REUSED_FRAMES.name, &none, reused);
            let repeated = Value::Counter(recovery.repeated_batches() as f64);
            batch.push(catalogue::REPEATED_BATCHES.name, &none, repeated);
        }
        for ((site, transport), total) in self.network.counts() {
            let counts = total.counts;
            let reading = LinkCounters {
                peer: site.0.to_string(),
                transport: transport.to_string(),
                is_connected: total.is_connected,
                frames_in: counts.frames_in,
                bytes_in: counts.bytes_in,
                bytes_out: counts.bytes_out,
                stray_records: counts.stray_records,
                ring: (counts.ring != RingCounts::default()).then_some(RingCounters {
                    capacity_bytes: counts.ring.capacity_bytes,
                    fill_bytes: counts.ring.fill_bytes,
                    messages: counts.ring.messages,
                    abandoned: counts.ring.abandoned,
                    sleeps: counts.ring.sleeps,
                    full: counts.ring.full,
                }),
            };
            reading.write(&mut batch);
        }
        // On systems without process information the other metrics are still reported.
        if let Ok(process) = ProcessReading::read() {
            let process = ProcessReading {
                paused: self.pauses.total(),
                ..process
            };
            process.write(&mut batch);
        }
        for (stream, counts) in ["stdout", "stderr"].into_iter().zip(ardea_output::counts()) {
            let labels = Labels::of([("stream", stream)]);
            for (metric, bytes) in [
                (catalogue::OUTPUT_BYTES, counts.written_bytes),
                (catalogue::OUTPUT_REMOVED, counts.dropped_bytes),
            ] {
                batch.push(metric.name, &labels, Value::Counter(bytes as f64));
            }
        }
        metrics.write(&mut batch);
        self.for_master.write(&mut batch);
        batch
    }
}

/// The encoder of batches for the leader. It rejects large batches, because the leader retains an
/// hour of metrics.
#[derive(Debug, Default)]
struct LeaderBatches {
    /// The number of rejected batches.
    dropped: u64,
}

impl LeaderBatches {
    /// Encodes a batch. Returns an error for the first rejected batch, and `None` for later ones.
    fn pack(&mut self, batch: &Batch) -> Option<Result<Vec<u8>>> {
        match batch.encode() {
            Ok(bytes) => Some(Ok(bytes)),
            Err(error) => {
                self.dropped += 1;
                (self.dropped == 1).then_some(Err(error))
            }
        }
    }

    /// Adds the number of rejected batches to a batch. Other sinks receive the number at once, the
    /// leader with the next batch that fits.
    fn write(&self, batch: &mut Batch) {
        if self.dropped > 0 {
            let labels = Labels::of([("sink", "master")]);
            let dropped = Value::Counter(self.dropped as f64);
            batch.push(catalogue::SINK_DROPPED.name, &labels, dropped);
        }
    }
}

/// Adds the metrics that user code in the process of an instance has reported.
fn write_user_metrics(vertex: &str, instance: u32, batch: &mut Batch) {
    let metrics = user_metrics_of(vertex, instance);
    if metrics.is_empty() {
        return;
    }
    let instance = instance.to_string();
    let labels = Labels::of([("vertex", vertex), ("instance", &*instance)]);
    for (name, kind, value) in metrics {
        let (name, value) = match kind {
            MetricKind::Counter => (format!("ardea_user_{name}_total"), Value::Counter(value)),
            MetricKind::Gauge => (format!("ardea_user_{name}"), Value::Gauge(value)),
        };
        batch.push(&*name, &labels, value);
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;
    use ardea_metrics::MOST_BATCH_BYTES;

    use super::*;

    #[test]
    fn batches_that_are_too_large_for_the_master_are_told_once_and_counted() {
        let batch = || {
            Batch::new(
                Labels::none(),
                Timestamp::FIRST_EVENT,
                Timestamp::FIRST_EVENT,
            )
        };
        let mut large = batch();
        let text = "x".repeat(100);
        for index in 0..MOST_BATCH_BYTES / 100 {
            let name = format!("{index}{text}");
            let labels = Labels::of([("vertex", &*name)]);
            large.push("ardea_records_in_total", &labels, Value::Counter(1.0));
        }
        let mut master = LeaderBatches::default();
        let mut small = batch();
        master.write(&mut small);
        assert!(small.samples.is_empty());
        let told = master.pack(&large).unwrap().unwrap_err();
        assert_eq!(told.code(), ErrorCode::BrokenBatch);
        assert!(master.pack(&large).is_none());
        master.write(&mut small);
        assert_eq!(small.samples[0].value, Value::Counter(2.0));
        assert!(master.pack(&small).unwrap().is_ok());
    }
}
