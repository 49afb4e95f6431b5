//! Tests of the laws of an aggregate, for the aggregates of this crate and for custom ones.
//!
//! The checks take records and try many ways to split, order, combine and deduct them; proptest or
//! a loop supplies the records. A broken law is reported as an error with the law and both results.
//!
//! ```
//! use ardea_aggregate::{custom, laws};
//!
//! // An average of averages is not an average.
//! let wrong = custom(
//!     || 0.0,
//!     |mean, v: &f64| *mean = (*mean + v) / 2.0,
//!     |mean, other| *mean = (*mean + other) / 2.0,
//!     |mean| *mean,
//! );
//! let broken = laws::check(&wrong, &[1.0, 2.0, 6.0]).unwrap_err();
//! assert_eq!(broken.law, laws::Law::Identity);
//! ```

use std::fmt::{self, Debug};

use crate::compose::accumulators_of;
use crate::{Aggregate, CoAggregate2, CoAggregate3};

/// The maximum number of places at which records are split in two: the ends and evenly spaced
/// places between.
const CUTS: usize = 12;
/// The sizes of chunks into which records are split, and the numbers of threads over which they are
/// distributed.
const CHUNKS: [usize; 4] = [1, 2, 3, 7];
/// The number of slices in a sliding window, for each slice size in [`CHUNKS`].
const SLICES_IN_WINDOW: usize = 4;

/// A law of [`Aggregate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Law {
    /// Combining with an empty accumulator, from either side, changes nothing.
    Identity,
    /// Parts accumulated separately and combined give the result of the whole.
    Split,
    /// The order of records, and of combining, does not matter.
    Order,
    /// The grouping of combinations does not matter.
    Associativity,
    /// Finishing does not change the accumulator.
    Finish,
    /// Deducting is the inverse of combining, and leaves no trace.
    Deduct,
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "an empty accumulator changes nothing",
            Self::Split => "parts combined give what the whole gives",
            Self::Order => "order does not matter",
            Self::Associativity => "grouping does not matter",
            Self::Finish => "finishing leaves the accumulator as it is",
            Self::Deduct => "deducting undoes combining",
        })
    }
}

/// A law that an aggregate broke, with details.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the aggregate breaks the law “{law}”: {detail}")]
pub struct BrokenLaw {
    /// The broken law.
    pub law: Law,
    /// The test, its result and the expected result.
    pub detail: String,
}

/// Tests all laws on `records`, comparing results by `==`.
///
/// For results whose items may be in any order, or that are approximate or contain NaN, use
/// [`check_by`]. Takes about 200 accumulations per record; 20 to 50 records are suitable.
///
/// # Errors
///
/// The first broken law.
pub fn check<T, A>(aggregate: &A, records: &[T]) -> Result<(), BrokenLaw>
where
    A: Aggregate<T>,
    A::Out: PartialEq + Debug,
{
    check_by(aggregate, records, |a, b| a == b)
}

/// Tests all laws on `records`, comparing results by `same`.
///
/// ```
/// use ardea_aggregate::{collect_list, laws};
/// laws::check_by(&collect_list(), &[3, 1, 2], |a: &Vec<i32>, b| laws::same_items(a, b))?;
/// # Ok::<(), laws::BrokenLaw>(())
/// ```
///
/// # Errors
///
/// The first broken law.
pub fn check_by<T, A>(
    aggregate: &A,
    records: &[T],
    same: impl Fn(&A::Out, &A::Out) -> bool,
) -> Result<(), BrokenLaw>
where
    A: Aggregate<T>,
    A::Out: Debug,
{
    let trial = LawCheck {
        aggregate,
        records,
        same,
    };
    trial.identity()?;
    trial.split()?;
    trial.order()?;
    trial.associativity()?;
    trial.finish()?;
    if A::DEDUCTS {
        trial.deduct()?;
        trial.slide()?;
    }
    Ok(())
}

/// Returns true if two slices have the same items in any order. For [`check_by`].
#[must_use]
pub fn same_items<V: Ord>(a: &[V], b: &[V]) -> bool {
    let mut a: Vec<&V> = a.iter().collect();
    let mut b: Vec<&V> = b.iter().collect();
    a.sort_unstable();
    b.sort_unstable();
    a == b
}

/// Tests all laws on an aggregate of two inputs, whose records alternate.
///
/// # Errors
///
/// The first broken law.
pub fn check_co2<T0, T1, A>(aggregate: A, first: &[T0], second: &[T1]) -> Result<(), BrokenLaw>
where
    T0: Clone + 'static,
    T1: Clone + 'static,
    A: CoAggregate2<T0, T1>,
    A::Out: PartialEq + Debug,
{
    let first = first.iter().cloned().map(OfTwo::First);
    let second = second.iter().cloned().map(OfTwo::Second);
    check(
        &Tagged(aggregate),
        &in_turn(vec![first.collect(), second.collect()]),
    )
}

/// Tests all laws on an aggregate of three inputs, whose records alternate.
///
/// # Errors
///
/// The first broken law.
pub fn check_co3<T0, T1, T2, A>(
    aggregate: A,
    first: &[T0],
    second: &[T1],
    third: &[T2],
) -> Result<(), BrokenLaw>
where
    T0: Clone + 'static,
    T1: Clone + 'static,
    T2: Clone + 'static,
    A: CoAggregate3<T0, T1, T2>,
    A::Out: PartialEq + Debug,
{
    let first = first.iter().cloned().map(OfThree::First);
    let second = second.iter().cloned().map(OfThree::Second);
    let third = third.iter().cloned().map(OfThree::Third);
    check(
        &Tagged(aggregate),
        &in_turn(vec![first.collect(), second.collect(), third.collect()]),
    )
}

/// An aggregate under test.
struct LawCheck<'a, T, A, S> {
    aggregate: &'a A,
    records: &'a [T],
    same: S,
}

impl<T, A, S> LawCheck<'_, T, A, S>
where
    A: Aggregate<T>,
    A::Out: Debug,
    S: Fn(&A::Out, &A::Out) -> bool,
{
    fn identity(&self) -> Result<(), BrokenLaw> {
        for cut in self.cuts() {
            let part = self.accumulated(&self.records[..cut]);
            let empty = self.aggregate.create();
            let with_empty = self.combined(&part, &empty);
            self.agree(Law::Identity, &with_empty, &part, || {
                format!("{cut} records + none")
            })?;
            let with_part = self.combined(&empty, &part);
            self.agree(Law::Identity, &with_part, &part, || {
                format!("none + {cut} records")
            })?;
        }
        Ok(())
    }

    fn split(&self) -> Result<(), BrokenLaw> {
        let whole = self.accumulated(self.records);
        for cut in self.cuts() {
            let (left, right) = self.parts(cut);
            let combined = self.combined(&left, &right);
            self.agree(Law::Split, &combined, &whole, || {
                format!("cut after {cut} records")
            })?;
        }
        for size in CHUNKS {
            let mut acc = self.aggregate.create();
            for chunk in self.records.chunks(size) {
                self.aggregate.combine(&mut acc, &self.accumulated(chunk));
            }
            self.agree(Law::Split, &acc, &whole, || format!("in chunks of {size}"))?;
        }
        Ok(())
    }

    fn order(&self) -> Result<(), BrokenLaw> {
        let whole = self.accumulated(self.records);
        let reversed = self.accumulated(self.records.iter().rev());
        self.agree(Law::Order, &reversed, &whole, || "in reverse".to_owned())?;
        for cut in self.cuts() {
            let (left, right) = self.parts(cut);
            let swapped = self.combined(&right, &left);
            self.agree(Law::Order, &swapped, &whole, || {
                format!("from {cut} on, and then the records before")
            })?;
        }
        for threads in CHUNKS {
            let mut acc = self.aggregate.create();
            for thread in 0..threads {
                let dealt = self.accumulated(self.records.iter().skip(thread).step_by(threads));
                self.aggregate.combine(&mut acc, &dealt);
            }
            self.agree(Law::Order, &acc, &whole, || {
                format!("dealt out to {threads} threads")
            })?;
        }
        Ok(())
    }

    fn associativity(&self) -> Result<(), BrokenLaw> {
        for second_cut in self.cuts() {
            let first_cut = second_cut / 2;
            let a = self.accumulated(&self.records[..first_cut]);
            let b = self.accumulated(&self.records[first_cut..second_cut]);
            let c = self.accumulated(&self.records[second_cut..]);
            let left = self.combined(&self.combined(&a, &b), &c);
            let right = self.combined(&a, &self.combined(&b, &c));
            self.agree(Law::Associativity, &left, &right, || {
                format!(
                    "(a + b) + c beside a + (b + c), cut after {first_cut} and {second_cut} records"
                )
            })?;
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), BrokenLaw> {
        let whole = self.accumulated(self.records);
        let mut often_finished = self.aggregate.create();
        for record in self.records {
            self.aggregate.accumulate(&mut often_finished, record);
            self.aggregate.finish(&often_finished);
        }
        self.agree(Law::Finish, &often_finished, &whole, || {
            "finished after each record".to_owned()
        })?;
        self.agree(Law::Finish, &often_finished, &whole, || {
            "finished twice".to_owned()
        })
    }

    fn deduct(&self) -> Result<(), BrokenLaw> {
        let whole = self.accumulated(self.records);
        for cut in self.cuts() {
            let (left, right) = self.parts(cut);
            let mut only_left = whole.clone();
            self.aggregate.deduct(&mut only_left, &right);
            self.agree(Law::Deduct, &only_left, &left, || {
                format!("all − those after the first {cut}")
            })?;
            let mut only_right = self.combined(&left, &right);
            self.aggregate.deduct(&mut only_right, &left);
            self.agree(Law::Deduct, &only_right, &right, || {
                format!("all − the first {cut}")
            })?;
            let again = self.combined(&only_right, &left);
            self.agree(Law::Deduct, &again, &whole, || {
                format!("all − the first {cut} + them again")
            })?;
        }
        Ok(())
    }

    /// Slides a window over slices as the engine does: the newest slice enters, the oldest leaves.
    fn slide(&self) -> Result<(), BrokenLaw> {
        for size in CHUNKS {
            let slices: Vec<A::Acc> = self
                .records
                .chunks(size)
                .map(|slice| self.accumulated(slice))
                .collect();
            let mut window = self.aggregate.create();
            for newest in 0..slices.len() + SLICES_IN_WINDOW {
                if let Some(slice) = slices.get(newest) {
                    self.aggregate.combine(&mut window, slice);
                }
                if let Some(oldest) = newest.checked_sub(SLICES_IN_WINDOW) {
                    self.aggregate.deduct(&mut window, &slices[oldest]);
                }
                let from =
                    ((newest + 1).saturating_sub(SLICES_IN_WINDOW) * size).min(self.records.len());
                let to = ((newest + 1) * size).min(self.records.len());
                let expected = self.accumulated(&self.records[from..to]);
                self.agree(Law::Deduct, &window, &expected, || {
                    format!("a window over records {from} to {to}, slid by slices of {size}")
                })?;
            }
        }
        Ok(())
    }

    /// Returns the places at which the records are split in two.
    fn cuts(&self) -> impl Iterator<Item = usize> + use<T, A, S> {
        let len = self.records.len();
        let pieces = len.clamp(1, CUTS);
        (0..=pieces).map(move |piece| len * piece / pieces)
    }

    fn parts(&self, cut: usize) -> (A::Acc, A::Acc) {
        let (left, right) = self.records.split_at(cut);
        (self.accumulated(left), self.accumulated(right))
    }

    fn accumulated<'r>(&self, records: impl IntoIterator<Item = &'r T>) -> A::Acc
    where
        T: 'r,
    {
        let mut acc = self.aggregate.create();
        for record in records {
            self.aggregate.accumulate(&mut acc, record);
        }
        acc
    }

    fn combined(&self, a: &A::Acc, b: &A::Acc) -> A::Acc {
        let mut acc = a.clone();
        self.aggregate.combine(&mut acc, b);
        acc
    }

    fn agree(
        &self,
        law: Law,
        got: &A::Acc,
        expected: &A::Acc,
        tried: impl Fn() -> String,
    ) -> Result<(), BrokenLaw> {
        let got = self.aggregate.finish(got);
        let expected = self.aggregate.finish(expected);
        if (self.same)(&got, &expected) {
            return Ok(());
        }
        let detail = format!("{} gave {got:?}, should give {expected:?}", tried());
        Err(BrokenLaw { law, detail })
    }
}

/// A record of either of two inputs.
enum OfTwo<T0, T1> {
    First(T0),
    Second(T1),
}

/// A record of any of three inputs.
enum OfThree<T0, T1, T2> {
    First(T0),
    Second(T1),
    Third(T2),
}

/// An aggregate of several inputs as an aggregate of tagged records.
struct Tagged<A>(A);

impl<T0: 'static, T1: 'static, A: CoAggregate2<T0, T1>> Aggregate<OfTwo<T0, T1>> for Tagged<A> {
    type Acc = A::Acc;
    type Out = A::Out;

    accumulators_of!(A, 0);

    fn accumulate(&self, acc: &mut A::Acc, record: &OfTwo<T0, T1>) {
        match record {
            OfTwo::First(record) => self.0.accumulate0(acc, record),
            OfTwo::Second(record) => self.0.accumulate1(acc, record),
        }
    }

    fn finish(&self, acc: &A::Acc) -> A::Out {
        self.0.finish(acc)
    }
}

impl<T0: 'static, T1: 'static, T2: 'static, A> Aggregate<OfThree<T0, T1, T2>> for Tagged<A>
where
    A: CoAggregate3<T0, T1, T2>,
{
    type Acc = A::Acc;
    type Out = A::Out;

    accumulators_of!(A, 0);

    fn accumulate(&self, acc: &mut A::Acc, record: &OfThree<T0, T1, T2>) {
        match record {
            OfThree::First(record) => self.0.accumulate0(acc, record),
            OfThree::Second(record) => self.0.accumulate1(acc, record),
            OfThree::Third(record) => self.0.accumulate2(acc, record),
        }
    }

    fn finish(&self, acc: &A::Acc) -> A::Out {
        self.0.finish(acc)
    }
}

/// Returns the records of all inputs, one record of each input in turn until all inputs are empty.
fn in_turn<R>(inputs: Vec<Vec<R>>) -> Vec<R> {
    let mut inputs: Vec<_> = inputs.into_iter().map(Vec::into_iter).collect();
    let mut records = Vec::new();
    loop {
        let before = records.len();
        records.extend(inputs.iter_mut().filter_map(Iterator::next));
        if records.len() == before {
            return records;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{collect_list, custom};

    fn broken_by(result: Result<(), BrokenLaw>) -> Option<Law> {
        result.err().map(|broken| broken.law)
    }

    #[test]
    fn an_identity_that_counts_is_found() {
        let from_one = custom(
            || 1,
            |acc, v: &i32| *acc += v,
            |acc, other| *acc += other,
            |acc| *acc,
        );
        assert_eq!(broken_by(check(&from_one, &[1, 2])), Some(Law::Identity));
        assert_eq!(broken_by(check(&from_one, &[])), Some(Law::Identity));
    }

    #[test]
    fn a_combination_that_loses_records_is_found() {
        let keeps_more = custom(
            || 0,
            |acc, v: &i32| *acc += v,
            |acc: &mut i32, other: &i32| *acc = *acc.max(&mut other.clone()),
            |acc| *acc,
        );
        assert_eq!(broken_by(check(&keeps_more, &[1, 2, 3])), Some(Law::Split));
    }

    #[test]
    fn a_dependence_on_order_is_found() {
        assert_eq!(
            broken_by(check(&collect_list(), &[1, 2, 3])),
            Some(Law::Order)
        );
    }

    #[test]
    fn a_deduction_that_leaves_a_trace_is_found() {
        let keeps_greatest = custom(
            || (0, 0),
            |acc, v: &i32| *acc = (acc.0 + v, acc.1.max(*v)),
            |acc, other| *acc = (acc.0 + other.0, acc.1.max(other.1)),
            |acc| *acc,
        );
        check(&keeps_greatest, &[1, 2, 3]).unwrap();
        let deducting = keeps_greatest.with_deduct(|acc, other| acc.0 -= other.0);
        assert_eq!(broken_by(check(&deducting, &[1, 2, 3])), Some(Law::Deduct));
    }

    #[test]
    fn a_broken_law_says_what_was_tried_and_what_came_out() {
        let broken = check(&collect_list(), &[1, 2]).unwrap_err();
        assert_eq!(
            broken.to_string(),
            "the aggregate breaks the law “order does not matter”: \
             in reverse gave [2, 1], should give [1, 2]"
        );
    }
}
