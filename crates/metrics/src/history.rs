//! The last hour of a job's metrics, in bounded memory, on the master's side.
//!
//! A series keeps 60 numbers a second apart and 360 numbers ten seconds apart, as `f32`: about 2 KB. A job of a few hundred
//! instances has a series for each of their metrics. One of 20,000 with 14 metrics each would take 570 MB, so beyond
//! [`HistoryConfig::most_series`] the series of instances are **folded**: from then on, those that differ only in `instance`
//! and `container` are one, for the whole vertex. Counters are added up, gauges become one as
//! [`catalogue`](crate::catalogue) says, and what was known before is joined in the same way. What is left for each
//! instance is its last number (about 60 bytes), from which growth is reckoned: those 20,000 take about 30 MB.
//! Once folded, a history stays so. Series without a label `instance` are never folded; if even so there are too many, new
//! ones are left out and counted.
//!
//! **Counters** are kept as growth: what a counter says now less what it said before, or, when its process was started
//! anew or it says less than before, all that it says. What a counter said when a process that is older than the history is
//! heard for the first time is where it begins, not growth. What a counter of instances in the catalogue has grown by stays
//! part of [`grown`](History::grown) when its process is gone, and when its series is: no more than the detail is lost.
//!
//! What has grown between two batches of a process is shared out over the cells of that time, so that a rate does not depend
//! on how often a process tells its metrics.
//!
//! **Time** is that of whoever takes batches in: the clocks of other hosts may be wrong.

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
pub use query::{Curve, Grain, Latest, Point, Selector};
use ring::Span;
use series::Series;

/// Nearly all keys are hashes already, so a quick hasher will do.
type HashMap<K, V> = collections::HashMap<K, V, FixedState>;

/// How much a [`History`] may keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryConfig {
    /// The most series; about 2 KB each.
    pub most_series: usize,
    /// The most last numbers of single instances; about 60 bytes each.
    pub most_numbers: usize,
    /// How long a process or an instance may be silent before its gauges count no longer; longer for who tells more seldom.
    /// Its counters go on from where they were if it is heard again within an hour.
    pub silence: Duration,
}

impl Default for HistoryConfig {
    /// 32,768 series (64 MiB), a million last numbers, 30 s.
    fn default() -> Self {
        HistoryConfig {
            most_series: 1 << 15,
            most_numbers: 1 << 20,
            silence: Duration::from_secs(30),
        }
    }
}

/// How full a [`History`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct HistoryReport {
    /// Series.
    pub series: usize,
    /// Last numbers of single instances.
    pub numbers: usize,
    /// Whether instances have been folded to their vertices.
    pub is_folded: bool,
    /// Numbers that were left out because there were too many.
    pub left_out: u64,
    /// About how much memory it takes.
    pub bytes: usize,
}

/// The last hour of the metrics of one job.
pub struct History {
    config: HistoryConfig,
    began: Timestamp,
    /// The newest second at which something was taken in.
    now: i64,
    /// The same in microseconds.
    newest: i64,
    /// By place; a place is empty when its series has gone.
    series: Vec<Option<Series>>,
    free: Vec<u32>,
    places: HashMap<u128, u32>,
    processes: HashMap<Labels, Process>,
    numbers: usize,
    is_folded: bool,
    left_out: u64,
    swept: i64,
    /// What counters of instances had grown by whose series have gone, by vertex. There are few vertices.
    gone: HashMap<u128, Gone>,
}

/// What is left of the series of a counter, of all instances of a vertex.
struct Gone {
    name: MetricName,
    labels: Labels,
    total: f64,
}

impl Gone {
    /// About how much memory it takes: itself and its labels.
    const BYTES: usize = size_of::<Gone>() + 64;
}

/// A process that tells metrics.
struct Process {
    started: Timestamp,
    /// Over which time its last batch tells what has grown, in microseconds: it came at the end of it.
    span: Span,
    /// How long it may be until its next batch, in microseconds.
    patience: i64,
    /// Where its counters begin: at zero, unless it is older than the history and this is its first batch.
    from_zero: bool,
    last: HashMap<u128, Last>,
}

/// What one line of a process said last.
#[derive(Clone, Copy)]
struct Last {
    number: f64,
    series: u32,
    heard: i32,
    /// Silent for long, so that it is no member of its series at present.
    is_away: bool,
}

/// How much later than the one before a batch may come, in microseconds.
const LATE_BY: i64 = 5_000_000;

/// How long what a silent counter said last is remembered, so that it goes on from there when it is heard again.
const REMEMBERED: Duration = Duration::from_secs(3_600);

impl History {
    /// Empty. `now` is the present, as with [`take`](Self::take).
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
            gone: HashMap::default(),
        }
    }

    /// Takes in a batch that came at `now`, on the clock of whoever calls this. About 400 ns a number.
    pub fn take(&mut self, batch: &Batch, now: Timestamp) {
        self.newest = self.newest.max(now.as_micros());
        self.now = self.now.max(second(now));
        let mut process = self.process(batch, now);
        let told = (process.span, self.newest + process.patience);
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
                        self.hear_again(last, line.number, told);
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
                let last = Last {
                    number: line.number,
                    series,
                    heard: self.offset(),
                    is_away: false,
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

    /// How full it is.
    pub fn report(&self) -> HistoryReport {
        let series = self.places.len();
        HistoryReport {
            series,
            numbers: self.numbers,
            is_folded: self.is_folded,
            left_out: self.left_out,
            // A table is between 7/16 and 7/8 full.
            bytes: series * (Series::BYTES + 32)
                + self.numbers * 3 / 2 * size_of::<(u128, Last)>()
                + self.processes.len() * size_of::<Process>()
                + self.gone.len() * (Gone::BYTES + 32),
        }
    }

    /// The process of a batch, taken out: new, or as it is known. If it has been started anew, what it said before has gone.
    fn process(&mut self, batch: &Batch, now: Timestamp) -> Process {
        let age = batch.at.since(batch.started);
        let (known, to) = (self.processes.remove(&batch.process), self.newest);
        let patience = micros(batch.every.min(MOST_EVERY)) + LATE_BY;
        // Both ages are of one clock each, which need not agree.
        let since_start = to.saturating_sub(micros(age));
        let (from, from_zero) = match known {
            Some(process) if process.started == batch.started => {
                let from = process.span.1;
                return Process {
                    span: (from, to),
                    patience,
                    ..process
                };
            }
            Some(before) => {
                self.release(before.last);
                (since_start.max(before.span.1), true)
            }
            // One that was forgotten is older than that.
            None if age <= now.since(self.began).min(REMEMBERED) => {
                (since_start.max(self.began.as_micros()), true)
            }
            None => (to, false),
        };
        Process {
            started: batch.started,
            span: (from.min(to), to),
            patience,
            from_zero,
            last: HashMap::default(),
        }
    }

    /// The series of this name and these labels, made if there is room.
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

    /// A line that is known has said `number`.
    fn hear_again(&mut self, last: &mut Last, number: f64, told: (Span, i64)) {
        let mut before = Some(std::mem::replace(&mut last.number, number));
        last.heard = self.offset();
        if let Some(series) = &mut self.series[last.series as usize]
            && std::mem::take(&mut last.is_away)
        {
            series.members += 1;
            if !series.is_counter {
                before = None;
            }
        }
        self.put(last.series, before, number, told);
    }

    /// `told`: over which time this is told, and until when it is to be told again.
    fn put(&mut self, place: u32, before: Option<f64>, number: f64, told: (Span, i64)) {
        let now = self.now;
        let Some(series) = &mut self.series[place as usize] else {
            return;
        };
        let (span, expected_until) = told;
        series.heard(span, expected_until);
        if series.is_counter {
            let before = before.unwrap_or(0.0);
            // Less than before: it has begun anew.
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

    /// From now on, instances of one vertex are one series. `process` is the one that has been taken out.
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

    /// Leaves out who has been silent for a while, forgets who has been for an hour, and series that nothing is left of.
    fn sweep(&mut self) {
        self.swept = self.now;
        let silence = i32::try_from(self.config.silence.as_secs()).unwrap_or(i32::MAX);
        let (now, offset) = (self.now, self.offset());
        let (mut forgotten, series) = (HashMap::default(), &mut self.series);
        self.processes.retain(|_, process| {
            let patience = i32::try_from(process.patience / 1_000_000).unwrap_or(i32::MAX);
            let silence = silence.max(patience).max(1);
            for last in process.last.values_mut() {
                let is_silent = offset - last.heard > silence;
                if let Some(series) = &mut series[last.series as usize]
                    && is_silent
                    && !last.is_away
                {
                    last.is_away = true;
                    series.leave(last.number);
                }
            }
            let is_old = |last: &Last| (offset - last.heard) as u64 > REMEMBERED.as_secs();
            forgotten.extend(process.last.extract_if(|_, last| is_old(last)));
            let heard = process.span.1.div_euclid(1_000_000);
            !process.last.is_empty() || (now - heard) as u64 <= REMEMBERED.as_secs()
        });
        self.release(forgotten);
        let (series, free, gone) = (&mut self.series, &mut self.free, &mut self.gone);
        self.places.retain(|_, place| {
            let slot = &mut series[*place as usize];
            let is_over = |one: &Series| one.members == 0 && now - one.ring.head() > 3_600;
            let is_gone = slot.as_ref().is_none_or(is_over);
            if is_gone {
                if let Some(series) = slot.take() {
                    keep_total(gone, &series);
                }
                free.push(*place);
            }
            !is_gone
        });
    }

    fn release(&mut self, last: HashMap<u128, Last>) {
        self.numbers -= last.len();
        for last in last.into_values().filter(|last| !last.is_away) {
            if let Some(series) = &mut self.series[last.series as usize] {
                series.leave(last.number);
            }
        }
    }

    /// Seconds since the history began: small enough for an `i32`.
    fn offset(&self) -> i32 {
        i32::try_from(self.now - second(self.began)).unwrap_or(i32::MAX)
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "History({:?})", self.report())
    }
}

/// Remembers what a counter of instances has come to, with those of its vertex. A folded series has no instance any more: the catalogue
/// knows whose it is.
fn keep_total(gone: &mut HashMap<u128, Gone>, series: &Series) {
    let name = series.name.as_str();
    let is_of_instances = catalogue::find(name)
        .is_some_and(|it| it.kind == Kind::Counter && it.labels.contains(&"instance"));
    if !is_of_instances || !series.is_counter || series.total <= 0.0 {
        return;
    }
    let labels = folded(&series.labels);
    let total = gone
        .entry(key(name, "", &labels, None))
        .or_insert_with(|| Gone {
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

/// 128 bits that stand for a name with labels: no two of a few million are the same by chance.
fn key(name: &str, suffix: &str, labels: &Labels, own: Option<(&str, &str)>) -> u128 {
    let pairs = labels.iter().chain(own);
    let texts = pairs.flat_map(|(name, value)| [name, value]);
    let mut bytes = Vec::with_capacity(128);
    for text in [name, suffix].into_iter().chain(texts) {
        bytes.extend_from_slice(text.as_bytes());
        // No text holds this byte.
        bytes.push(0xff);
    }
    xxh3_128(&bytes)
}

#[cfg(test)]
#[path = "history/history_tests.rs"]
mod tests;
