//! One series: what it is called, and what is known of it.

use super::ring::{Ring, Span};
use crate::catalogue::Fold;
use crate::{Labels, MetricName};

/// The numbers under one name and one set of labels: of one instance, or of all instances of a vertex.
#[derive(Clone)]
pub(super) struct Series {
    pub(super) name: MetricName,
    pub(super) labels: Labels,
    pub(super) is_counter: bool,
    /// How gauges of several instances become one.
    pub(super) fold: Fold,
    /// How many processes and instances tell it at present.
    pub(super) members: u32,
    /// A counter's growth so far, or the sum of what the members of a gauge said last.
    pub(super) total: f64,
    /// What a gauge without a sum was in the second before the newest, and in the newest.
    pub(super) recent: [f64; 2],
    /// What each cell holds: a counter's growth, a gauge's level.
    pub(super) ring: Ring,
    /// Until when what it says is known, in microseconds: later cells may still grow.
    pub(super) known_until: i64,
    /// Until when it is expected to be told again at the latest, in microseconds: after that, nobody tells it at present.
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
    /// About how much memory a series takes: the ring, itself and its labels.
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

    /// A member has told what has been up to the end of a time, and tells more by `expected_until`.
    pub(super) fn heard(&mut self, (from, to): Span, expected_until: i64) {
        // Others of several members are told at most about as long ago as this one was before.
        let known = if self.members > 1 { from } else { to };
        self.known_until = self.known_until.max(known);
        self.expected_until = self.expected_until.max(expected_until);
    }

    /// A member's counter has grown over a time.
    pub(super) fn grow(&mut self, span: Span, by: f64) {
        self.total += by;
        self.ring.spread(span, by);
    }

    /// A member's gauge was `before`, or nothing, and is `now`.
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

    /// A member has gone, whose number was `last`.
    pub(super) fn leave(&mut self, last: f64) {
        self.members = self.members.saturating_sub(1);
        if !self.is_counter && self.fold == Fold::Sum {
            self.total -= last;
        }
    }

    /// A gauge's level or a counter's growth.
    pub(super) fn latest(&self) -> f64 {
        if self.is_counter || self.fold == Fold::Sum || self.members == 1 {
            return self.total;
        }
        // Not every member has been heard in the newest second yet. `max` and `min` leave out what is not a number.
        self.fold.join(self.recent[0], self.recent[1])
    }

    /// Joins another series, of other members, with this one.
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
