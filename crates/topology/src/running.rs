//! A topology that runs: what can be asked of it, and what it tells.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ardea_core::{Latencies, MessageCounts, MessageReport, Result, Waker};
use ardea_engine::JobHandle;
use hdrhistogram::Histogram;

/// The longest complete latency that is told apart from longer ones: an hour.
const LONGEST_NANOS: u64 = 3_600_000_000_000;

/// What a spout instance tells of its messages. Only its own thread writes.
#[derive(Debug, Default)]
pub(crate) struct SpoutCounters {
    pub(crate) emitted: AtomicU64,
    pub(crate) acked: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) pending: AtomicU64,
    latencies: Mutex<Option<Histogram<u64>>>,
    /// The same latencies, less exactly, for whoever asks often.
    complete: Latencies,
}

impl SpoutCounters {
    /// Counts complete latencies, many under one lock. Those of one chunk are often the same, and counted together.
    pub(crate) fn count_latencies(&self, latencies: &[Duration]) {
        let same = || latencies.chunk_by(|one, next| one == next);
        same().for_each(|run| self.complete.count_many(run[0], run.len() as u64));
        let mut histogram = lock(&self.latencies);
        if histogram.is_none() {
            *histogram = Histogram::new_with_bounds(1, LONGEST_NANOS, 3).ok();
        }
        if let Some(histogram) = histogram.as_mut() {
            for run in same() {
                histogram.saturating_record_n(run[0].as_nanos() as u64, run.len() as u64);
            }
        }
    }

    /// All of it at this moment.
    fn counts(&self) -> MessageCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MessageCounts {
            emitted: read(&self.emitted),
            acked: read(&self.acked),
            failed: read(&self.failed),
            timed_out: read(&self.timed_out),
            lost: read(&self.lost),
            pending: read(&self.pending),
            complete: self.complete.snapshot(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The instances of a spout that have lived in this process, and what each tells.
#[derive(Debug)]
pub(crate) struct SpoutInstances {
    name: Arc<str>,
    counters: Mutex<BTreeMap<u32, Arc<SpoutCounters>>>,
}

impl SpoutInstances {
    pub(crate) fn new(name: Arc<str>) -> Self {
        SpoutInstances {
            name,
            counters: Mutex::default(),
        }
    }

    /// The counters of an instance, which go on where an earlier incarnation left them.
    pub(crate) fn counters(&self, instance: u32) -> Arc<SpoutCounters> {
        Arc::clone(lock(&self.counters).entry(instance).or_default())
    }

    /// What each has told so far.
    pub(crate) fn reports(&self) -> Vec<MessageReport> {
        let counters = lock(&self.counters);
        let reports = counters.iter().map(|(instance, counters)| MessageReport {
            vertex: Arc::clone(&self.name),
            instance: *instance,
            counts: counters.counts(),
        });
        reports.collect()
    }
}

/// What a running topology shares with whoever watches it.
#[derive(Debug)]
pub(crate) struct Controls {
    is_active: AtomicBool,
    /// By spout and instance.
    spouts: Mutex<BTreeMap<(usize, u32), Waker>>,
    instances: OnceLock<Vec<Arc<SpoutInstances>>>,
}

impl Controls {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Controls {
            is_active: AtomicBool::new(true),
            spouts: Mutex::default(),
            instances: OnceLock::new(),
        })
    }

    pub(crate) fn with_spouts(self: &Arc<Self>, spouts: Vec<Arc<SpoutInstances>>) -> Arc<Self> {
        // Once a compilation, so it can't be set already.
        let _ = self.instances.set(spouts);
        Arc::clone(self)
    }

    /// Whether spouts are to emit.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Has a spout instance woken when that changes, instead of an earlier incarnation of it.
    pub(crate) fn register(&self, instance: (usize, u32), spout: Waker) {
        lock(&self.spouts).insert(instance, spout);
    }

    fn switch(&self, active: bool) {
        self.is_active.store(active, Ordering::Release);
        lock(&self.spouts).values().for_each(Waker::wake);
    }
}

/// A topology that runs.
///
/// Dropping it does not stop the topology; its node does, when that is dropped.
#[derive(Debug)]
pub struct RunningTopology {
    job: JobHandle,
    controls: Arc<Controls>,
}

/// What became of the messages of one spout, over all its instances.
#[derive(Clone, PartialEq, Debug)]
pub struct SpoutReport {
    /// The spout's name.
    pub spout: String,
    /// Tuples emitted.
    pub emitted: u64,
    /// Messages that were dealt with completely.
    pub acked: u64,
    /// Messages that a bolt failed.
    pub failed: u64,
    /// Messages that were not acked in time.
    pub timed_out: u64,
    /// Messages that failed because they were pending when a process that runs a part of the topology was lost.
    pub lost: u64,
    /// Messages that are neither yet.
    pub pending: u64,
    /// From the emission of a message to the end of all that was made from it; `None` before the first.
    pub complete_latency: Option<CompleteLatency>,
}

/// How long messages took from their emission until all that was made from them had been dealt with. Three significant digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompleteLatency {
    /// The mean.
    pub mean: Duration,
    /// Half of the messages took no longer.
    pub p50: Duration,
    /// 99 in 100 took no longer.
    pub p99: Duration,
    /// 999 in 1000 took no longer.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

impl RunningTopology {
    pub(crate) fn new(job: JobHandle, controls: Arc<Controls>) -> Self {
        RunningTopology { job, controls }
    }

    /// The job that it runs as: its status, plan, counters and dead letters.
    pub fn job(&self) -> &JobHandle {
        &self.job
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Its failure.
    pub fn join(&self) -> Result<()> {
        self.job.join()
    }

    /// Has the spouts emit again.
    pub fn activate(&self) {
        self.controls.switch(true);
    }

    /// Has the spouts emit nothing until [`activate`](RunningTopology::activate); what is in flight is dealt with.
    pub fn deactivate(&self) {
        self.controls.switch(false);
    }

    /// What became of the messages of each spout, up to now.
    pub fn spouts(&self) -> Vec<SpoutReport> {
        let spouts = self.controls.instances.get().into_iter().flatten();
        spouts
            .map(|spout| {
                let instances: Vec<_> = lock(&spout.counters).values().cloned().collect();
                report(&spout.name, &instances)
            })
            .collect()
    }
}

fn report(name: &str, instances: &[Arc<SpoutCounters>]) -> SpoutReport {
    let sum = |counter: fn(&SpoutCounters) -> &AtomicU64| {
        let values = instances
            .iter()
            .map(|instance| counter(instance).load(Ordering::Relaxed));
        values.sum()
    };
    let mut all: Option<Histogram<u64>> = None;
    for instance in instances {
        match (&mut all, &*lock(&instance.latencies)) {
            (_, None) => {}
            (None, Some(one)) => all = Some(one.clone()),
            // Both have the same bounds, so they can be added.
            (Some(all), Some(one)) => drop(all.add(one)),
        }
    }
    SpoutReport {
        spout: name.to_string(),
        emitted: sum(|counters| &counters.emitted),
        acked: sum(|counters| &counters.acked),
        failed: sum(|counters| &counters.failed),
        timed_out: sum(|counters| &counters.timed_out),
        lost: sum(|counters| &counters.lost),
        pending: sum(|counters| &counters.pending),
        complete_latency: all
            .filter(|all| !all.is_empty())
            .map(|all| CompleteLatency {
                mean: Duration::from_nanos(all.mean() as u64),
                p50: Duration::from_nanos(all.value_at_quantile(0.5)),
                p99: Duration::from_nanos(all.value_at_quantile(0.99)),
                p999: Duration::from_nanos(all.value_at_quantile(0.999)),
                max: Duration::from_nanos(all.max()),
            }),
    }
}
