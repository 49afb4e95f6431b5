//! The sink of a benchmark: counts results, sums their digests, and measures their latency.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Clock, Inbox, InstanceContext, Ordinal, Outbox, Processor, Result, Timestamp};
use hdrhistogram::Histogram;

use crate::nanoseconds;

/// The measurements of all sinks of a run.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) results: u64,
    pub(crate) checksum: u64,
    /// Nanoseconds from the time a result was due until it reached the sink.
    pub(crate) latency: Histogram<u64>,
}

/// A handle to the totals; each sink adds its own part when it closes.
#[derive(Clone, Debug)]
pub(crate) struct Meter(Arc<Mutex<Totals>>);

impl Meter {
    /// Returns empty totals. Latencies have three significant digits.
    pub(crate) fn new() -> Result<Self> {
        Ok(Meter(Arc::new(Mutex::new(Totals {
            results: 0,
            checksum: 0,
            latency: nanoseconds()?,
        }))))
    }

    pub(crate) fn totals(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The results to measure, and the start of their latency.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timing {
    /// No latencies: results are only counted.
    Off,
    /// Each result, from the time of its event, if that lies within the span.
    Records { from: Timestamp, until: Timestamp },
    /// The first result of each window, from the window's end, if that lies within the span.
    Windows { from: Timestamp, until: Timestamp },
}

/// The sink of a benchmark. `digest` returns a result's digest, and the number of results it
/// represents.
pub(crate) struct MeterP<T, D> {
    digest: D,
    timing: Timing,
    meter: Meter,
    results: u64,
    checksum: u64,
    latency: Histogram<u64>,
    last_window: Timestamp,
    clock: Clock,
    records: PhantomData<fn(T)>,
}

impl<T, D> MeterP<T, D>
where
    D: Fn(&T) -> (u64, u64),
{
    pub(crate) fn new(digest: D, timing: Timing, meter: Meter) -> Self {
        let latency = Histogram::new_from(&meter.totals().latency);
        MeterP {
            digest,
            timing,
            meter,
            results: 0,
            checksum: 0,
            latency,
            last_window: Timestamp::MIN,
            clock: Clock::system(),
            records: PhantomData,
        }
    }

    fn time(&mut self, times: &[Timestamp]) {
        let latency = &mut self.latency;
        let now = self.clock.wall();
        match self.timing {
            Timing::Off => {}
            Timing::Records { from, until } => {
                for &time in times.iter().filter(|time| (from..until).contains(time)) {
                    latency.saturating_record(now.since(time).as_nanos() as u64);
                }
            }
            Timing::Windows { from, until } => {
                for &time in times {
                    // A result's time is the last microsecond of its window.
                    let end = Timestamp::from_micros(time.as_micros().saturating_add(1));
                    if end > self.last_window {
                        self.last_window = end;
                        if (from..until).contains(&end) {
                            latency.saturating_record(now.since(end).as_nanos() as u64);
                        }
                    }
                }
            }
        }
    }
}

impl<T, D> Processor for MeterP<T, D>
where
    T: Send + 'static,
    D: Fn(&T) -> (u64, u64) + Send + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<T>()?;
        let (mut results, mut checksum) = (0u64, 0u64);
        for value in rows.values() {
            let (count, digest) = (self.digest)(value);
            results += count;
            checksum = checksum.wrapping_add(digest);
        }
        self.results += results;
        self.checksum = self.checksum.wrapping_add(checksum);
        if !matches!(self.timing, Timing::Off) {
            self.time(inbox.rows::<T>()?.times());
        }
        inbox.rows::<T>()?.clear();
        Ok(())
    }

    fn close(&mut self) {
        let mut totals = self.meter.totals();
        totals.results += self.results;
        totals.checksum = totals.checksum.wrapping_add(self.checksum);
        // Both histograms have the same bounds and precision, so adding can't fail.
        let _ = totals.latency.add(&self.latency);
        self.latency.reset();
        (self.results, self.checksum) = (0, 0);
    }
}
