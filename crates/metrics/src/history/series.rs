//! One series: its name, labels and values.

use super::ring::{Ring, Span};
use crate::catalogue::Fold;
use crate::{Labels, MetricName};

/// A series: the values of one name and one set of labels, of one instance or of all instances of a
/// vertex.
#[derive(Clone)]
pub(super) struct Series {
    pub(super) name: MetricName,
    pub(super) labels: Labels,
    pub(super) is_counter: bool,
    /// The aggregation of gauges over instances.
    pub(super) fold: Fold,
    /// The number of members: processes and instances that report the series at present.
    pub(super) members: u32,
    /// The growth of a counter, or the sum of the last values of a gauge's members.
    pub(super) total: f64,
    /// For a gauge aggregated by maximum or minimum, the values in the second before the newest and
    /// in the newest second.
    pub(super) recent: [f64; 2],
    /// The values by time cell: the growth of a counter, or the level of a gauge.
    pub(super) ring: Ring,
    /// The time until which the series is complete, in microseconds. Later cells may still grow.
    pub(super) known_until: i64,
    /// The time by which the next report is expected, in microseconds. After it, the series counts
    /// as not reported at present.
    pub(super) expected_until: i64,
}

impl Fold {
    pub(super) fn join(self, one: f64, other: f64) -> f64 {
        match self {
            Fold::Sum => one + other,
            Fold::Max => one.max(other),
            Fold::Min => one.min(other),
        }
    }
}

impl Series {
    /// The approximate memory use of a series: the ring, itself and its labels.
    pub(super) const BYTES: usize = Ring::BYTES + size_of::<Series>() + 64;

    pub(super) fn new(
        name: MetricName,
        labels: Labels,
        is_counter: bool,
        fold: Fold,
        second: i64,
    ) -> Self {
        Series {
            name,
            labels,
            is_counter,
            fold,
            members: 0,
            total: 0.0,
            recent: [f64::NAN; 2],
            ring: Ring::new(second),
            known_until: i64::MIN,
            expected_until: i64::MIN,
        }
    }

    /// Records that a member has reported for a time range. Its next report is expected by
    /// `expected_until`.
    pub(super) fn record_report(&mut self, (from, to): Span, expected_until: i64) {
        // With several members, the reports of the other members cover at least the time before
        // this range.
        let known = if self.members > 1 { from } else { to };
        self.known_until = self.known_until.max(known);
        self.expected_until = self.expected_until.max(expected_until);
    }

    /// Records the growth of a member's counter over a time range.
    pub(super) fn grow(&mut self, span: Span, by: f64) {
        self.total += by;
        self.ring.spread(span, by);
    }

    /// Records the change of a member's gauge from `before`, if any, to `now`.
    pub(super) fn level(&mut self, second: i64, before: Option<f64>, now: f64) {
        if self.members == 1 {
            self.total = now;
            self.recent = [f64::NAN, now];
            self.ring.put(second, now, |_, new| new);
        } else if self.fold == Fold::Sum {
            self.total += now - before.unwrap_or(0.0);
            self.ring.put(second, self.total, |_, new| new);
        } else {
            let fold = self.fold;
            if second > self.ring.head() {
                self.recent = [self.recent[1], now];
            } else {
                self.recent[1] = fold.join(self.recent[1], now);
            }
            self.ring
                .put(second, now, |one, other| fold.join(one, other));
        }
    }

    /// Removes a member whose last value was `last`.
    pub(super) fn remove_member(&mut self, last: f64) {
        self.members = self.members.saturating_sub(1);
        if !self.is_counter && self.fold == Fold::Sum {
            self.total -= last;
        }
    }

    /// Returns the level of a gauge or the growth of a counter.
    pub(super) fn latest(&self) -> f64 {
        if self.is_counter || self.fold == Fold::Sum || self.members == 1 {
            return self.total;
        }
        // Not all members have reported in the newest second yet. `max` and `min` ignore NaN.
        self.fold.join(self.recent[0], self.recent[1])
    }

    /// Merges the series `other`, which has other members, into this one.
    pub(super) fn merge(&mut self, other: &Series) {
        let fold = if self.is_counter {
            Fold::Sum
        } else {
            self.fold
        };
        self.members += other.members;
        self.total += other.total;
        self.known_until = self.known_until.min(other.known_until);
        self.expected_until = self.expected_until.max(other.expected_until);
        for (own, other) in self.recent.iter_mut().zip(other.recent) {
            *own = if own.is_nan() {
                other
            } else {
                fold.join(*own, other)
            };
        }
        self.ring
            .merge(&other.ring, |one, other| fold.join(one, other));
    }
}
