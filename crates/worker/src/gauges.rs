//! What this worker counts, read once in a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{Clock, Timestamp};
use ardea_metrics::{
    Batch, InstanceReading, Labels, LinkReading, MetricsManager, ProcessReading, Value, catalogue,
};

use crate::deployer::{Deployer, View};
use crate::failures::Failures;
use crate::network::Network;

/// Gathers a batch every so often, and gives it to the process's sinks.
pub(crate) struct Gauges {
    process: Labels,
    clock: Clock,
    started: Timestamp,
    every: Duration,
    due: Instant,
    network: Network,
    failures: Arc<Failures>,
}

impl Gauges {
    pub(crate) fn new(with: &Deployer<'_>) -> Self {
        let clock = with.node.clock().clone();
        Gauges {
            process: with.process.clone(),
            started: clock.wall(),
            clock,
            every: with.metrics_every,
            due: Instant::now() + with.metrics_every,
            network: with.network.clone(),
            failures: Arc::clone(&with.failures),
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

    /// A batch, if one is due: its bytes, for the job's master.
    pub(crate) fn read_if_due(
        &mut self,
        view: Option<View<'_>>,
        metrics: &MetricsManager,
    ) -> Option<Vec<u8>> {
        if !self.due_in().is_zero() {
            return None;
        }
        self.due = Instant::now() + self.every;
        let batch = Arc::new(self.read(view, metrics));
        metrics.tell(&batch);
        // One that is too large for the master is too large for its memory of an hour as well.
        batch.encode().ok()
    }

    fn read(&self, view: Option<View<'_>>, metrics: &MetricsManager) -> Batch {
        let mut batch = Batch::new(self.process.clone(), self.started, self.clock.wall());
        if let Some(view) = view {
            for report in view.deployment.instances() {
                let failures = self.failures.of(&report.vertex, report.instance);
                let exceptions = failures.exceptions.iter();
                InstanceReading {
                    restarts: failures.restarts,
                    exceptions: exceptions
                        .map(|(code, count)| (code.to_string(), *count))
                        .collect(),
                    ..InstanceReading::new(&*report.vertex, report.instance, report.metrics)
                }
                .write(&mut batch);
            }
            let none = Labels::none();
            for (metric, count) in [
                (
                    catalogue::LOST_RECORDS,
                    view.lost_records + view.deployment.misrouted(),
                ),
                (catalogue::LOST_LETTERS, view.lost_letters),
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
        metrics.write(&mut batch);
        batch
    }
}
