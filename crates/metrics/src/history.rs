//! The metrics history: the last hour of a job's metrics, in bounded memory, at the leader.
//!
//! A series has 60 values at intervals of one second and 360 at ten seconds, as `f32`: about 2 KB.
//! A job of a few hundred instances has a series per metric and instance. A job of 20,000 instances
//! with 14 metrics each would take 570 MB. So beyond [`HistoryConfig::most_series`], the series of
//! instances are **folded**: series that differ only in the labels `instance` and `container`
//! become one series of the vertex. Counters are summed, and gauges are aggregated as defined in
//! the [`catalogue`](crate::catalogue); existing values are merged in the same way. For each
//! instance, only the last value remains (about 60 bytes), from which growth is computed. The job
//! of 20,000 instances then takes about 30 MB. Folding is permanent. Series without the label
//! `instance` are never folded. If there are still too many series, new series are dropped and
//! counted.
//!
//! **Counters** are stored as growth: the reported value minus the previous one. After a restart of
//! the process, or a decrease, the whole value is growth. The first value of a process that is
//! older than the history is a start value, not growth. The growth of the catalogue's instance
//! counters stays part of [`grown`](History::grown) when their process and series are gone; only
//! the values by time are lost.
//!
//! Growth between two batches of a process is distributed over the cells between both times, so
//! that a rate does not depend on the reporting interval.
//!
//! **Times** are those of the receiver's clock, because the clocks of other hosts may be wrong.

mod query;
mod ring;
mod series;

use std::collections;
use std::time::Duration;

use ardea_core::Timestamp;
use foldhash::fast::FixedState;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use crate::catalogue::{self, Fold, Kind};
use crate::settings::MOST_EVERY;
use crate::{Batch, Labels, MetricName};
pub use query::{Curve, Latest, Point, Resolution, Selector};
use ring::Span;
use series::Series;

/// Nearly all keys are hashes already, so a fast hasher is sufficient.
type HashMap<K, V> = collections::HashMap<K, V, FixedState>;

/// The limits of a [`History`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryConfig {
    /// The maximum number of series; a series takes about 2 KB.
    pub most_series: usize,
    /// The maximum number of last values of single instances; a value takes about 60 bytes.
    pub most_numbers: usize,
    /// The time without a report after which the gauges of a process or instance no longer count.
    /// It is extended for a long reporting interval. Counters continue from their last value if the
    /// process reports again within an hour.
    pub silence: Duration,
}

impl Default for HistoryConfig {
    /// Returns limits of 32,768 series (64 MiB), a million last values, and 30 s.
    fn default() -> Self {
        HistoryConfig {
            most_series: 1 << 15,
            most_numbers: 1 << 20,
            silence: Duration::from_secs(30),
        }
    }
}

/// The fill level of a [`History`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct HistoryReport {
    /// The number of series.
    pub series: usize,
    /// The number of last values of single instances.
    pub numbers: usize,
    /// True if instances have been folded into their vertices.
    pub is_folded: bool,
    /// The number of values dropped because there were too many.
    pub left_out: u64,
    /// The approximate memory use in bytes.
    pub bytes: usize,
}

/// The last hour of the metrics of one job.
pub struct History {
    config: HistoryConfig,
    began: Timestamp,
    /// The newest second with a batch.
    now: i64,
    /// The newest time of a batch in microseconds.
    newest: i64,
    /// The series by index. An index is free after its series was removed.
    series: Vec<Option<Series>>,
    free: Vec<u32>,
    places: HashMap<u128, u32>,
    processes: HashMap<Labels, Process>,
    numbers: usize,
    is_folded: bool,
    left_out: u64,
    swept: i64,
    /// The growth of instance counters whose series were removed, by vertex.
    removed_totals: HashMap<u128, RemovedTotal>,
}

/// The total of a counter over the removed series of all instances of a vertex.
struct RemovedTotal {
    name: MetricName,
    labels: Labels,
    total: f64,
}

impl RemovedTotal {
    /// The approximate memory use of a total in bytes, including its labels.
    const BYTES: usize = size_of::<RemovedTotal>() + 64;
}

/// A process that reports metrics.
struct Process {
    started: Timestamp,
    /// The time range that the last batch of the process covers. The batch arrived at the end of
    /// the range.
    span: Span,
    /// The longest expected time until the next batch, in microseconds.
    batch_timeout: i64,
    /// True if the process's counters start at zero in the history. False for the first batch of a
    /// process that is older than the history.
    from_zero: bool,
    last: HashMap<u128, LastValue>,
}

/// The last value of one line (one plain number of a metric's value) of a process.
#[derive(Clone, Copy)]
struct LastValue {
    number: f64,
    series: u32,
    last_report: i32,
    /// True if the line is silent, and so is no member of its series at present.
    is_silent: bool,
}

/// The permitted delay of a batch after its interval, in microseconds.
const MAX_DELAY: i64 = 5_000_000;

/// The time for which the last value of a silent counter is stored, so that the counter continues
/// from it.
const COUNTER_RETENTION: Duration = Duration::from_secs(3_600);

impl History {
    /// Creates an empty history. `now` is the current time on the same clock as for
    /// [`take`](Self::take).
    pub fn new(config: HistoryConfig, now: Timestamp) -> Self {
        let second = second(now);
        History {
            config,
            began: now,
            now: second,
            newest: now.as_micros(),
            series: Vec::new(),
            free: Vec::new(),
            places: HashMap::default(),
            processes: HashMap::default(),
            numbers: 0,
            is_folded: false,
            left_out: 0,
            swept: second,
            removed_totals: HashMap::default(),
        }
    }

    /// Returns the time since which counters are known.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// Adds a batch that arrived at `now` on the caller's clock. Takes about 400 ns a value.
    pub fn take(&mut self, batch: &Batch, now: Timestamp) {
        self.newest = self.newest.max(now.as_micros());
        self.now = self.now.max(second(now));
        let mut process = self.process(batch, now);
        let told = (process.span, self.newest + process.batch_timeout);
        for sample in &batch.samples {
            sample.value.lines(|line| {
                if line.number.is_nan() {
                    return;
                }
                let key = key(
                    sample.name.as_str(),
                    line.suffix,
                    &sample.labels,
                    line.label,
                );
                let place = match process.last.get_mut(&key) {
                    Some(last) => {
                        self.update(last, line.number, told);
                        return;
                    }
                    None if self.numbers < self.config.most_numbers => {
                        let name = format!("{}{}", sample.name, line.suffix);
                        let labels = match line.label {
                            Some((name, value)) => sample.labels.with(name, value),
                            None => sample.labels.clone(),
                        };
                        let labels = labels.over(&batch.process);
                        self.place(&name, labels, line.is_counter, &mut process)
                    }
                    None => None,
                };
                let Some(series) = place else {
                    self.left_out += 1;
                    return;
                };
                self.numbers += 1;
                let last = LastValue {
                    number: line.number,
                    series,
                    last_report: self.offset(),
                    is_silent: false,
                };
                process.last.insert(key, last);
                if let Some(series) = &mut self.series[series as usize] {
                    series.members += 1;
                }
                let begins_here = line.is_counter && !process.from_zero;
                self.put(
                    series,
                    begins_here.then_some(line.number),
                    line.number,
                    told,
                );
            });
        }
        process.from_zero = true;
        self.processes.insert(batch.process.clone(), process);
        if self.now - self.swept >= 10 {
            self.sweep();
        }
    }

    /// Returns the fill level of the history.
    pub fn report(&self) -> HistoryReport {
        let series = self.places.len();
        HistoryReport {
            series,
            numbers: self.numbers,
            is_folded: self.is_folded,
            left_out: self.left_out,
            // A table is between 7/16 and 7/8 full.
            bytes: series * (Series::BYTES + 32)
                + self.numbers * 3 / 2 * size_of::<(u128, LastValue)>()
                + self.processes.len() * size_of::<Process>()
                + self.removed_totals.len() * (RemovedTotal::BYTES + 32),
        }
    }

    /// Removes and returns the process of a batch, or creates it. The last values of a restarted
    /// process are dropped.
    fn process(&mut self, batch: &Batch, now: Timestamp) -> Process {
        let age = batch.at.since(batch.started);
        let (known, to) = (self.processes.remove(&batch.process), self.newest);
        let patience = micros(batch.every.min(MOST_EVERY)) + MAX_DELAY;
        // Each age is measured by one clock; the two clocks may differ.
        let since_start = to.saturating_sub(micros(age));
        let (from, from_zero) = match known {
            Some(process) if process.started == batch.started => {
                let from = process.span.1;
                return Process {
                    span: (from, to),
                    batch_timeout: patience,
                    ..process
                };
            }
            Some(before) => {
                self.release(before.last);
                (since_start.max(before.span.1), true)
            }
            // A process that was removed from the history is older.
            None if age <= now.since(self.began).min(COUNTER_RETENTION) => {
                (since_start.max(self.began.as_micros()), true)
            }
            None => (to, false),
        };
        Process {
            started: batch.started,
            span: (from.min(to), to),
            batch_timeout: patience,
            from_zero,
            last: HashMap::default(),
        }
    }

    /// Returns the index of the series of this name and these labels. A missing series is created
    /// if there is room; otherwise the result is `None`.
    fn place(
        &mut self,
        name: &str,
        labels: Labels,
        is_counter: bool,
        process: &mut Process,
    ) -> Option<u32> {
        let is_of_instance = labels.get("instance").is_some();
        if is_of_instance && !self.is_folded && self.places.len() >= self.config.most_series {
            self.fold(process);
        }
        let labels = if is_of_instance && self.is_folded {
            folded(&labels)
        } else {
            labels
        };
        let key = key(name, "", &labels, None);
        if let Some(place) = self.places.get(&key) {
            return Some(*place);
        }
        if self.places.len() >= self.config.most_series {
            return None;
        }
        let fold = catalogue::find(name).map_or(Fold::Sum, |metric| metric.fold);
        let name = MetricName::new(name);
        let series = Series::new(name, labels, is_counter, fold, self.now);
        Some(self.insert(key, series))
    }

    fn insert(&mut self, key: u128, series: Series) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.series.push(None);
            (self.series.len() - 1) as u32
        });
        self.series[place as usize] = Some(series);
        self.places.insert(key, place);
        place
    }

    /// Records the new value `number` of a known line.
    fn update(&mut self, last: &mut LastValue, number: f64, told: (Span, i64)) {
        let mut before = Some(std::mem::replace(&mut last.number, number));
        last.last_report = self.offset();
        if let Some(series) = &mut self.series[last.series as usize]
            && std::mem::take(&mut last.is_silent)
        {
            series.members += 1;
            if !series.is_counter {
                before = None;
            }
        }
        self.put(last.series, before, number, told);
    }

    /// Adds a value to the series at the index `place`. `told` is the time range that the value
    /// covers, and the time by which the next value is expected.
    fn put(&mut self, place: u32, before: Option<f64>, number: f64, told: (Span, i64)) {
        let now = self.now;
        let Some(series) = &mut self.series[place as usize] else {
            return;
        };
        let (span, expected_until) = told;
        series.record_report(span, expected_until);
        if series.is_counter {
            let before = before.unwrap_or(0.0);
            // A decrease means that the counter was restarted.
            let growth = if number < before {
                number
            } else {
                number - before
            };
            series.grow(span, growth);
        } else {
            series.level(now, before, number);
        }
    }

    /// Folds the series of each vertex's instances into one series, permanently. `process` is the
    /// process that is currently taken out of the table.
    fn fold(&mut self, process: &mut Process) {
        self.is_folded = true;
        let mut moved: HashMap<u32, u32> = HashMap::default();
        for place in 0..self.series.len() as u32 {
            let labels = self.series[place as usize]
                .as_ref()
                .map(|series| &series.labels);
            let Some(labels) = labels.filter(|labels| labels.get("instance").is_some()) else {
                continue;
            };
            let labels = folded(labels);
            let Some(mut series) = self.series[place as usize].take() else {
                continue;
            };
            self.places
                .remove(&key(series.name.as_str(), "", &series.labels, None));
            let key = key(series.name.as_str(), "", &labels, None);
            let to = match self.places.get(&key) {
                Some(to) => {
                    if let Some(whole) = &mut self.series[*to as usize] {
                        whole.merge(&series);
                    }
                    self.free.push(place);
                    *to
                }
                None => {
                    series.labels = labels;
                    self.places.insert(key, place);
                    self.series[place as usize] = Some(series);
                    place
                }
            };
            moved.insert(place, to);
        }
        let others = self.processes.values_mut();
        for process in others.chain([process]) {
            for last in process.last.values_mut() {
                last.series = moved.get(&last.series).copied().unwrap_or(last.series);
            }
        }
    }

    /// Excludes processes without a recent report. Removes processes that were silent for an hour,
    /// and series without data.
    fn sweep(&mut self) {
        self.swept = self.now;
        let silence = i32::try_from(self.config.silence.as_secs()).unwrap_or(i32::MAX);
        let (now, offset) = (self.now, self.offset());
        let (mut forgotten, series) = (HashMap::default(), &mut self.series);
        self.processes.retain(|_, process| {
            let patience = i32::try_from(process.batch_timeout / 1_000_000).unwrap_or(i32::MAX);
            let silence = silence.max(patience).max(1);
            for last in process.last.values_mut() {
                let is_silent = offset - last.last_report > silence;
                if let Some(series) = &mut series[last.series as usize]
                    && is_silent
                    && !last.is_silent
                {
                    last.is_silent = true;
                    series.remove_member(last.number);
                }
            }
            let is_old =
                |last: &LastValue| (offset - last.last_report) as u64 > COUNTER_RETENTION.as_secs();
            forgotten.extend(process.last.extract_if(|_, last| is_old(last)));
            let heard = process.span.1.div_euclid(1_000_000);
            !process.last.is_empty() || (now - heard) as u64 <= COUNTER_RETENTION.as_secs()
        });
        self.release(forgotten);
        let (series, free, gone) = (&mut self.series, &mut self.free, &mut self.removed_totals);
        self.places.retain(|_, place| {
            let slot = &mut series[*place as usize];
            let is_over = |one: &Series| one.members == 0 && now - one.ring.head() > 3_600;
            let is_gone = slot.as_ref().is_none_or(is_over);
            if is_gone {
                if let Some(series) = slot.take() {
                    retain_total(gone, &series);
                }
                free.push(*place);
            }
            !is_gone
        });
    }

    fn release(&mut self, last: HashMap<u128, LastValue>) {
        self.numbers -= last.len();
        for last in last.into_values().filter(|last| !last.is_silent) {
            if let Some(series) = &mut self.series[last.series as usize] {
                series.remove_member(last.number);
            }
        }
    }

    /// Returns the seconds since the history began, which fit an `i32`.
    fn offset(&self) -> i32 {
        i32::try_from(self.now - second(self.began)).unwrap_or(i32::MAX)
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "History({:?})", self.report())
    }
}

/// Adds the total of an instance counter to the total of its vertex. A folded series has no
/// instance label, so the catalogue determines whether the series is an instance counter.
fn retain_total(gone: &mut HashMap<u128, RemovedTotal>, series: &Series) {
    let name = series.name.as_str();
    let is_of_instances = catalogue::find(name)
        .is_some_and(|it| it.kind == Kind::Counter && it.labels.contains(&"instance"));
    if !is_of_instances || !series.is_counter || series.total <= 0.0 {
        return;
    }
    let labels = folded(&series.labels);
    let total = gone
        .entry(key(name, "", &labels, None))
        .or_insert_with(|| RemovedTotal {
            name: series.name.clone(),
            labels,
            total: 0.0,
        });
    total.total += series.total;
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn second(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(1_000_000)
}

fn folded(labels: &Labels) -> Labels {
    labels.without(&["instance", "container"])
}

/// Returns a 128-bit hash of a name with labels. Collisions are negligible for a few million
/// series.
fn key(name: &str, suffix: &str, labels: &Labels, own: Option<(&str, &str)>) -> u128 {
    let pairs = labels.iter().chain(own);
    let texts = pairs.flat_map(|(name, value)| [name, value]);
    let mut bytes = Vec::with_capacity(128);
    for text in [name, suffix].into_iter().chain(texts) {
        bytes.extend_from_slice(text.as_bytes());
        // This byte does not occur in UTF-8.
        bytes.push(0xff);
    }
    xxh3_128(&bytes)
}

#[cfg(test)]
#[path = "history/history_tests.rs"]
mod tests;
