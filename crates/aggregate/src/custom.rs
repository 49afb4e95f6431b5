//! An aggregate of your own, from four functions.

use crate::Aggregate;

/// An aggregate given by functions. Made by [`custom`].
#[derive(Clone, Copy, Debug)]
pub struct Custom<C, A, M, F, D = NoDeduction> {
    create: C,
    accumulate: A,
    combine: M,
    finish: F,
    deduction: D,
}

/// An aggregate from functions: `create` makes an empty accumulator, `accumulate` takes a record
/// in, `combine` takes in another accumulator, `finish` makes the result. They must obey the laws
/// of [`Aggregate`], which [`laws::check`](crate::laws::check) tries out. With an inverse of
/// `combine`, add [`Custom::with_deduct`].
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
    /// The same aggregate, with `deduct` as the inverse of combining: it takes out of the first
    /// accumulator all that the second holds, exactly.
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

/// Whether and how a [`Custom`] aggregate deducts.
pub trait Deduction<Acc>: Send + Sync + 'static {
    /// What [`Aggregate::DEDUCTS`] shall be.
    const DEDUCTS: bool;

    /// Takes out of `acc` all that `other` holds.
    fn deduct(&self, acc: &mut Acc, other: &Acc);
}

/// There is no inverse of combining.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDeduction;

impl<Acc> Deduction<Acc> for NoDeduction {
    const DEDUCTS: bool = false;

    #[inline]
    fn deduct(&self, _acc: &mut Acc, _other: &Acc) {}
}

/// The inverse of combining, as a function.
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
