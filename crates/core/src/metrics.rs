//! Counters of one instance.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::{Timestamp, Watermark};

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
    /// Records dropped or set aside by this instance because they could not be dealt with.
    bad: AtomicU64,
    /// Nanoseconds spent in this instance's slices.
    busy_nanos: AtomicU64,
    /// The longest slice so far, in nanoseconds.
    longest_slice_nanos: AtomicU64,
    /// Slices that found the outputs full.
    blocked: AtomicU64,
    /// The latest watermark, in microseconds; `i64::MIN` before the first. What it is for, see [`MetricsSnapshot::watermark`].
    watermark_micros: AtomicI64,
    /// Epochs ended.
    epochs: AtomicU64,
}

impl Default for InstanceMetrics {
    fn default() -> Self {
        InstanceMetrics {
            records_in: AtomicU64::new(0),
            records_out: AtomicU64::new(0),
            late: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            busy_nanos: AtomicU64::new(0),
            longest_slice_nanos: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            watermark_micros: AtomicI64::new(i64::MIN),
            epochs: AtomicU64::new(0),
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
    /// Bad records.
    pub bad: u64,
    /// Time spent in slices.
    pub busy: Duration,
    /// The longest slice.
    pub longest_slice: Duration,
    /// Slices that found the outputs full.
    pub blocked: u64,
    /// The latest watermark that was passed on, or, where there is no output, taken in; [`Timestamp::MIN`] before the first.
    pub watermark: Timestamp,
    /// Epochs ended.
    pub epochs: u64,
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

    /// Counts bad records.
    #[inline]
    pub fn count_bad(&self, records: u64) {
        add(&self.bad, records);
    }

    /// Counts a slice of work.
    #[inline]
    pub fn count_slice(&self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        add(&self.busy_nanos, nanos);
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

    /// Notes a watermark that this instance has passed on, or taken in if it has no output. The latest counts: one output may
    /// be behind another.
    #[inline]
    pub fn note_watermark(&self, watermark: Watermark) {
        let micros = watermark.0.as_micros();
        if micros > self.watermark_micros.load(Relaxed) {
            self.watermark_micros.store(micros, Relaxed);
        }
    }

    /// The values now; each is exact, together they may be some records apart.
    pub fn snapshot(&self) -> MetricsSnapshot {
        MetricsSnapshot {
            records_in: self.records_in.load(Relaxed),
            records_out: self.records_out.load(Relaxed),
            late: self.late.load(Relaxed),
            bad: self.bad.load(Relaxed),
            busy: Duration::from_nanos(self.busy_nanos.load(Relaxed)),
            longest_slice: Duration::from_nanos(self.longest_slice_nanos.load(Relaxed)),
            blocked: self.blocked.load(Relaxed),
            watermark: Timestamp::from_micros(self.watermark_micros.load(Relaxed)),
            epochs: self.epochs.load(Relaxed),
        }
    }
}
