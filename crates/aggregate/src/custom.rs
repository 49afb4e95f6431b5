//! Custom aggregates made of four functions.

use crate::Aggregate;

/// An aggregate made of functions. Created by [`custom`].
#[derive(Clone, Copy, Debug)]
pub struct Custom<C, A, M, F, D = NoDeduction> {
    create: C,
    accumulate: A,
    combine: M,
    finish: F,
    deduction: D,
}

/// Creates an aggregate from functions: `create` returns an empty accumulator, `accumulate` adds a
/// record, `combine` adds another accumulator, and `finish` returns the result. The functions must
/// obey the laws of [`Aggregate`], which [`laws::check`](crate::laws::check) tests. If `combine`
/// has an inverse, add [`Custom::with_deduct`].
///
/// ```
/// use ardea_aggregate::{Aggregate, custom, laws};
///
/// // The root of the mean square.
/// let rms = custom(
///     || (0u64, 0u64),
///     |(squares, count), sample: &i16| {
///         *squares += u64::from(sample.unsigned_abs()).pow(2);
///         *count += 1;
///     },
///     |acc, other| {
///         acc.0 += other.0;
///         acc.1 += other.1;
///     },
///     |&(squares, count)| (squares as f64 / count.max(1) as f64).sqrt(),
/// )
/// .with_deduct(|acc, other| {
///     acc.0 -= other.0;
///     acc.1 -= other.1;
/// });
/// assert_eq!(rms.of_all(&[3, -3, 3]), 3.0);
/// laws::check(&rms, &[3, -7, 12, 0, 5])?;
/// # Ok::<(), laws::BrokenLaw>(())
/// ```
pub fn custom<T: ?Sized, Acc, Out, C, A, M, F>(
    create: C,
    accumulate: A,
    combine: M,
    finish: F,
) -> Custom<C, A, M, F>
where
    Acc: Clone + Send + 'static,
    Out: Send + 'static,
    C: Fn() -> Acc + Send + Sync + 'static,
    A: Fn(&mut Acc, &T) + Send + Sync + 'static,
    M: Fn(&mut Acc, &Acc) + Send + Sync + 'static,
    F: Fn(&Acc) -> Out + Send + Sync + 'static,
{
    Custom {
        create,
        accumulate,
        combine,
        finish,
        deduction: NoDeduction,
    }
}

impl<C, A, M, F> Custom<C, A, M, F> {
    /// Adds `deduct` as the inverse of `combine`: it removes the contents of the second accumulator
    /// from the first, exactly.
    pub fn with_deduct<Acc, D>(self, deduct: D) -> Custom<C, A, M, F, DeductionBy<D>>
    where
        C: Fn() -> Acc,
        D: Fn(&mut Acc, &Acc) + Send + Sync + 'static,
    {
        let Self {
            create,
            accumulate,
            combine,
            finish,
            deduction: NoDeduction,
        } = self;
        Custom {
            create,
            accumulate,
            combine,
            finish,
            deduction: DeductionBy(deduct),
        }
    }
}

/// The deduction of a [`Custom`] aggregate, if it has one.
pub trait Deduction<Acc>: Send + Sync + 'static {
    /// The value of [`Aggregate::DEDUCTS`].
    const DEDUCTS: bool;

    /// Removes the contents of `other` from `acc`.
    fn deduct(&self, acc: &mut Acc, other: &Acc);
}

/// No deduction.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDeduction;

impl<Acc> Deduction<Acc> for NoDeduction {
    const DEDUCTS: bool = false;

    #[inline]
    fn deduct(&self, _acc: &mut Acc, _other: &Acc) {}
}

/// A deduction by a function.
#[derive(Clone, Copy, Debug)]
pub struct DeductionBy<D>(D);

impl<Acc, D: Fn(&mut Acc, &Acc) + Send + Sync + 'static> Deduction<Acc> for DeductionBy<D> {
    const DEDUCTS: bool = true;

    #[inline]
    fn deduct(&self, acc: &mut Acc, other: &Acc) {
        (self.0)(acc, other);
    }
}

impl<T: ?Sized, Acc, Out, C, A, M, F, D> Aggregate<T> for Custom<C, A, M, F, D>
where
    Acc: Clone + Send + 'static,
    Out: Send + 'static,
    C: Fn() -> Acc + Send + Sync + 'static,
    A: Fn(&mut Acc, &T) + Send + Sync + 'static,
    M: Fn(&mut Acc, &Acc) + Send + Sync + 'static,
    F: Fn(&Acc) -> Out + Send + Sync + 'static,
    D: Deduction<Acc>,
{
    type Acc = Acc;
    type Out = Out;

    const DEDUCTS: bool = D::DEDUCTS;

    #[inline]
    fn create(&self) -> Acc {
        (self.create)()
    }

    #[inline]
    fn accumulate(&self, acc: &mut Acc, record: &T) {
        (self.accumulate)(acc, record);
    }

    #[inline]
    fn combine(&self, acc: &mut Acc, other: &Acc) {
        (self.combine)(acc, other);
    }

    #[inline]
    fn deduct(&self, acc: &mut Acc, other: &Acc) {
        self.deduction.deduct(acc, other);
    }

    #[inline]
    fn finish(&self, acc: &Acc) -> Out {
        (self.finish)(acc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;

    fn deducts<A: Aggregate<u32>>(_: &A) -> bool {
        A::DEDUCTS
    }

    #[test]
    fn a_custom_aggregate_deducts_only_if_told_how() {
        let xor = custom(
            || 0u32,
            |acc, v: &u32| *acc ^= v,
            |acc, other| *acc ^= other,
            |acc| *acc,
        );
        assert!(!deducts(&xor));
        let xor = xor.with_deduct(|acc, other| *acc ^= other);
        assert!(deducts(&xor));
        laws::check(&xor, &[3, 5, 5, 9, 1, 0, 77]).unwrap();
    }
}
