//! Queries of the metrics history, and their results.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_core::Timestamp;
use serde::Serialize;

use super::History;
use super::series::Series;
use crate::catalogue::Fold;
use crate::{Labels, MetricName};

/// The resolution of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Cells of one second, for the last minute.
    Seconds,
    /// Cells of ten seconds, for the last hour.
    TenSeconds,
}

/// A selection of series by name and labels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    name: MetricName,
    labels: Vec<(String, String)>,
}

impl Selector {
    /// Selects all series of this name. A histogram has several series with separate names, as in
    /// Prometheus: `…_count`, and `…_bucket` with the label `le`.
    pub fn of(name: &str) -> Self {
        Selector {
            name: MetricName::new(name),
            labels: Vec::new(),
        }
    }

    /// Restricts the selection to series with this label.
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

/// The newest value of a series.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Latest {
    /// All labels of the series.
    pub labels: Labels,
    /// The level of a gauge; the growth of a counter since the start of the history, including
    /// restarts.
    pub value: f64,
}

/// A value of a series in one time cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// The start of the time cell.
    pub at: Timestamp,
    /// The level of a gauge at the end of the cell; the growth of a counter in the cell.
    pub value: f64,
}

/// Serializes the point as `[seconds since 1970, value]`.
impl Serialize for Point {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (crate::collect::seconds(self.at), self.value).serialize(serializer)
    }
}

/// The values of one series, or of several aggregated series, ordered by time. Cells without a
/// report have no point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Curve {
    /// The labels of the series; for aggregated series, the grouping labels.
    pub labels: Labels,
    /// The values, ordered by time.
    pub points: Vec<Point>,
}

impl History {
    /// Returns the newest value of each selected series, ordered by labels. Processes without a
    /// recent report are omitted.
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

    /// Returns the growth of the selected counters since the start of the history, grouped by the
    /// labels `by`. Unlike a sum over [`latest`](Self::latest), the result never decreases for
    /// instance counters of the [`catalogue`](crate::catalogue), because they count even when their
    /// processes are gone. After an hour without a report, these counters are known by vertex only,
    /// so `by` must not contain `instance` or `container`. Other counters are removed after an
    /// hour.
    pub fn grown(&self, selector: &Selector, by: &[&str]) -> Vec<Latest> {
        let series = self.series.iter().flatten();
        let series = series.filter(|series| series.is_counter);
        let present = series.map(|series| (&series.name, &series.labels, series.total));
        let gone = self.removed_totals.values();
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

    /// Returns the values of each selected series, from the cell of `from` to the cell of `to`,
    /// ordered by labels. A counter's incomplete last cell is omitted, because its value would be
    /// too low.
    pub fn range(
        &self,
        selector: &Selector,
        grain: Resolution,
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

    /// Returns the last known values, in cells of one second over the duration `over`, of each
    /// selected series that is reported at present. A process whose batch is some seconds overdue
    /// is omitted. `now` is the current time, as for [`take`](Self::take). The age of the values
    /// depends on the reporting interval.
    pub fn recent(&self, selector: &Selector, over: Duration, now: Timestamp) -> Vec<Curve> {
        let series = self.series.iter().flatten();
        let told = series.filter(|series| {
            let is_told = series.members > 0 && series.expected_until >= now.as_micros();
            is_told && selector.takes(series)
        });
        let mut curves: Vec<Curve> = told
            .map(|series| {
                let last = self.last_slot(series, Resolution::Seconds, self.known_until(series));
                let second = |slot| Timestamp::from_secs(slot);
                let from = last - i64::try_from(over.as_secs()).unwrap_or(i64::MAX) + 1;
                Curve {
                    labels: series.labels.clone(),
                    points: self.points(series, Resolution::Seconds, second(from), second(last)),
                }
            })
            .filter(|curve| !curve.points.is_empty())
            .collect();
        curves.sort_by(|one, other| one.labels.cmp(&other.labels));
        curves
    }

    /// Returns the values as [`range`](Self::range), aggregated by the labels `by`. Counters and
    /// most gauges are summed. Of other gauges the maximum or minimum is taken, as defined by the
    /// [`catalogue`](crate::catalogue).
    pub fn sum_by(
        &self,
        selector: &Selector,
        by: &[&str],
        grain: Resolution,
        from: Timestamp,
        to: Timestamp,
    ) -> Vec<Curve> {
        let mut groups: BTreeMap<Labels, BTreeMap<Timestamp, f64>> = BTreeMap::new();
        let series = self.series.iter().flatten();
        let series: Vec<&Series> = series.filter(|series| selector.takes(series)).collect();
        // A sum is complete only where all member series have values.
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

    /// Returns the quantile `rank` of a histogram (such as 0.99 of
    /// `ardea_complete_latency_seconds`), grouped by the labels `by`, for each cell with
    /// observations.
    ///
    /// As in Prometheus, the quantile is interpolated linearly within its bucket. Above all bounds,
    /// the result is the last bound.
    pub fn quantile(
        &self,
        rank: f64,
        histogram: &Selector,
        by: &[&str],
        grain: Resolution,
        (from, to): (Timestamp, Timestamp),
    ) -> Vec<Curve> {
        let buckets = Selector {
            name: MetricName::new(&format!("{}_bucket", histogram.name)),
            labels: histogram.labels.clone(),
        };
        let with_bound: Vec<&str> = by.iter().copied().chain(["le"]).collect();
        let mut groups: BTreeMap<Labels, BTreeMap<Timestamp, Vec<(f64, f64)>>> = BTreeMap::new();
        for curve in self.sum_by(&buckets, &with_bound, grain, from, to) {
            // `+Inf` is a valid number in Rust as well.
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

    /// Returns the names of all series, sorted.
    pub fn names(&self) -> Vec<MetricName> {
        let series = self.series.iter().flatten();
        let mut names: Vec<MetricName> = series.map(|series| series.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    fn points(
        &self,
        series: &Series,
        grain: Resolution,
        from: Timestamp,
        to: Timestamp,
    ) -> Vec<Point> {
        let secs = grain.secs();
        let slot = |time: Timestamp| time.as_micros().div_euclid(1_000_000 * secs);
        let newest = series.ring.head().div_euclid(secs);
        // At most as many cells are visited as a ring contains.
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

    /// Returns the time until which a series is complete, in microseconds. A series that is not
    /// reported at present is complete.
    fn known_until(&self, series: &Series) -> i64 {
        let is_told = series.members > 0 && series.expected_until >= self.newest;
        match is_told && series.is_counter {
            true => series.known_until,
            false => self.newest,
        }
    }

    /// Returns the number of the last cell of a series with a value. For a counter, it is the last
    /// cell that ends before `known_until`.
    fn last_slot(&self, series: &Series, grain: Resolution, known_until: i64) -> i64 {
        let newest = series.ring.head().div_euclid(grain.secs());
        if !series.is_counter {
            return newest;
        }
        newest.min(known_until.div_euclid(1_000_000 * grain.secs()) - 1)
    }
}

/// Estimates the quantile of this rank from cumulative buckets `(upper_bound, count)`. Returns
/// `None` without observations.
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
        // Above all bounds, the result is the last bound.
        assert_eq!(quantile(0.99), 2.0);
        assert_eq!((quantile(-1.0), quantile(2.0)), (0.0, 2.0));
        assert_eq!(
            quantile_of(0.5, vec![(1.0, 0.0), (f64::INFINITY, 0.0)]),
            None
        );
        assert_eq!(quantile_of(0.5, Vec::new()), None);
    }
}
