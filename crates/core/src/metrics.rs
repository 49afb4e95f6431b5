//! Counters of one instance.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::{ChildProcessMetrics, ChildProcessSnapshot};
use crate::{Clock, LatencyHistogram, LatencySnapshot, Timestamp, Watermark};

/// The counters of one instance, written by its thread once per chunk and readable from any thread.
///
/// Padded to its own cache lines, so that readers of one instance do not slow down another's
/// writer.
#[derive(Debug)]
#[repr(align(128))]
pub struct InstanceMetrics {
    /// Records read, over all inputs.
    records_in: AtomicU64,
    /// Records written, over all outputs.
    records_out: AtomicU64,
    /// Records that arrived after the watermark and the allowed lateness.
    late: AtomicU64,
    /// Records that arrived after some of their windows had closed.
    late_in_part: AtomicU64,
    /// Records dropped or set aside by this instance because they could not be processed.
    bad: AtomicU64,
    /// Nanoseconds of the tasklet's slices spent in this instance.
    busy_nanos: AtomicU64,
    /// Nanoseconds of CPU time in `busy_nanos`.
    busy_cpu_nanos: AtomicU64,
    /// Nanoseconds of the tasklet's slices spent in other instances of the chain.
    chain_nanos: AtomicU64,
    /// The longest slice so far, in nanoseconds.
    longest_slice_nanos: AtomicU64,
    /// Slices that found the outputs full.
    blocked: AtomicU64,
    /// The latest watermark in microseconds; `i64::MIN` before the first. See
    /// [`MetricsSnapshot::watermark`].
    watermark_micros: AtomicI64,
    /// Epochs ended.
    epochs: AtomicU64,
    /// Micro-batches ended.
    batches: AtomicU64,
    /// Nanoseconds from the first input's end of a micro-batch until the last input's.
    batch_wait_nanos: AtomicU64,
    /// Cost of snapshots.
    snapshots: SnapshotCounters,
    /// Size of the state.
    state: StateGauges,
    /// Time blocked by full outputs.
    blocked_for: RestTime,
    /// Time without work.
    idle_for: RestTime,
    /// Fill level of the fullest input queue, in thousandths.
    queue_permille: AtomicU64,
    /// Times of latency markers from their sources to this instance; allocated for the first
    /// marker.
    latency: OnceLock<LatencyHistogram>,
    /// Counters of the process that runs the user code; allocated at its start.
    child: OnceLock<Box<ChildProcessMetrics>>,
}

/// The cost of an instance's snapshots.
#[derive(Debug, Default)]
struct SnapshotCounters {
    /// Nanoseconds from the first input's barrier until the last input's.
    aligned_nanos: AtomicU64,
    taken: AtomicU64,
    /// Nanoseconds spent in taking snapshots and writing them.
    busy_nanos: AtomicU64,
    written: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds from taking snapshots until they were written.
    nanos: AtomicU64,
}

/// The size of an instance's state.
#[derive(Debug, Default)]
struct StateGauges {
    keys: AtomicU64,
    bytes: AtomicU64,
    disk_keys: AtomicU64,
    disk_bytes: AtomicU64,
}

/// The accumulated time that an instance rested, blocked or idle, including the current rest. One
/// word, so that readers see it consistently.
///
/// A word that is not negative is the total in nanoseconds. A negative word means a rest that began
/// at `t`: the total before it, less `t`, less one.
#[derive(Debug, Default)]
struct RestTime(AtomicI64);

impl RestTime {
    #[inline]
    fn begin(&self, now: i64) {
        let total = self.0.load(Relaxed);
        if total >= 0 {
            self.0.store((total - now - 1).min(-1), Relaxed);
        }
    }

    #[inline]
    fn end(&self, now: i64) {
        let running = self.0.load(Relaxed);
        if running < 0 {
            self.0.store((now + running + 1).max(0), Relaxed);
        }
    }

    /// Reads `now` after the word, so that `now` is not before the start of the rest.
    fn read(&self, now: impl FnOnce() -> i64) -> Duration {
        let word = self.0.load(Relaxed);
        let nanos = if word < 0 { now() + word + 1 } else { word };
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}

#[inline]
fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl Default for InstanceMetrics {
    fn default() -> Self {
        InstanceMetrics {
            records_in: AtomicU64::new(0),
            records_out: AtomicU64::new(0),
            late: AtomicU64::new(0),
            late_in_part: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            busy_nanos: AtomicU64::new(0),
            busy_cpu_nanos: AtomicU64::new(0),
            chain_nanos: AtomicU64::new(0),
            longest_slice_nanos: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            watermark_micros: AtomicI64::new(i64::MIN),
            epochs: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            batch_wait_nanos: AtomicU64::new(0),
            snapshots: SnapshotCounters::default(),
            state: StateGauges::default(),
            blocked_for: RestTime::default(),
            idle_for: RestTime::default(),
            queue_permille: AtomicU64::new(0),
            latency: OnceLock::new(),
            child: OnceLock::new(),
        }
    }
}

/// The values of [`InstanceMetrics`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MetricsSnapshot {
    /// Records read.
    pub records_in: u64,
    /// Records written.
    pub records_out: u64,
    /// Late records.
    pub late: u64,
    /// Records that missed some of their windows, which had closed, and were counted in the others.
    pub late_in_part: u64,
    /// Bad records.
    pub bad: u64,
    /// Wall-clock time in which the instance worked. In a chain of several stages it is estimated
    /// from samples; the sum over the chain is exact.
    pub busy: Duration,
    /// CPU time in `busy`, estimated from samples. Less than `busy` if the instance waits within a
    /// call, or other processes take its core.
    pub busy_cpu: Duration,
    /// Wall-clock time in which other stages of the instance's chain worked.
    pub chain: Duration,
    /// The longest slice of its tasklet; reported by the first stage of a chain.
    pub longest_slice: Duration,
    /// Slices that found the outputs full.
    pub blocked: u64,
    /// The latest watermark emitted or, without outputs, received; [`Timestamp::MIN`] before the
    /// first.
    pub watermark: Timestamp,
    /// Epochs ended.
    pub epochs: u64,
    /// Micro-batches ended. The markers of several may arrive as one, which counts once.
    pub batches: u64,
    /// Time from the first input's end of a micro-batch until the last input's, summed over all.
    pub batches_waited: Duration,
    /// Time from the first input's barrier until the last input's, summed over all epochs: the time
    /// in which inputs were held, if the job aligns barriers.
    pub aligned_for: Duration,
    /// Snapshots taken.
    pub snapshots_taken: u64,
    /// Snapshots written completely.
    pub snapshots: u64,
    /// Entries of the snapshots that were written completely.
    pub snapshot_entries: u64,
    /// Bytes of these entries: keys, values and the identification of their state.
    pub snapshot_bytes: u64,
    /// Time from taking snapshots until they were written, while processing went on.
    pub snapshots_took: Duration,
    /// Time in which processing waited for taking snapshots and writing them.
    pub snapshots_busy: Duration,
    /// Keys whose state is in memory, if the processor reports it.
    pub state_keys: u64,
    /// Approximate bytes of memory of the keys whose state is in memory.
    pub state_bytes: u64,
    /// Keys whose state is on disk.
    pub state_disk_keys: u64,
    /// Bytes on disk of the keys whose state is there, without the overhead of the store.
    pub state_disk_bytes: u64,
    /// Time blocked by full outputs: backpressure. Set by [`InstanceMetrics::snapshot_at`] only.
    pub blocked_for: Duration,
    /// Time without work. Set by [`InstanceMetrics::snapshot_at`] only.
    pub idle_for: Duration,
    /// Fill level of the fullest input queue at the end of the last slice, in thousandths.
    pub queue_permille: u32,
    /// The process that runs the user code; `None` if the instance has no process of its own.
    pub child: Option<ChildProcessSnapshot>,
}

/// Adds to a counter that only this thread writes: a load and a store, no locked instruction.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

impl InstanceMetrics {
    /// Counts records read. Only the instance's own thread may call this and all other `count_`
    /// methods.
    #[inline]
    pub fn count_in(&self, records: u64) {
        add(&self.records_in, records);
    }

    /// Counts records written.
    #[inline]
    pub fn count_out(&self, records: u64) {
        add(&self.records_out, records);
    }

    /// Returns the number of records read.
    #[inline]
    pub fn records_in(&self) -> u64 {
        self.records_in.load(Relaxed)
    }

    /// Returns the number of records written.
    #[inline]
    pub fn records_out(&self) -> u64 {
        self.records_out.load(Relaxed)
    }

    /// Counts late records.
    #[inline]
    pub fn count_late(&self, records: u64) {
        add(&self.late, records);
    }

    /// Counts records that arrived after some of their windows had closed.
    #[inline]
    pub fn count_late_in_part(&self, records: u64) {
        add(&self.late_in_part, records);
    }

    /// Counts bad records.
    #[inline]
    pub fn count_bad(&self, records: u64) {
        add(&self.bad, records);
    }

    /// Counts wall-clock time spent in this instance, its CPU time, and the time spent in other
    /// instances of the chain.
    #[inline]
    pub fn count_work(&self, busy_nanos: u64, cpu_nanos: u64, chain_nanos: u64) {
        add(&self.busy_nanos, busy_nanos);
        add(&self.busy_cpu_nanos, cpu_nanos);
        add(&self.chain_nanos, chain_nanos);
    }

    /// Records the length of a slice.
    #[inline]
    pub fn record_slice(&self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        if nanos > self.longest_slice_nanos.load(Relaxed) {
            self.longest_slice_nanos.store(nanos, Relaxed);
        }
    }

    /// Counts a slice that found the outputs full.
    #[inline]
    pub fn count_blocked(&self) {
        add(&self.blocked, 1);
    }

    /// Counts an ended epoch.
    pub fn count_epoch(&self) {
        add(&self.epochs, 1);
    }

    /// Counts an ended micro-batch, and the time from the first input's end until the last
    /// input's.
    pub fn count_batch(&self, waited: Duration) {
        add(&self.batches, 1);
        add(&self.batch_wait_nanos, waited.as_nanos() as u64);
    }

    /// Counts the time from the first input's barrier until the last input's.
    pub fn count_alignment(&self, took: Duration) {
        add(&self.snapshots.aligned_nanos, took.as_nanos() as u64);
    }

    /// Counts a snapshot that was taken.
    pub fn count_snapshot_taken(&self) {
        add(&self.snapshots.taken, 1);
    }

    /// Counts time for snapshots in which processing waited.
    pub fn count_snapshot_work(&self, took: Duration) {
        add(&self.snapshots.busy_nanos, took.as_nanos() as u64);
    }

    /// Counts a snapshot that was written completely, `took` after it was taken.
    pub fn count_snapshot(&self, entries: u64, bytes: u64, took: Duration) {
        add(&self.snapshots.written, 1);
        add(&self.snapshots.entries, entries);
        add(&self.snapshots.bytes, bytes);
        add(&self.snapshots.nanos, took.as_nanos() as u64);
    }

    /// Records the number of keys and the bytes of the state: in memory, and on disk. Called once
    /// per chunk.
    #[inline]
    pub fn record_state(&self, (keys, bytes): (u64, u64), (disk_keys, disk_bytes): (u64, u64)) {
        self.state.keys.store(keys, Relaxed);
        self.state.bytes.store(bytes, Relaxed);
        self.state.disk_keys.store(disk_keys, Relaxed);
        self.state.disk_bytes.store(disk_bytes, Relaxed);
    }

    /// Records a watermark that this instance has emitted, or received if it has no output. The
    /// latest watermark counts: one output may be behind another.
    #[inline]
    pub fn record_watermark(&self, watermark: Watermark) {
        let micros = watermark.0.as_micros();
        if micros > self.watermark_micros.load(Relaxed) {
            self.watermark_micros.store(micros, Relaxed);
        }
    }

    /// Records the start of a rest: with full outputs if `is_blocked`, else without work. Called
    /// once per slice.
    #[inline]
    pub fn begin_rest(&self, now: Duration, is_blocked: bool) {
        let now = nanos(now);
        if is_blocked {
            self.idle_for.end(now);
            self.blocked_for.begin(now);
        } else {
            self.blocked_for.end(now);
            self.idle_for.begin(now);
        }
    }

    /// Records the start of a slice, which ends a rest; called once per slice.
    #[inline]
    pub fn end_rest(&self, now: Duration) {
        let now = nanos(now);
        self.blocked_for.end(now);
        self.idle_for.end(now);
    }

    /// Records the fill level of the fullest input queue: `queued` of `capacity` chunks. Called
    /// once per slice.
    #[inline]
    pub fn record_queue_fill(&self, queued: usize, capacity: usize) {
        let permille = (queued * 1_000).checked_div(capacity).unwrap_or(0);
        self.queue_permille.store(permille as u64, Relaxed);
    }

    /// Counts a latency marker that took `took` from its source to this instance.
    pub fn count_latency(&self, took: Duration) {
        self.latency
            .get_or_init(LatencyHistogram::default)
            .count(took);
    }

    /// Returns the counters of the process that runs the user code of this instance. The first call
    /// creates them.
    pub fn child_process(&self) -> &ChildProcessMetrics {
        self.child.get_or_init(Box::default)
    }

    /// Returns the latencies of markers from their sources to this instance.
    pub fn latency(&self) -> LatencySnapshot {
        self.latency
            .get()
            .map(LatencyHistogram::snapshot)
            .unwrap_or_default()
    }

    /// Returns the current values, including times at rest. `clock` must be the clock that the
    /// instance passes to [`begin_rest`](Self::begin_rest).
    pub fn snapshot_at(&self, clock: &Clock) -> MetricsSnapshot {
        MetricsSnapshot {
            blocked_for: self.blocked_for.read(|| nanos(clock.now())),
            idle_for: self.idle_for.read(|| nanos(clock.now())),
            ..self.snapshot()
        }
    }

    /// Returns the current values without times at rest. Each is exact, but they may be some
    /// records apart.
    pub fn snapshot(&self) -> MetricsSnapshot {
        MetricsSnapshot {
            records_in: self.records_in.load(Relaxed),
            records_out: self.records_out.load(Relaxed),
            late: self.late.load(Relaxed),
            late_in_part: self.late_in_part.load(Relaxed),
            bad: self.bad.load(Relaxed),
            busy: Duration::from_nanos(self.busy_nanos.load(Relaxed)),
            busy_cpu: Duration::from_nanos(self.busy_cpu_nanos.load(Relaxed)),
            chain: Duration::from_nanos(self.chain_nanos.load(Relaxed)),
            longest_slice: Duration::from_nanos(self.longest_slice_nanos.load(Relaxed)),
            blocked: self.blocked.load(Relaxed),
            watermark: Timestamp::from_micros(self.watermark_micros.load(Relaxed)),
            epochs: self.epochs.load(Relaxed),
            batches: self.batches.load(Relaxed),
            batches_waited: Duration::from_nanos(self.batch_wait_nanos.load(Relaxed)),
            aligned_for: Duration::from_nanos(self.snapshots.aligned_nanos.load(Relaxed)),
            snapshots_taken: self.snapshots.taken.load(Relaxed),
            snapshots: self.snapshots.written.load(Relaxed),
            snapshot_entries: self.snapshots.entries.load(Relaxed),
            snapshot_bytes: self.snapshots.bytes.load(Relaxed),
            snapshots_took: Duration::from_nanos(self.snapshots.nanos.load(Relaxed)),
            snapshots_busy: Duration::from_nanos(self.snapshots.busy_nanos.load(Relaxed)),
            state_keys: self.state.keys.load(Relaxed),
            state_bytes: self.state.bytes.load(Relaxed),
            state_disk_keys: self.state.disk_keys.load(Relaxed),
            state_disk_bytes: self.state.disk_bytes.load(Relaxed),
            blocked_for: Duration::ZERO,
            idle_for: Duration::ZERO,
            queue_permille: self.queue_permille.load(Relaxed) as u32,
            child: self.child.get().map(|child| child.snapshot()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn a_rest_counts_while_it_lasts_and_never_runs_backwards() {
        let (hand, metrics) = (ManualClock::new(), InstanceMetrics::default());
        let clock = hand.clock();
        let second = Duration::from_secs(1);
        metrics.begin_rest(clock.now(), true);
        assert_eq!(metrics.snapshot_at(&clock).blocked_for, Duration::ZERO);
        hand.advance(second);
        assert_eq!(metrics.snapshot_at(&clock).blocked_for, second);
        // Woken while still blocked: the same rest continues.
        metrics.begin_rest(clock.now(), true);
        hand.advance(second);
        metrics.end_rest(clock.now());
        hand.advance(second);
        let now = metrics.snapshot_at(&clock);
        assert_eq!(
            (now.blocked_for, now.idle_for),
            (2 * second, Duration::ZERO)
        );
        metrics.begin_rest(clock.now(), false);
        hand.advance(second);
        let now = metrics.snapshot_at(&clock);
        assert_eq!((now.blocked_for, now.idle_for), (2 * second, second));
        metrics.end_rest(clock.now());
        assert_eq!(metrics.snapshot().blocked_for, Duration::ZERO);
    }

    #[test]
    fn a_queue_without_room_is_as_full_as_an_empty_one() {
        let metrics = InstanceMetrics::default();
        metrics.record_queue_fill(3, 4);
        assert_eq!(metrics.snapshot().queue_permille, 750);
        metrics.record_queue_fill(0, 0);
        assert_eq!(metrics.snapshot().queue_permille, 0);
    }
}
