//! Questions about the history, and their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_core::Timestamp;
use serde::Serialize;

use super::History;
use super::series::Series;
use crate::catalogue::Fold;
use crate::{Labels, MetricName};

/// How closely the history is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grain {
    /// By seconds: the last minute.
    Seconds,
    /// By ten seconds: the last hour.
    TenSeconds,
}

/// Which series are asked for: a name, and labels that they must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    name: MetricName,
    labels: Vec<(String, String)>,
}

impl Selector {
    /// All series of this name. The lines of a distribution have names of their own, as in Prometheus: `…_count`,
    /// `…_bucket` with the label `le`.
    pub fn of(name: &str) -> Self {
        Selector {
            name: MetricName::new(name),
            labels: Vec::new(),
        }
    }

    /// Of these, those with this label.
    pub fn with(mut self, label: &str, value: impl Into<String>) -> Self {
        self.labels.push((label.to_string(), value.into()));
        self
    }

    fn takes(&self, series: &Series) -> bool {
        self.matches(&series.name, &series.labels)
    }

    fn matches(&self, name: &MetricName, labels: &Labels) -> bool {
        let mut wanted = self.labels.iter();
        *name == self.name && wanted.all(|(name, value)| labels.get(name) == Some(&**value))
    }
}

/// The newest number of a series.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Latest {
    /// All labels of the series.
    pub labels: Labels,
    /// A gauge's level; of a counter, how much it has grown since the history knows it, restarts included.
    pub value: f64,
}

/// A number at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// When its cell begins.
    pub at: Timestamp,
    /// A gauge's level at the cell's end; of a counter, how much it grew in the cell.
    pub value: f64,
}

/// As `[seconds since 1970, value]`.
impl Serialize for Point {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (crate::readings::seconds(self.at), self.value).serialize(serializer)
    }
}

/// The numbers of a series, or of several as one, in the order of time. What is missing was not told.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Curve {
    /// The labels that all of them share, or by which they were asked for.
    pub labels: Labels,
    /// The numbers.
    pub points: Vec<Point>,
}

impl History {
    /// The newest number of each series that `selector` takes, by labels. Processes that were not heard of for a while are
    /// left out.
    pub fn latest(&self, selector: &Selector) -> Vec<Latest> {
        let series = self.series.iter().flatten();
        let mut latest: Vec<Latest> = series
            .filter(|series| series.members > 0 && selector.takes(series))
            .map(|series| Latest {
                labels: series.labels.clone(),
                value: series.latest(),
            })
            .collect();
        latest.sort_by(|one, other| one.labels.cmp(&other.labels));
        latest
    }

    /// How much the counters that `selector` takes have grown since the history knows them, as one where they agree in the
    /// labels `by`. Those of instances that the [`catalogue`](crate::catalogue) has count as well when their processes are gone,
    /// so this never falls, unlike a sum over [`latest`](Self::latest). What has not been told for an hour is known by vertex
    /// only: `instance` and `container` are not to be among the labels. Others are forgotten by then.
    pub fn grown(&self, selector: &Selector, by: &[&str]) -> Vec<Latest> {
        let series = self.series.iter().flatten();
        let series = series.filter(|series| series.is_counter);
        let present = series.map(|series| (&series.name, &series.labels, series.total));
        let gone = self.gone.values();
        let gone = gone.map(|gone| (&gone.name, &gone.labels, gone.total));
        let mut groups: BTreeMap<Labels, f64> = BTreeMap::new();
        for (name, labels, total) in present.chain(gone) {
            if selector.matches(name, labels) {
                *groups.entry(labels.only(by)).or_default() += total;
            }
        }
        let latest = |(labels, value)| Latest { labels, value };
        groups.into_iter().map(latest).collect()
    }

    /// The numbers of each series that `selector` takes, from the cell that holds `from` to the one that holds `to`, by
    /// labels. A counter's cell that has not been told to its end yet is left out: it would be too low.
    pub fn range(
        &self,
        selector: &Selector,
        grain: Grain,
        from: Timestamp,
        to: Timestamp,
    ) -> Vec<Curve> {
        let series = self.series.iter().flatten();
        let mut curves: Vec<Curve> = series
            .filter(|series| selector.takes(series))
            .map(|series| Curve {
                labels: series.labels.clone(),
                points: self.points(series, grain, from, to),
            })
            .filter(|curve| !curve.points.is_empty())
            .collect();
        curves.sort_by(|one, other| one.labels.cmp(&other.labels));
        curves
    }

    /// The last numbers that are known, by seconds and over so long, of each series that `selector` takes and that is told at
    /// present: a process that was not heard of for some seconds more than it lets pass between two batches is left out. `now`
    /// is the present, as with [`take`](Self::take). How long ago those last numbers are depends on how often a process tells
    /// its metrics.
    pub fn recent(&self, selector: &Selector, over: Duration, now: Timestamp) -> Vec<Curve> {
        let series = self.series.iter().flatten();
        let told = series.filter(|series| {
            let is_told = series.members > 0 && series.expected_until >= now.as_micros();
            is_told && selector.takes(series)
        });
        let mut curves: Vec<Curve> = told
            .map(|series| {
                let last = self.last_slot(series, Grain::Seconds, self.known_until(series));
                let second = |slot| Timestamp::from_secs(slot);
                let from = last - i64::try_from(over.as_secs()).unwrap_or(i64::MAX) + 1;
                Curve {
                    labels: series.labels.clone(),
                    points: self.points(series, Grain::Seconds, second(from), second(last)),
                }
            })
            .filter(|curve| !curve.points.is_empty())
            .collect();
        curves.sort_by(|one, other| one.labels.cmp(&other.labels));
        curves
    }

    /// As [`range`](Self::range), with all series as one that agree in the labels `by`: counters and most gauges are added
    /// up, of other gauges the largest or smallest counts, as [`catalogue`](crate::catalogue) says.
    pub fn sum_by(
        &self,
        selector: &Selector,
        by: &[&str],
        grain: Grain,
        from: Timestamp,
        to: Timestamp,
    ) -> Vec<Curve> {
        let mut groups: BTreeMap<Labels, BTreeMap<Timestamp, f64>> = BTreeMap::new();
        let series = self.series.iter().flatten();
        let series: Vec<&Series> = series.filter(|series| selector.takes(series)).collect();
        // What only some have told is no sum.
        let known_until = series.iter().map(|series| self.known_until(series)).min();
        let known_until = known_until.unwrap_or(i64::MAX);
        for series in series {
            let group = groups.entry(series.labels.only(by)).or_default();
            let fold = if series.is_counter {
                Fold::Sum
            } else {
                series.fold
            };
            let last = self.last_slot(series, grain, known_until);
            let to = to.min(Timestamp::from_secs(last * grain.secs()));
            for point in self.points(series, grain, from, to) {
                group
                    .entry(point.at)
                    .and_modify(|value| *value = fold.join(*value, point.value))
                    .or_insert(point.value);
            }
        }
        let curve = |(labels, points): (Labels, BTreeMap<Timestamp, f64>)| Curve {
            labels,
            points: points
                .into_iter()
                .map(|(at, value)| Point { at, value })
                .collect(),
        };
        groups
            .into_iter()
            .map(curve)
            .filter(|curve| !curve.points.is_empty())
            .collect()
    }

    /// A quantile of a histogram, such as the 0.99 of `ardea_complete_latency_seconds`: of all series as one that agree in the labels
    /// `by`, in each cell in which something was observed.
    ///
    /// It is reckoned as Prometheus does, straight between the bounds of the bucket in which it lies; above all bounds it is
    /// the last of them.
    pub fn quantile(
        &self,
        rank: f64,
        histogram: &Selector,
        by: &[&str],
        grain: Grain,
        (from, to): (Timestamp, Timestamp),
    ) -> Vec<Curve> {
        let buckets = Selector {
            name: MetricName::new(&format!("{}_bucket", histogram.name)),
            labels: histogram.labels.clone(),
        };
        let with_bound: Vec<&str> = by.iter().copied().chain(["le"]).collect();
        let mut groups: BTreeMap<Labels, BTreeMap<Timestamp, Vec<(f64, f64)>>> = BTreeMap::new();
        for curve in self.sum_by(&buckets, &with_bound, grain, from, to) {
            // `+Inf` is a number for Rust as well.
            let Some(bound) = curve.labels.get("le").and_then(|le| le.parse().ok()) else {
                continue;
            };
            let group = groups.entry(curve.labels.without(&["le"])).or_default();
            for point in curve.points {
                group
                    .entry(point.at)
                    .or_default()
                    .push((bound, point.value));
            }
        }
        let curve = |(labels, cells): (Labels, BTreeMap<Timestamp, Vec<(f64, f64)>>)| Curve {
            labels,
            points: cells
                .into_iter()
                .filter_map(|(at, buckets)| {
                    let value = quantile_of(rank, buckets)?;
                    Some(Point { at, value })
                })
                .collect(),
        };
        let curves = groups.into_iter().map(curve);
        curves.filter(|curve| !curve.points.is_empty()).collect()
    }

    /// The names of all series, sorted.
    pub fn names(&self) -> Vec<MetricName> {
        let series = self.series.iter().flatten();
        let mut names: Vec<MetricName> = series.map(|series| series.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    fn points(&self, series: &Series, grain: Grain, from: Timestamp, to: Timestamp) -> Vec<Point> {
        let secs = grain.secs();
        let slot = |time: Timestamp| time.as_micros().div_euclid(1_000_000 * secs);
        let newest = series.ring.head().div_euclid(secs);
        // No more than a ring holds is looked at, whatever is asked for.
        let oldest = newest - 3_600 / secs;
        let last = self.last_slot(series, grain, self.known_until(series));
        (slot(from).max(oldest)..=slot(to).min(last))
            .filter_map(|slot| {
                Some(Point {
                    at: Timestamp::from_secs(slot * secs),
                    value: series.ring.get(grain, slot)?,
                })
            })
            .collect()
    }

    /// Until when it is known what a series says, in microseconds. Of one that nobody tells at present there is no more to come.
    fn known_until(&self, series: &Series) -> i64 {
        let is_told = series.members > 0 && series.expected_until >= self.newest;
        match is_told && series.is_counter {
            true => series.known_until,
            false => self.newest,
        }
    }

    /// The last cell of a series that has anything to say: of a counter the last that is over, when it is known until then.
    fn last_slot(&self, series: &Series, grain: Grain, known_until: i64) -> i64 {
        let newest = series.ring.head().div_euclid(grain.secs());
        if !series.is_counter {
            return newest;
        }
        newest.min(known_until.div_euclid(1_000_000 * grain.secs()) - 1)
    }
}

/// The quantile of this rank, from bounds with how many are not above each; `None` if there are none at all.
fn quantile_of(rank: f64, mut buckets: Vec<(f64, f64)>) -> Option<f64> {
    buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let all = buckets
        .last()
        .map(|(_, count)| *count)
        .filter(|count| *count > 0.0)?;
    let wanted = rank.clamp(0.0, 1.0) * all;
    let (mut below, mut counted) = (0.0, 0.0);
    for (bound, count) in buckets {
        if count >= wanted && count > counted {
            if bound.is_infinite() {
                return Some(below);
            }
            return Some(below + (bound - below) * (wanted - counted) / (count - counted));
        }
        (below, counted) = (bound, count);
    }
    Some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        let buckets = vec![(f64::INFINITY, 100.0), (1.0, 40.0), (2.0, 90.0)];
        let quantile = |rank| quantile_of(rank, buckets.clone()).expect("there are some");
        assert_eq!(quantile(0.2), 0.5);
        assert_eq!(quantile(0.4), 1.0);
        assert_eq!(quantile(0.65), 1.5);
        // Above all bounds: no more is known than the last of them.
        assert_eq!(quantile(0.99), 2.0);
        assert_eq!((quantile(-1.0), quantile(2.0)), (0.0, 2.0));
        assert_eq!(
            quantile_of(0.5, vec![(1.0, 0.0), (f64::INFINITY, 0.0)]),
            None
        );
        assert_eq!(quantile_of(0.5, Vec::new()), None);
    }
}
