//! What this worker counts, read once in a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{Clock, LatencySnapshot, MessageCounts, Result, Timestamp};
use ardea_metrics::{
    Batch, EdgeReading, InstanceReading, Labels, LatencyReading, LinkReading, MessageReading,
    MetricsManager, ProcessReading, Value, catalogue,
};

use crate::deployer::{Deployer, View};
use crate::failures::Failures;
use crate::network::Network;

/// When the first batch is told at the latest.
const FIRST_AFTER: Duration = Duration::from_secs(1);

/// Gathers a batch every so often, and gives it to the process's sinks.
pub(crate) struct Gauges {
    process: Labels,
    clock: Clock,
    started: Timestamp,
    every: Duration,
    due: Instant,
    network: Network,
    failures: Arc<Failures>,
    for_master: ForMaster,
    /// Complete latencies as of the batch before.
    complete: BTreeMap<(Arc<str>, u32), LatencySnapshot>,
    /// Of marks, as of the batch before.
    latency: BTreeMap<(Arc<str>, u32), LatencySnapshot>,
}

impl Gauges {
    pub(crate) fn new(with: &Deployer<'_>) -> Self {
        let clock = with.node.clock().clone();
        Gauges {
            process: with.process.clone(),
            started: clock.wall(),
            clock,
            every: with.metrics_every,
            // However seldom it is told, what a process does is known soon.
            due: Instant::now() + with.metrics_every.min(FIRST_AFTER),
            network: with.network.clone(),
            failures: Arc::clone(&with.failures),
            for_master: ForMaster::default(),
            complete: BTreeMap::new(),
            latency: BTreeMap::new(),
        }
    }

    /// How long it is until the next batch is due.
    pub(crate) fn due_in(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// The next batch is due now.
    pub(crate) fn be_due(&mut self) {
        self.due = Instant::now();
    }

    /// A batch, if one is due: its bytes, for the job's master; the first time that it can't be told it, why.
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
        metrics.tell(&batch);
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
        let processes = view.processes().into_iter();
        let mut processes: BTreeMap<(Arc<str>, u32), u32> = processes
            .map(|(id, process)| ((id.vertex.as_str().into(), id.index), process.unwrap_or(0)))
            .collect();
        for report in view.deployment.instances() {
            let of = (report.vertex, report.instance);
            let failures = self.failures.of(&of.0, of.1);
            let exceptions = failures.exceptions.iter();
            InstanceReading {
                restarts: failures.restarts,
                exceptions: exceptions
                    .map(|(code, count)| (code.to_string(), *count))
                    .collect(),
                process: processes.remove(&of),
                received_bytes: received.remove(&of).unwrap_or(0),
                messages: messages.remove(&of).map(|counts| self.since(&of, counts)),
                latency: (report.latency.count() > 0).then(|| {
                    let all = report.latency;
                    let before = self.latency.insert(of.clone(), all.clone());
                    let recent = all.since(&before.unwrap_or_default());
                    LatencyReading { all, recent }
                }),
                ..InstanceReading::new(&*of.0, of.1, report.metrics)
            }
            .write(batch);
        }
        for sent in view.crossings.traffic().sent() {
            let reading = EdgeReading {
                vertex: sent.from.to_string(),
                to: sent.to.to_string(),
                sent_bytes: sent.bytes,
            };
            reading.write(batch);
        }
    }

    /// With what has come since the batch before.
    fn since(&mut self, of: &(Arc<str>, u32), counts: MessageCounts) -> MessageReading {
        let before = self.complete.insert(of.clone(), counts.complete.clone());
        MessageReading {
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
                (catalogue::LOST_LETTERS, view.mail.lost_letters()),
            ] {
                batch.push(metric.name, &none, Value::Counter(count as f64));
            }
        }
        for (site, counts) in self.network.counts() {
            let reading = LinkReading {
                peer: site.0.to_string(),
                frames_in: counts.frames_in,
                bytes_in: counts.bytes_in,
                bytes_out: counts.bytes_out,
                stray_records: counts.stray_records,
            };
            reading.write(&mut batch);
        }
        // Where the system doesn't tell, the rest is told all the same.
        if let Ok(process) = ProcessReading::read() {
            process.write(&mut batch);
        }
        for (stream, counts) in ["stdout", "stderr"].into_iter().zip(ardea_output::counts()) {
            let labels = Labels::of([("stream", stream)]);
            for (metric, bytes) in [
                (catalogue::OUTPUT_BYTES, counts.written_bytes),
                (catalogue::OUTPUT_LEFT_OUT, counts.left_out_bytes),
            ] {
                batch.push(metric.name, &labels, Value::Counter(bytes as f64));
            }
        }
        metrics.write(&mut batch);
        self.for_master.write(&mut batch);
        batch
    }
}

/// Batches on their way to the job's master, which takes none that is too large: it would be so for its memory of an hour as well.
#[derive(Debug, Default)]
struct ForMaster {
    /// How many could not be told.
    dropped: u64,
}

impl ForMaster {
    /// The bytes of a batch; the first time that there can be none, why.
    fn pack(&mut self, batch: &Batch) -> Option<Result<Vec<u8>>> {
        match batch.encode() {
            Ok(bytes) => Some(Ok(bytes)),
            Err(error) => {
                self.dropped += 1;
                (self.dropped == 1).then_some(Err(error))
            }
        }
    }

    /// Tells how many were dropped: other sinks are told at once, the master when batches are smaller again.
    fn write(&self, batch: &mut Batch) {
        if self.dropped > 0 {
            let labels = Labels::of([("sink", "master")]);
            let dropped = Value::Counter(self.dropped as f64);
            batch.push(catalogue::SINK_DROPPED.name, &labels, dropped);
        }
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
        let mut master = ForMaster::default();
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
