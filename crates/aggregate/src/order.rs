//! Rankings of records: by a key, by a comparison, or by their own order.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

/// An order over values of type `T`, for extremes and top-n.
///
/// It must be a consistent weak order, as [`Ord`] requires. Values that compare as equal rank
/// alike, and the order of arrival may decide which of them is retained.
pub trait Ranking<T: ?Sized>: Send + Sync + 'static {
    /// Compares the ranks of `a` and `b`.
    fn compare(&self, a: &T, b: &T) -> Ordering;
}

/// A ranking of values by their own order.
#[derive(Clone, Copy, Debug, Default)]
pub struct NaturalOrder;

impl<T: Ord + ?Sized> Ranking<T> for NaturalOrder {
    #[inline]
    fn compare(&self, a: &T, b: &T) -> Ordering {
        a.cmp(b)
    }
}

/// A ranking of records by a key.
#[derive(Clone, Copy, Debug)]
pub struct ByKey<F>(pub F);

impl<T: ?Sized, K: Ord, F: Fn(&T) -> K + Send + Sync + 'static> Ranking<T> for ByKey<F> {
    #[inline]
    fn compare(&self, a: &T, b: &T) -> Ordering {
        (self.0)(a).cmp(&(self.0)(b))
    }
}

/// A ranking of records by a comparison.
#[derive(Clone, Copy, Debug)]
pub struct ByComparison<F>(pub F);

impl<T: ?Sized, F: Fn(&T, &T) -> Ordering + Send + Sync + 'static> Ranking<T> for ByComparison<F> {
    #[inline]
    fn compare(&self, a: &T, b: &T) -> Ordering {
        (self.0)(a, b)
    }
}

/// The reverse of a ranking.
#[derive(Clone, Copy, Debug)]
pub struct Reversed<R>(pub R);

impl<T: ?Sized, R: Ranking<T>> Ranking<T> for Reversed<R> {
    #[inline]
    fn compare(&self, a: &T, b: &T) -> Ordering {
        self.0.compare(b, a)
    }
}

/// A float in the total order of IEEE 754, so that it can be a key: `max(|r: &Reading|
/// TotalF64(r.celsius))`.
///
/// `-0.0` is below `0.0`. NaN is above infinity, or below negative infinity if the sign bit is set.
/// To ignore records with NaN, [filter](crate::filtering) them out.
///
/// ```
/// use ardea_aggregate::{Aggregate, TotalF64, max};
///
/// let warmest = max(|celsius: &f64| TotalF64(*celsius)).of_all(&[18.5, 21.0, -3.0]);
/// assert_eq!(warmest, Some(TotalF64(21.0)));
/// ```
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TotalF64(pub f64);

impl Ord for TotalF64 {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for TotalF64 {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for TotalF64 {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for TotalF64 {}

impl Hash for TotalF64 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl From<f64> for TotalF64 {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

impl From<TotalF64> for f64 {
    fn from(value: TotalF64) -> Self {
        value.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_a_total_order_with_nan_at_the_end() {
        let mut floats = [f64::NAN, 1.0, f64::INFINITY, -0.0, 0.0, f64::NEG_INFINITY].map(TotalF64);
        floats.sort();
        let expected = [f64::NEG_INFINITY, -0.0, 0.0, 1.0, f64::INFINITY, f64::NAN].map(TotalF64);
        assert_eq!(floats, expected);
    }

    #[test]
    fn a_reversed_ranking_ranks_the_other_way_round() {
        let by_length = ByKey(|word: &&str| word.len());
        assert_eq!(by_length.compare(&"a", &"bb"), Ordering::Less);
        assert_eq!(Reversed(by_length).compare(&"a", &"bb"), Ordering::Greater);
    }
}
