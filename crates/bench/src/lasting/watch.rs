//! What is seen of a job's results in one process, as they come.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Clock, Inbox, InstanceContext, Ordinal, Outbox, Processor, Result, Timestamp};
use hdrhistogram::Histogram;

use super::span::Span;
use crate::cluster::{Attended, Order};
use crate::load::LoadShared;
use crate::nanoseconds;

/// The names of numbers that say how late a window was begin so; its end in microseconds follows.
pub(crate) const WINDOW: &str = "window ";

/// What the sources and sinks of a run share in one process. It outlives the lives of the job.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) span: Span,
    pub(crate) load: Arc<LoadShared>,
    /// Records that filled the state, as far as they have come there.
    pub(crate) filled: AtomicU64,
    /// Whether it is told of each window how late it was: for those of which there are few.
    by_window: bool,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    results: u64,
    latency: Histogram<u64>,
    /// Of all that has come, what was due last, and when it came.
    newest: Option<(Timestamp, Timestamp)>,
    /// Since somebody asked to forget: the longest time without a result that was due later than all before…
    longest_pause: u64,
    /// … and how late the latest of such results was; both in nanoseconds.
    latest: u64,
    /// By end, in microseconds.
    windows: BTreeMap<i64, u64>,
}

impl Watch {
    pub(crate) fn new(by_window: bool) -> Result<Arc<Self>> {
        Ok(Arc::new(Watch {
            span: Span::unknown(),
            load: Arc::default(),
            filled: AtomicU64::new(0),
            by_window,
            seen: Mutex::new(Seen {
                results: 0,
                latency: nanoseconds()?,
                newest: None,
                longest_pause: 0,
                latest: 0,
                windows: BTreeMap::new(),
            }),
        }))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Results have come that were due then. One lock for all of them.
    pub(crate) fn saw(&self, now: Timestamp, due: impl Iterator<Item = Timestamp>) {
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
            // What comes again after a failure is nothing new.
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

    /// The latencies so far.
    pub(crate) fn latency(&self) -> Histogram<u64> {
        self.seen().latency.clone()
    }
}

impl Attended for Watch {
    fn obey(&self, order: Order) {
        match order {
            Order::BeginAt { start, from, until } => self.span.set(start, from, until),
            Order::Over => self.load.over.store(true, Ordering::Relaxed),
            Order::Forget => {
                let mut seen = self.seen();
                (seen.longest_pause, seen.latest) = (0, 0);
            }
            Order::Begin { .. } | Order::Tell { .. } => {}
        }
    }

    fn numbers(&self) -> BTreeMap<String, u64> {
        let seen = self.seen();
        let numbers = [
            ("emitted", self.load.emitted.load(Ordering::Relaxed)),
            ("filled", self.filled.load(Ordering::Relaxed)),
            ("results", seen.results),
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

/// What is timed of the records that come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timed {
    /// Each, from the time of its event.
    Records,
    /// The first of each window, from the window's end.
    Windows,
}

/// A sink that only looks.
pub(crate) struct WatchP<T> {
    watch: Arc<Watch>,
    timed: Timed,
    last_window: Timestamp,
    clock: Clock,
    records: PhantomData<fn(T)>,
}

impl<T> WatchP<T> {
    pub(crate) fn new(watch: Arc<Watch>, timed: Timed) -> Self {
        WatchP {
            watch,
            timed,
            last_window: Timestamp::MIN,
            clock: Clock::system(),
            records: PhantomData,
        }
    }
}

impl<T: Send + 'static> Processor for WatchP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let now = self.clock.wall();
        let rows = inbox.rows::<T>()?;
        let times = rows.times().iter().copied();
        match self.timed {
            Timed::Records => self.watch.saw(now, times),
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
                self.watch.saw(now, first);
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
    fn what_comes_again_ends_no_pause_and_is_not_the_latest() {
        let watch = Watch::new(true).unwrap();
        let at = Timestamp::from_secs;
        let second = 1_000_000_000;
        watch.obey(Order::BeginAt {
            start: 0,
            from: at(2).as_micros(),
            until: at(100).as_micros(),
        });
        watch.saw(at(3), [at(1), at(2)].into_iter());
        watch.obey(Order::Forget);
        // After a failure it begins a little before where it was.
        watch.saw(at(9), [at(1), at(2)].into_iter());
        watch.saw(at(10), [at(4)].into_iter());
        watch.saw(at(11), [at(10)].into_iter());
        let numbers = watch.numbers();
        let number = |name: &str| numbers[name];
        assert_eq!((number("results"), number("measured")), (6, 4));
        assert_eq!(number("longest_pause"), 7 * second);
        assert_eq!(number("latest"), 6 * second);
        assert_eq!(
            number(&format!("{WINDOW}{}", at(2).as_micros())),
            7 * second
        );
    }
}
