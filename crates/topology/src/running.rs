//! The handle to a running topology, and its message counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ardea_core::{LatencyHistogram, MessageCounts, MessageReport, Result, Waker};
use ardea_engine::JobHandle;
use hdrhistogram::Histogram;

/// The largest complete latency of the histogram, one hour; longer latencies count as one hour.
const LONGEST_NANOS: u64 = 3_600_000_000_000;

/// The message counters of a spout instance. Written by its thread only.
#[derive(Debug, Default)]
pub(crate) struct SpoutCounters {
    pub(crate) emitted: AtomicU64,
    pub(crate) acked: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) pending: AtomicU64,
    latencies: Mutex<Option<Histogram<u64>>>,
    /// The complete latencies with less precision, for frequent reads.
    complete: LatencyHistogram,
}

impl SpoutCounters {
    /// Records complete latencies under one lock. Equal consecutive latencies are counted together.
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

    /// Returns the present counts.
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

/// The instances of a spout that have run in this process, with their counters.
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

    /// Returns the counters of an instance, which continue those of its earlier incarnations.
    pub(crate) fn counters(&self, instance: u32) -> Arc<SpoutCounters> {
        Arc::clone(lock(&self.counters).entry(instance).or_default())
    }

    /// Returns the present counts of each instance.
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

/// The state shared by a running topology and its handle.
#[derive(Debug)]
pub(crate) struct Controls {
    is_active: AtomicBool,
    /// The waker of each spout instance, by spout and instance.
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
        // Called once per compilation, so `instances` is not set yet.
        let _ = self.instances.set(spouts);
        Arc::clone(self)
    }

    /// Returns true if spouts may emit.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Registers the waker of a spout instance for activation changes, replacing that of an earlier
    /// incarnation.
    pub(crate) fn register(&self, instance: (usize, u32), spout: Waker) {
        lock(&self.spouts).insert(instance, spout);
    }

    fn switch(&self, active: bool) {
        self.is_active.store(active, Ordering::Release);
        lock(&self.spouts).values().for_each(Waker::wake);
    }
}

/// A handle to a running topology.
///
/// Dropping the handle does not stop the topology; dropping its node does.
#[derive(Debug)]
pub struct RunningTopology {
    job: JobHandle,
    controls: Arc<Controls>,
}

/// The message counts of one spout, over all its instances.
#[derive(Clone, PartialEq, Debug)]
pub struct SpoutReport {
    /// The spout's name.
    pub spout: String,
    /// Tuples emitted.
    pub emitted: u64,
    /// Messages processed completely.
    pub acked: u64,
    /// Messages that a bolt failed.
    pub failed: u64,
    /// Messages that were not acked in time.
    pub timed_out: u64,
    /// Messages that failed because they were pending when a process of the topology was lost.
    pub lost: u64,
    /// Messages without a result yet.
    pub pending: u64,
    /// The time from emission of a message until all derived tuples are processed; `None` before
    /// the first such message.
    pub complete_latency: Option<CompleteLatency>,
}

/// The distribution of the time from emission of messages until all derived tuples are processed.
/// Durations have three significant digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompleteLatency {
    /// The mean.
    pub mean: Duration,
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The 99.9th percentile.
    pub p999: Duration,
    /// The maximum.
    pub max: Duration,
}

impl RunningTopology {
    pub(crate) fn new(job: JobHandle, controls: Arc<Controls>) -> Self {
        RunningTopology { job, controls }
    }

    /// Returns the job of the topology, with its status, plan, counters and dead letters.
    pub fn job(&self) -> &JobHandle {
        &self.job
    }

    /// Waits until the topology has ended.
    ///
    /// # Errors
    /// The failure of the topology.
    pub fn join(&self) -> Result<()> {
        self.job.join()
    }

    /// Lets the spouts emit again.
    pub fn activate(&self) {
        self.controls.switch(true);
    }

    /// Pauses the spouts until [`activate`](RunningTopology::activate); tuples in flight are
    /// processed.
    pub fn deactivate(&self) {
        self.controls.switch(false);
    }

    /// Returns the present message counts of each spout.
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
            // Both histograms have the same bounds, so they can be added.
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
