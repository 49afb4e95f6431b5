//! Observation of a job's results in one process, as they arrive.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Clock, Inbox, InstanceContext, Ordinal, Outbox, Processor, Result, Timestamp};
use hdrhistogram::Histogram;

use super::span::Span;
use crate::cluster::{ControlledLoad, Order};
use crate::load::LoadShared;
use crate::nanoseconds;

/// The prefix of counters with the latency of a window; the window's end in microseconds follows.
pub(crate) const WINDOW: &str = "window ";

/// State shared by the sources and sinks of a run in one process. It outlives the attempts of the
/// job.
#[derive(Debug)]
pub(crate) struct ResultObserver {
    pub(crate) span: Span,
    pub(crate) load: Arc<LoadShared>,
    /// The number of filling records that have arrived.
    pub(crate) filled: AtomicU64,
    /// True to record the latency of each window; for runs with few windows.
    by_window: bool,
    seen: Mutex<Sample>,
}

#[derive(Debug)]
struct Sample {
    results: u64,
    /// The records that were repeated after their results.
    repeated: u64,
    latency: Histogram<u64>,
    /// The latest due time of all results so far, and its arrival.
    newest: Option<(Timestamp, Timestamp)>,
    /// The longest time without new results since the last reset, in nanoseconds. A result is new
    /// if it was due later than all before.
    longest_pause: u64,
    /// The highest latency of such results since the last reset, in nanoseconds.
    latest: u64,
    /// The latency of each window in nanoseconds, by its end in microseconds.
    windows: BTreeMap<i64, u64>,
}

impl ResultObserver {
    pub(crate) fn new(by_window: bool) -> Result<Arc<Self>> {
        Ok(Arc::new(ResultObserver {
            span: Span::unknown(),
            load: Arc::default(),
            filled: AtomicU64::new(0),
            by_window,
            seen: Mutex::new(Sample {
                results: 0,
                repeated: 0,
                latency: nanoseconds()?,
                newest: None,
                longest_pause: 0,
                latest: 0,
                windows: BTreeMap::new(),
            }),
        }))
    }

    fn seen(&self) -> MutexGuard<'_, Sample> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records results with these due times, under one lock.
    pub(crate) fn record_results(&self, now: Timestamp, due: impl Iterator<Item = Timestamp>) {
        let mut seen = self.seen();
        for due in due {
            seen.results += 1;
            let late = now.since(due).as_nanos() as u64;
            if self.span.counts(due) {
                seen.latency.saturating_record(late);
            }
            if self.by_window {
                let window = seen.windows.entry(due.as_micros()).or_default();
                *window = late.max(*window);
            }
            // Results repeated after a failure are not new.
            let before = seen.newest;
            match before {
                Some((newest, _)) if due <= newest => {}
                _ => {
                    let pause = before.map_or(0, |(_, at)| now.since(at).as_nanos() as u64);
                    seen.longest_pause = seen.longest_pause.max(pause);
                    seen.latest = seen.latest.max(late);
                    seen.newest = Some((due, now));
                }
            }
        }
    }

    /// Counts the records with these due times that belong to results of before.
    pub(crate) fn count_repeated(&self, due: &[Timestamp]) {
        let mut seen = self.seen();
        if let Some((newest, _)) = seen.newest {
            seen.repeated += due.iter().filter(|due| **due <= newest).count() as u64;
        }
    }

    pub(crate) fn latency(&self) -> Histogram<u64> {
        self.seen().latency.clone()
    }
}

impl ControlledLoad for ResultObserver {
    fn handle_order(&self, order: Order) {
        match order {
            Order::BeginAt { start, from, until } => self.span.set(start, from, until),
            Order::Over => self.load.over.store(true, Ordering::Relaxed),
            Order::ResetMoments => {
                let mut seen = self.seen();
                (seen.longest_pause, seen.latest) = (0, 0);
            }
            Order::Begin { .. } | Order::ReportSample { .. } => {}
        }
    }

    fn numbers(&self) -> BTreeMap<String, u64> {
        let seen = self.seen();
        let numbers = [
            ("emitted", self.load.emitted.load(Ordering::Relaxed)),
            ("filled", self.filled.load(Ordering::Relaxed)),
            ("results", seen.results),
            ("repeated", seen.repeated),
            ("measured", seen.latency.len()),
            ("longest_pause", seen.longest_pause),
            ("latest", seen.latest),
        ];
        let numbers = numbers.map(|(name, number)| (name.to_string(), number));
        let windows = seen.windows.iter();
        let windows = windows.map(|(end, late)| (format!("{WINDOW}{end}"), *late));
        numbers.into_iter().chain(windows).collect()
    }

    fn latencies(&self) -> Vec<(u64, u64)> {
        let seen = self.seen();
        let recorded = seen.latency.iter_recorded();
        recorded
            .map(|value| (value.value_iterated_to(), value.count_at_value()))
            .collect()
    }
}

/// The records whose latency is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timed {
    /// Each record, from the time of its event.
    Records,
    /// The first record of each window, from the window's end.
    Windows,
}

/// A sink that records arrivals and discards the records.
pub(crate) struct ObserverP<T> {
    watch: Arc<ResultObserver>,
    timed: Timed,
    last_window: Timestamp,
    clock: Clock,
    records: PhantomData<fn(T)>,
}

impl<T> ObserverP<T> {
    pub(crate) fn new(watch: Arc<ResultObserver>, timed: Timed) -> Self {
        ObserverP {
            watch,
            timed,
            last_window: Timestamp::MIN,
            clock: Clock::system(),
            records: PhantomData,
        }
    }
}

impl<T: Send + 'static> Processor for ObserverP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let now = self.clock.wall();
        let rows = inbox.rows::<T>()?;
        let times = rows.times().iter().copied();
        match self.timed {
            Timed::Records => self.watch.record_results(now, times),
            Timed::Windows => {
                let last = &mut self.last_window;
                // A result's time is the last microsecond of its window.
                let ends =
                    times.map(|time| Timestamp::from_micros(time.as_micros().saturating_add(1)));
                let first = ends.filter(|end| {
                    let is_first = *end > *last;
                    *last = (*end).max(*last);
                    is_first
                });
                self.watch.record_results(now, first);
            }
        }
        inbox.rows::<T>()?.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_results_end_no_pause_and_are_not_the_latest() {
        let watch = ResultObserver::new(true).unwrap();
        let at = Timestamp::from_secs;
        let second = 1_000_000_000;
        watch.handle_order(Order::BeginAt {
            start: 0,
            from: at(2).as_micros(),
            until: at(100).as_micros(),
        });
        watch.record_results(at(3), [at(1), at(2)].into_iter());
        watch.handle_order(Order::ResetMoments);
        // After a failure it resumes a little earlier.
        watch.count_repeated(&[at(1), at(2), at(4)]);
        watch.record_results(at(9), [at(1), at(2)].into_iter());
        watch.record_results(at(10), [at(4)].into_iter());
        watch.record_results(at(11), [at(10)].into_iter());
        let numbers = watch.numbers();
        let number = |name: &str| numbers[name];
        assert_eq!((number("results"), number("measured")), (6, 4));
        assert_eq!(number("repeated"), 2);
        assert_eq!(number("longest_pause"), 7 * second);
        assert_eq!(number("latest"), 6 * second);
        assert_eq!(
            number(&format!("{WINDOW}{}", at(2).as_micros())),
            7 * second
        );
    }
}
