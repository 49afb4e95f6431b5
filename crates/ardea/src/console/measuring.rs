//! Metrics of a job that runs in this process, and the sinks that they go to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, LatencySnapshot, Result};
use ardea_engine::JobHandle;
use ardea_metrics::{
    Batch, InstanceReading, Labels, LatencyReading, MetricsManager, ProcessReading,
};

use super::failure::{Notice, print_notice};
use super::run_settings::RunSettings;

/// The number of the only process, where containers of a cluster have theirs.
const CONTAINER: &str = "0";

/// When the first batch is told at the latest.
const FIRST_AFTER: Duration = Duration::from_secs(1);

/// Time limit of sinks at the end, for the values that they have been given.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The sinks of a job's metrics. They are there before the job runs, so that one that can't be is
/// an error of the run.
pub(super) struct Sinks {
    manager: MetricsManager,
    process: Labels,
    every: Duration,
    is_json: bool,
}

impl Sinks {
    /// Starts the sinks that the settings name; none if they name none.
    ///
    /// # Errors
    /// Whatever keeps one from being made, such as a port that is taken.
    pub(super) fn start(settings: &RunSettings, job: &str, is_json: bool) -> Result<Option<Self>> {
        if settings.metrics.sinks.trim().is_empty() {
            return Ok(None);
        }
        let process = Labels::of([("job", job), ("container", CONTAINER)]);
        Ok(Some(Sinks {
            manager: MetricsManager::start(&settings.metrics.sinks, &process, &settings.sinks)?,
            process,
            every: settings.metrics.every,
            is_json,
        }))
    }

    /// Tells the sinks what a job has counted, until this is dropped. `present` returns its present
    /// attempt, and how often it was restarted.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses the thread.
    pub(super) fn tell(
        self,
        clock: Clock,
        present: impl Fn() -> Option<(JobHandle, u64)> + Send + 'static,
    ) -> Result<Measuring> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new()
            .name("ardea-metrics".into())
            .spawn(move || measure(self, &clock, &present, &stopped));
        let thread = thread.map_err(|error| {
            Error::new(ErrorCode::LimitReached, "no thread to gather metrics")
                .because(error)
                .hint("raise the limit of threads (ulimit -u)")
        })?;
        Ok(Measuring {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// While this lives, metrics are gathered. Dropping it tells them a last time.
pub(super) struct Measuring {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // If it has panicked, that was printed.
            let _ = thread.join();
        }
    }
}

fn measure(
    sinks: Sinks,
    clock: &Clock,
    present: &dyn Fn() -> Option<(JobHandle, u64)>,
    stopped: &Receiver<()>,
) {
    let started = clock.wall();
    let mut latencies = BTreeMap::new();
    let mut wait = sinks.every.min(FIRST_AFTER);
    loop {
        let is_over = stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected);
        wait = sinks.every;
        let batch = Batch::new(sinks.process.clone(), started, clock.wall());
        let mut batch = batch.every(sinks.every);
        if let Some((job, restarts)) = present() {
            read(&job, restarts, &mut latencies, &mut batch);
        }
        // If the system doesn't tell it, the rest is told all the same.
        if let Ok(process) = ProcessReading::read() {
            process.write(&mut batch);
        }
        sinks.manager.write(&mut batch);
        sinks.manager.tell(&Arc::new(batch));
        for trouble in sinks.manager.new_troubles() {
            print_notice(Notice::Warning, &trouble.to_string(), sinks.is_json);
        }
        if is_over {
            break;
        }
    }
    // One that is stuck ends with the process.
    let _ = sinks.manager.close(CLOSE_TIMEOUT);
}

type LatenciesBefore = BTreeMap<(Arc<str>, u32), LatencySnapshot>;

fn read(job: &JobHandle, restarts: u64, before: &mut LatenciesBefore, batch: &mut Batch) {
    for report in job.metrics() {
        let of = (Arc::clone(&report.vertex), report.instance);
        InstanceReading {
            restarts,
            latency: (report.latency.count() > 0).then(|| {
                let all = report.latency;
                let earlier = before.insert(of.clone(), all.clone()).unwrap_or_default();
                // An attempt counts anew.
                let is_newer = all.count() >= earlier.count();
                let recent = all.since(&if is_newer {
                    earlier
                } else {
                    LatencySnapshot::default()
                });
                LatencyReading { all, recent }
            }),
            ..InstanceReading::new(&*of.0, of.1, report.metrics)
        }
        .write(batch);
    }
}
