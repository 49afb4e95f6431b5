//! Counters of one instance.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::{Clock, Latencies, LatencySnapshot, Timestamp, Watermark};

/// Counters of one instance, written by its thread once a chunk and read by anybody.
///
/// Padded to its own cache lines, so that reading one instance's counters does not slow another's writing.
#[derive(Debug)]
#[repr(align(128))]
pub struct InstanceMetrics {
    /// Records read, over all inputs.
    records_in: AtomicU64,
    /// Records written, over all outputs.
    records_out: AtomicU64,
    /// Records that came behind the watermark and its allowed lateness.
    late: AtomicU64,
    /// Records that some of their windows had closed before.
    late_in_part: AtomicU64,
    /// Records dropped or set aside by this instance because they could not be dealt with.
    bad: AtomicU64,
    /// Nanoseconds of its tasklet's slices in which this instance worked.
    busy_nanos: AtomicU64,
    /// Nanoseconds of processor time in `busy_nanos`.
    busy_cpu_nanos: AtomicU64,
    /// Nanoseconds of its tasklet's slices in which other instances worked.
    chain_nanos: AtomicU64,
    /// The longest slice so far, in nanoseconds.
    longest_slice_nanos: AtomicU64,
    /// Slices that found the outputs full.
    blocked: AtomicU64,
    /// The latest watermark, in microseconds; `i64::MIN` before the first. What it is for, see [`MetricsSnapshot::watermark`].
    watermark_micros: AtomicI64,
    /// Epochs ended.
    epochs: AtomicU64,
    /// What ends of epochs cost.
    cuts: CutCounters,
    /// What it remembers.
    state: StateGauges,
    /// Rests with full outputs.
    blocked_for: RestTime,
    /// Rests with nothing to do.
    idle_for: RestTime,
    /// How full the fullest input queue was, in thousandths.
    queue_permille: AtomicU64,
    /// How long marks took from their sources to here; made for the first one.
    latency: OnceLock<Latencies>,
}

/// What ends of epochs cost an instance.
#[derive(Debug, Default)]
struct CutCounters {
    /// Nanoseconds between the first input's end of an epoch and the last one's.
    aligned_nanos: AtomicU64,
    taken: AtomicU64,
    /// Nanoseconds spent taking cuts and writing them.
    busy_nanos: AtomicU64,
    written: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds from taking cuts until they were handed over.
    nanos: AtomicU64,
}

/// How much an instance remembers.
#[derive(Debug, Default)]
struct StateGauges {
    keys: AtomicU64,
    bytes: AtomicU64,
    disk_keys: AtomicU64,
    disk_bytes: AtomicU64,
}

/// How long rests of one kind took, the present one included: one word, so that a reader never sees half a change.
///
/// Not negative: the nanoseconds of all rests so far. Negative, while one lasts that began at `t`: those nanoseconds
/// less `t`, less one; with the time now it says how long they took until now.
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

    /// `now` is asked for after the word has been read, so that the rest has begun by then.
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
            cuts: CutCounters::default(),
            state: StateGauges::default(),
            blocked_for: RestTime::default(),
            idle_for: RestTime::default(),
            queue_permille: AtomicU64::new(0),
            latency: OnceLock::new(),
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
    /// Records that are missing in some of their windows, which had closed, and counted in the others.
    pub late_in_part: u64,
    /// Bad records.
    pub bad: u64,
    /// Wall-clock time in which it worked. In a chain of several stages it is estimated from samples; the sum over the chain is exact.
    pub busy: Duration,
    /// Processor time in `busy`, estimated from samples. Less than `busy` where it waits within a call, or where other processes
    /// take its core.
    pub busy_cpu: Duration,
    /// Wall-clock time in which other stages of its chain worked.
    pub chain: Duration,
    /// The longest slice of its tasklet, which the first stage of a chain reports.
    pub longest_slice: Duration,
    /// Slices that found the outputs full.
    pub blocked: u64,
    /// The latest watermark that was passed on, or, where there is no output, taken in; [`Timestamp::MIN`] before the first.
    pub watermark: Timestamp,
    /// Epochs ended.
    pub epochs: u64,
    /// Time from the first input's end of an epoch until the last one's, over all epochs: so long were inputs held, if the job aligns
    /// them.
    pub aligned_for: Duration,
    /// Cuts taken.
    pub cuts_taken: u64,
    /// Cuts handed over whole.
    pub cuts: u64,
    /// Their entries.
    pub cut_entries: u64,
    /// The bytes of keys and values in them, with what says where they belong.
    pub cut_bytes: u64,
    /// Time from taking each cut until it was handed over, while records went on.
    pub cuts_took: Duration,
    /// The part of it in which records waited: for taking cuts and writing them.
    pub cuts_busy: Duration,
    /// Keys whose state it keeps in memory, if it says so.
    pub state_keys: u64,
    /// About how many bytes of memory they take.
    pub state_bytes: u64,
    /// Keys whose state it keeps on disk.
    pub state_disk_keys: u64,
    /// How many bytes they take there, without what the disk needs to find them.
    pub state_disk_bytes: u64,
    /// Time at rest with full outputs: backpressure. Only [`InstanceMetrics::snapshot_at`] tells it.
    pub blocked_for: Duration,
    /// Time at rest with nothing to do. Only [`InstanceMetrics::snapshot_at`] tells it.
    pub idle_for: Duration,
    /// How full the fullest input queue was at the end of the last slice, in thousandths.
    pub queue_permille: u32,
}

/// Adds on a counter that only this thread writes: a load and a store, no locked instruction.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

impl InstanceMetrics {
    /// Counts records read. Only the instance's own thread may call this, as all the `count_` methods.
    #[inline]
    pub fn count_in(&self, records: u64) {
        add(&self.records_in, records);
    }

    /// Counts records written.
    #[inline]
    pub fn count_out(&self, records: u64) {
        add(&self.records_out, records);
    }

    /// Counts late records.
    #[inline]
    pub fn count_late(&self, records: u64) {
        add(&self.late, records);
    }

    /// Counts records that some of their windows had closed before.
    #[inline]
    pub fn count_late_in_part(&self, records: u64) {
        add(&self.late_in_part, records);
    }

    /// Counts bad records.
    #[inline]
    pub fn count_bad(&self, records: u64) {
        add(&self.bad, records);
    }

    /// Counts wall-clock time in which this instance worked, with the processor time in it, and time in which others of its chain did.
    #[inline]
    pub fn count_work(&self, busy_nanos: u64, cpu_nanos: u64, chain_nanos: u64) {
        add(&self.busy_nanos, busy_nanos);
        add(&self.busy_cpu_nanos, cpu_nanos);
        add(&self.chain_nanos, chain_nanos);
    }

    /// Notes the length of a slice.
    #[inline]
    pub fn note_slice(&self, took: Duration) {
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

    /// Counts the time from the first input's end of an epoch until the last one's.
    pub fn count_alignment(&self, took: Duration) {
        add(&self.cuts.aligned_nanos, took.as_nanos() as u64);
    }

    /// Counts a cut that was taken.
    pub fn count_cut_taken(&self) {
        add(&self.cuts.taken, 1);
    }

    /// Counts time for cuts in which records waited.
    pub fn count_cut_work(&self, took: Duration) {
        add(&self.cuts.busy_nanos, took.as_nanos() as u64);
    }

    /// Counts a cut that was handed over whole, `took` after it was taken.
    pub fn count_cut(&self, entries: u64, bytes: u64, took: Duration) {
        add(&self.cuts.written, 1);
        add(&self.cuts.entries, entries);
        add(&self.cuts.bytes, bytes);
        add(&self.cuts.nanos, took.as_nanos() as u64);
    }

    /// Notes how many keys it remembers and the bytes that they take: in memory, and on disk. Once a chunk.
    #[inline]
    pub fn note_state(&self, (keys, bytes): (u64, u64), (disk_keys, disk_bytes): (u64, u64)) {
        self.state.keys.store(keys, Relaxed);
        self.state.bytes.store(bytes, Relaxed);
        self.state.disk_keys.store(disk_keys, Relaxed);
        self.state.disk_bytes.store(disk_bytes, Relaxed);
    }

    /// Notes a watermark that this instance has passed on, or taken in if it has no output. The latest counts: one output may
    /// be behind another.
    #[inline]
    pub fn note_watermark(&self, watermark: Watermark) {
        let micros = watermark.0.as_micros();
        if micros > self.watermark_micros.load(Relaxed) {
            self.watermark_micros.store(micros, Relaxed);
        }
    }

    /// Notes that a rest begins, with full outputs or with nothing to do; once a slice. A rest that lasts is of one kind.
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

    /// Notes that a slice begins; without a rest before it nothing happens. Once a slice.
    #[inline]
    pub fn end_rest(&self, now: Duration) {
        let now = nanos(now);
        self.blocked_for.end(now);
        self.idle_for.end(now);
    }

    /// Notes how full the fullest input queue is: `queued` of `capacity` chunks. Once a slice.
    #[inline]
    pub fn note_queue_fill(&self, queued: usize, capacity: usize) {
        let permille = (queued * 1_000).checked_div(capacity).unwrap_or(0);
        self.queue_permille.store(permille as u64, Relaxed);
    }

    /// Counts a mark of latency that took so long from its source to this instance.
    pub fn count_latency(&self, took: Duration) {
        self.latency.get_or_init(Latencies::default).count(took);
    }

    /// How long marks of latency took so far from their sources to this instance.
    pub fn latency(&self) -> LatencySnapshot {
        self.latency
            .get()
            .map(Latencies::snapshot)
            .unwrap_or_default()
    }

    /// The values now, with the times at rest. `clock` has to be the one by which the instance notes its rests.
    pub fn snapshot_at(&self, clock: &Clock) -> MetricsSnapshot {
        MetricsSnapshot {
            blocked_for: self.blocked_for.read(|| nanos(clock.now())),
            idle_for: self.idle_for.read(|| nanos(clock.now())),
            ..self.snapshot()
        }
    }

    /// The values now but for the times at rest; each is exact, together they may be some records apart.
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
            aligned_for: Duration::from_nanos(self.cuts.aligned_nanos.load(Relaxed)),
            cuts_taken: self.cuts.taken.load(Relaxed),
            cuts: self.cuts.written.load(Relaxed),
            cut_entries: self.cuts.entries.load(Relaxed),
            cut_bytes: self.cuts.bytes.load(Relaxed),
            cuts_took: Duration::from_nanos(self.cuts.nanos.load(Relaxed)),
            cuts_busy: Duration::from_nanos(self.cuts.busy_nanos.load(Relaxed)),
            state_keys: self.state.keys.load(Relaxed),
            state_bytes: self.state.bytes.load(Relaxed),
            state_disk_keys: self.state.disk_keys.load(Relaxed),
            state_disk_bytes: self.state.disk_bytes.load(Relaxed),
            blocked_for: Duration::ZERO,
            idle_for: Duration::ZERO,
            queue_permille: self.queue_permille.load(Relaxed) as u32,
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
        // Woken, and blocked still: the same rest goes on.
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
        metrics.note_queue_fill(3, 4);
        assert_eq!(metrics.snapshot().queue_permille, 750);
        metrics.note_queue_fill(0, 0);
        assert_eq!(metrics.snapshot().queue_permille, 0);
    }
}
