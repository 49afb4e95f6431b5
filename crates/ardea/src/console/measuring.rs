//! The metrics of a job that runs in this process, and their sinks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ardea_core::{Clock, Dag, DeadLetters, Error, ErrorCode, LatencySnapshot, Result};
use ardea_engine::JobHandle;
use ardea_metrics::{
    Batch, InstanceCounters, Labels, LatencyCounters, MetricsManager, PauseMeter, ProcessReading,
};

use super::Supervisor;
use super::failure::{MessageKind, print_notice};
#[cfg(feature = "cluster")]
use super::page::Page;
use super::run_settings::RunSettings;

/// The container label of a run outside a cluster.
const CONTAINER: &str = "0";

/// The longest delay before the first batch of metrics.
const FIRST_AFTER: Duration = Duration::from_secs(1);

/// The time limit for sinks to write their last values.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The sinks of a job's metrics, and its web page. They are created before the job runs, so that a
/// failure is an error of the run.
pub(super) struct Sinks {
    manager: MetricsManager,
    #[cfg(feature = "cluster")]
    page: Option<Page>,
    process: Labels,
    every: Duration,
    is_json: bool,
}

impl Sinks {
    /// Starts the configured sinks and the page of the job with the graph `dag` and the dead
    /// letters; returns `None` if there are none.
    ///
    /// # Errors
    /// Errors that prevent creating a sink, such as a port in use.
    pub(super) fn start(
        settings: &RunSettings,
        job: &str,
        dag: &Dag,
        dead_letters: &Arc<DeadLetters>,
        with: &Supervisor,
    ) -> Result<Option<Self>> {
        #[cfg(feature = "cluster")]
        let page = settings.page.map(|page| {
            let graph = (dag, settings.node.threads);
            Page::start(page, job, graph, Arc::clone(dead_letters), with)
        });
        #[cfg(feature = "cluster")]
        let (page, has_page) = (page.transpose()?, settings.page.is_some());
        #[cfg(not(feature = "cluster"))]
        let (has_page, _, _) = (false, dag, dead_letters);
        if settings.metrics.sinks.trim().is_empty() && !has_page {
            return Ok(None);
        }
        let process = Labels::of([("job", job), ("container", CONTAINER)]);
        let manager = MetricsManager::start(&settings.metrics.sinks, &process, &settings.sinks)?;
        #[cfg(feature = "cluster")]
        let manager = with_page(manager, page.as_ref())?;
        Ok(Some(Sinks {
            manager,
            #[cfg(feature = "cluster")]
            page,
            process,
            every: settings.metrics.every,
            is_json: with.json,
        }))
    }

    /// Sends the job's metrics to the sinks until the returned guard is dropped. `present` returns
    /// the current attempt and the number of restarts.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses the thread.
    pub(super) fn start_reporting(
        self,
        clock: Clock,
        present: impl Fn() -> Option<(JobHandle, u64)> + Send + 'static,
    ) -> Result<MetricsReporting> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new()
            .name("ardea-metrics".into())
            .spawn(move || measure(self, &clock, &present, &stopped));
        let thread = thread.map_err(|error| {
            Error::new(ErrorCode::LimitReached, "no thread to gather metrics")
                .because(error)
                .hint("raise the limit of threads (ulimit -u)")
        })?;
        Ok(MetricsReporting {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// Adds the page to the sinks.
#[cfg(feature = "cluster")]
fn with_page(mut manager: MetricsManager, page: Option<&Page>) -> Result<MetricsManager> {
    if let Some(page) = page {
        manager.add(page.sink())?;
    }
    Ok(manager)
}

/// A guard: metrics are sent while it lives, and a last time when it is dropped.
pub(super) struct MetricsReporting {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for MetricsReporting {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic has already been printed.
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
    let mut pauses = PauseMeter::default();
    let mut wait = sinks.every.min(FIRST_AFTER);
    loop {
        let asleep = Instant::now();
        let is_over = stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected);
        pauses.slept(wait, asleep.elapsed());
        wait = sinks.every;
        let batch = Batch::new(sinks.process.clone(), started, clock.wall());
        let mut batch = batch.every(sinks.every);
        if let Some((job, restarts)) = present() {
            read(&job, restarts, &mut latencies, &mut batch);
        }
        // If the process metrics can't be read, the others are sent all the same.
        if let Ok(process) = ProcessReading::read() {
            let process = ProcessReading {
                paused: pauses.total(),
                ..process
            };
            process.write(&mut batch);
        }
        sinks.manager.write(&mut batch);
        sinks.manager.send(&Arc::new(batch));
        for trouble in sinks.manager.new_errors() {
            print_notice(MessageKind::Warning, &trouble.to_string(), sinks.is_json);
        }
        if is_over {
            break;
        }
    }
    // A sink that is stuck ends with the process.
    let _ = sinks.manager.close(CLOSE_TIMEOUT);
    #[cfg(feature = "cluster")]
    drop(sinks.page);
}

type LatenciesBefore = BTreeMap<(Arc<str>, u32), LatencySnapshot>;

fn read(job: &JobHandle, restarts: u64, before: &mut LatenciesBefore, batch: &mut Batch) {
    for report in job.metrics() {
        let of = (Arc::clone(&report.vertex), report.instance);
        InstanceCounters {
            restarts,
            latency: (report.latency.count() > 0).then(|| {
                let all = report.latency;
                let earlier = before.insert(of.clone(), all.clone()).unwrap_or_default();
                // Each attempt counts from zero.
                let is_newer = all.count() >= earlier.count();
                let recent = all.since(&if is_newer {
                    earlier
                } else {
                    LatencySnapshot::default()
                });
                LatencyCounters { all, recent }
            }),
            ..InstanceCounters::new(&*of.0, of.1, report.metrics)
        }
        .write(batch);
    }
}
