//! A sum of floats without rounding error: independent of order, and deductible.
//!
//! Every finite `f64` is an integer multiple of 2⁻¹⁰⁷⁴ below 2¹⁰²⁴, so a wide enough integer holds
//! any sum exactly (Kulisch's long accumulator; divided into overlapping limbs as in Neal, "Fast
//! exact summation using small and large superaccumulators", 2015). The accumulator here is sparse:
//! limb *i* is an `i128` that counts units of 2^(32·i − 1082). A value, 53 bits shifted by up to
//! 31, fits into one limb, and a limb takes 2⁴³ values before it carries its upper part to the
//! next. Values of one magnitude (all between 2⁻⁶ and 2²⁶, say) share one limb, which is stored in
//! the struct: adding is then a shift and a 128-bit addition. Only values of other magnitudes need
//! a further limb on the heap.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// log₂ of the ratio between two neighbouring limbs' units.
const LIMB_BITS: u32 = 32;
/// The mask of the low part of a limb, which remains when its upper part is carried.
const LOW: i128 = (1 << LIMB_BITS) - 1;
/// The number of bits by which limb 0's unit is below the least float, 2⁻¹⁰⁷⁴. Eight puts one
/// limb's range at 2⁻⁶ to 2²⁶, the range of prices, temperatures and distances, so that most sums
/// need one limb only.
const OFFSET_BITS: u32 = 8;
/// The negated exponent of limb 0's unit, a power of two.
const UNIT_EXPONENT: i32 = 1074 + OFFSET_BITS as i32;
/// The number of digits. Values reach limb (2045 + 8) / 32 = 64. Fewer than 2⁶⁴ values carry into
/// limb 65 at most, whose 128 bits end within digit 69.
const DIGITS: usize = 72;
/// The bits of a float's mantissa below the leading one.
const FRACTION_BITS: u32 = 52;
/// The exponent field of a float that is infinite or NaN.
const NON_FINITE: u64 = 0x7ff;

/// A sum of `f64` values that is rounded only when it is read.
///
/// [`value`](Self::value) is the float nearest to the true sum (ties to even). It does not depend
/// on the order of additions, on how they were split, or on values added and deducted in between.
/// Non-finite values are counted separately, and can be deducted exactly as well: any NaN, or
/// infinities of both signs, make the sum NaN; infinities of one sign make the sum that infinity. A
/// finite sum beyond `f64::MAX` reads as infinite, and becomes finite again if enough is deducted.
/// Zero is `0.0`, never `-0.0`.
///
/// 32 bytes, and at most about 4 kB on the heap for sums over values of widely different
/// magnitudes.
///
/// ```
/// use ardea_aggregate::ExactSum;
///
/// let mut sum = ExactSum::default();
/// for value in [1e100, 0.1, 0.2, -1e100] {
///     sum.add(value);
/// }
/// assert_eq!(sum.value(), 0.1 + 0.2);
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Read")]
pub struct ExactSum {
    limb: i128,
    index: u8,
    rest: Option<Box<Rest>>,
}

/// The parts that do not fit into the limb within the struct.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Rest {
    /// Further limbs by ascending index, without that of the limb within the struct.
    limbs: Vec<(u8, i128)>,
    not_a_number: u64,
    infinite: u64,
    negative_infinite: u64,
}

/// A deserialized sum before validation.
#[derive(Deserialize)]
struct Read {
    limb: i128,
    index: u8,
    rest: Option<Box<Rest>>,
}

impl TryFrom<Read> for ExactSum {
    type Error = &'static str;

    fn try_from(Read { limb, index, rest }: Read) -> Result<Self, &'static str> {
        let limbs = rest.iter().flat_map(|rest| &rest.limbs);
        let others = limbs.map(|(index, _)| *index);
        let is_sum = others.clone().is_sorted_by(|a, b| a < b)
            && others
                .clone()
                .chain([index])
                .all(|index| usize::from(index) < DIGITS - 2)
            && !others.clone().any(|other| other == index);
        if is_sum {
            Ok(ExactSum { limb, index, rest })
        } else {
            Err("the limbs of a sum are out of order")
        }
    }
}

impl ExactSum {
    /// Adds one value. Allocates only when a new magnitude appears.
    #[inline]
    pub fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let exponent_field = (bits >> FRACTION_BITS) & NON_FINITE;
        if exponent_field == NON_FINITE {
            self.add_non_finite(value);
            return;
        }
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        // Subnormal floats have no leading one, and the exponent of the least normal ones.
        let normal = u64::from(exponent_field != 0);
        let mantissa = fraction | (normal << FRACTION_BITS);
        let position = (exponent_field - normal) as u32 + OFFSET_BITS;
        let magnitude = i128::from(mantissa) << (position % LIMB_BITS);
        let term = if value.is_sign_negative() {
            -magnitude
        } else {
            magnitude
        };
        self.add_limb((position / LIMB_BITS) as u8, term);
    }

    /// Adds the contents of `other` to this sum.
    pub fn combine(&mut self, other: &Self) {
        self.add_limb(other.index, other.limb);
        if let Some(theirs) = &other.rest {
            for &(index, limb) in &theirs.limbs {
                self.add_limb(index, limb);
            }
            let ours = self.rest.get_or_insert_default();
            ours.not_a_number += theirs.not_a_number;
            ours.infinite += theirs.infinite;
            ours.negative_infinite += theirs.negative_infinite;
        }
    }

    /// Removes the contents of `other` from this sum, to which they were added before.
    pub fn deduct(&mut self, other: &Self) {
        self.subtract_limb(other.index, other.limb);
        if let Some(theirs) = &other.rest {
            for &(index, limb) in &theirs.limbs {
                self.subtract_limb(index, limb);
            }
            let ours = self.rest.get_or_insert_default();
            ours.not_a_number -= theirs.not_a_number;
            ours.infinite -= theirs.infinite;
            ours.negative_infinite -= theirs.negative_infinite;
        }
    }

    /// Returns the sum, rounded once. Constant time; fast while one limb holds the sum.
    #[must_use]
    pub fn value(&self) -> f64 {
        if let Some(rest) = &self.rest {
            if rest.not_a_number > 0 || (rest.infinite > 0 && rest.negative_infinite > 0) {
                return f64::NAN;
            }
            if rest.infinite > 0 {
                return f64::INFINITY;
            }
            if rest.negative_infinite > 0 {
                return f64::NEG_INFINITY;
            }
            if rest.limbs.iter().any(|&(_, limb)| limb != 0) {
                return self.round_all();
            }
        }
        if self.limb == 0 {
            return 0.0;
        }
        // The conversion rounds correctly, and the scale is exact while the range is not near
        // either end: up to 127 bits above the unit 2^(32·4 − 1082) or 2^(32·56 − 1082).
        if (4..=56).contains(&self.index) {
            let exponent = i32::from(self.index) * LIMB_BITS as i32 - UNIT_EXPONENT;
            let scale = f64::from_bits(((exponent + 1023) as u64) << FRACTION_BITS);
            return self.limb as f64 * scale;
        }
        self.round_all()
    }

    /// Returns the sum divided by `count`, which is at least 1. The result is finite if all values
    /// are, even if the sum is not.
    #[must_use]
    pub fn mean(&self, count: u64) -> f64 {
        let (sum, count) = (self.value(), count as f64);
        let is_beyond = sum.is_infinite() && !self.has_infinity();
        if !is_beyond {
            return sum / count;
        }
        let (negative, digits) = self.digits();
        // Without its two lowest digits, the number is the sum divided by 2⁶⁴. Those digits are far
        // below the precision of a float.
        let mut scaled = [0; DIGITS];
        scaled[..DIGITS - 2].copy_from_slice(&digits[2..]);
        let scale = (1u128 << 64) as f64;
        let magnitude = (round_digits(&scaled) / count * scale).min(f64::MAX);
        if negative { -magnitude } else { magnitude }
    }

    fn has_infinity(&self) -> bool {
        let rest = self.rest.as_deref();
        rest.is_some_and(|rest| rest.infinite + rest.negative_infinite > 0)
    }

    #[inline]
    fn add_limb(&mut self, index: u8, term: i128) {
        if index == self.index
            && let Some(sum) = self.limb.checked_add(term)
        {
            self.limb = sum;
            return;
        }
        self.add_elsewhere(index, term);
    }

    #[inline(never)]
    fn add_elsewhere(&mut self, index: u8, term: i128) {
        if term == 0 {
            return;
        }
        if self.limb == 0 && self.rest.is_none() {
            self.index = index;
            self.limb = term;
            return;
        }
        let limb = self.limb_mut(index);
        if let Some(sum) = limb.checked_add(term) {
            *limb = sum;
            return;
        }
        let carry = (*limb >> LIMB_BITS) + (term >> LIMB_BITS);
        *limb = (*limb & LOW) + (term & LOW);
        self.add_limb(index + 1, carry);
    }

    fn subtract_limb(&mut self, index: u8, term: i128) {
        match term.checked_neg() {
            Some(negated) => self.add_limb(index, negated),
            // Only `i128::MIN` has no negation, and its low part is zero.
            None => self.add_limb(index + 1, -(term >> LIMB_BITS)),
        }
    }

    fn limb_mut(&mut self, index: u8) -> &mut i128 {
        if index == self.index {
            return &mut self.limb;
        }
        let limbs = &mut self.rest.get_or_insert_default().limbs;
        let at = match limbs.binary_search_by_key(&index, |&(i, _)| i) {
            Ok(at) => at,
            Err(at) => {
                limbs.insert(at, (index, 0));
                at
            }
        };
        &mut limbs[at].1
    }

    #[cold]
    fn add_non_finite(&mut self, value: f64) {
        let rest = self.rest.get_or_insert_default();
        match value.partial_cmp(&0.0) {
            None | Some(Ordering::Equal) => rest.not_a_number += 1,
            Some(Ordering::Greater) => rest.infinite += 1,
            Some(Ordering::Less) => rest.negative_infinite += 1,
        }
    }

    /// Rounds the sum over all limbs.
    fn round_all(&self) -> f64 {
        let (negative, digits) = self.digits();
        let magnitude = round_digits(&digits);
        if negative { -magnitude } else { magnitude }
    }

    /// Returns the sign and the magnitude over all limbs.
    fn digits(&self) -> (bool, [u32; DIGITS]) {
        let mut limbs = [0i128; DIGITS];
        limbs[usize::from(self.index)] = self.limb;
        for &(index, limb) in self.rest.iter().flat_map(|rest| &rest.limbs) {
            limbs[usize::from(index)] = limb;
        }
        signed_digits(&limbs)
    }
}

/// Returns the sign and the magnitude, in digits of base 2³², of overlapping limbs.
fn signed_digits(limbs: &[i128; DIGITS]) -> (bool, [u32; DIGITS]) {
    let mut digits = [0u32; DIGITS];
    let mut carry = 0i128;
    for (digit, limb) in digits.iter_mut().zip(limbs) {
        let low = (limb & LOW) + (carry & LOW);
        *digit = (low & LOW) as u32;
        carry = (limb >> LIMB_BITS) + (carry >> LIMB_BITS) + (low >> LIMB_BITS);
    }
    // The carry out of the top is the sign: 0, or −1 in two's complement.
    let negative = carry < 0;
    if negative {
        let mut borrow = true;
        for digit in &mut digits {
            let (negated, overflow) = (!*digit).overflowing_add(u32::from(borrow));
            *digit = negated;
            borrow = overflow;
        }
    }
    (negative, digits)
}

/// Returns the float nearest to `digits`, ties to even; infinite if beyond the range.
fn round_digits(digits: &[u32; DIGITS]) -> f64 {
    let Some(top) = digits.iter().rposition(|&digit| digit != 0) else {
        return 0.0;
    };
    let digit = |at: Option<usize>| at.map_or(0, |at| u128::from(digits[at]));
    let window =
        (digit(Some(top)) << 64) | (digit(top.checked_sub(1)) << 32) | digit(top.checked_sub(2));
    let below = digits[..top.saturating_sub(2)]
        .iter()
        .any(|&digit| digit != 0);
    let window_bits = u128::BITS - window.leading_zeros();
    // The bits of the offset are zero in every sum. Counted in units of the least float, these are
    // the bits.
    let bits = top as u32 * LIMB_BITS + (window_bits - 64) - OFFSET_BITS;
    if bits <= FRACTION_BITS + 1 {
        // Exact: up to here, a float's bits are its multiple of the least float.
        return f64::from_bits(
            ((window >> 32) as u64) >> OFFSET_BITS >> if top == 0 { 32 } else { 0 },
        );
    }
    let dropped_bits = window_bits - (FRACTION_BITS + 1);
    let kept = (window >> dropped_bits) as u64;
    let dropped = window & ((1 << dropped_bits) - 1);
    let half = 1u128 << (dropped_bits - 1);
    let up = dropped > half || (dropped == half && (below || kept & 1 == 1));
    let exponent_field = u64::from(bits - FRACTION_BITS);
    // A carry out of the fraction raises the exponent, as required.
    let rounded = (exponent_field << FRACTION_BITS) + (kept - (1 << FRACTION_BITS)) + u64::from(up);
    f64::from_bits(rounded.min(NON_FINITE << FRACTION_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum_of(values: &[f64]) -> ExactSum {
        let mut sum = ExactSum::default();
        for &value in values {
            sum.add(value);
        }
        sum
    }

    /// Adds like the processor, but zero is always positive.
    fn positive_zero(value: f64) -> f64 {
        if value == 0.0 { 0.0 } else { value }
    }

    fn finite() -> impl Strategy<Value = f64> {
        any::<u64>()
            .prop_map(f64::from_bits)
            .prop_filter("finite", |value| value.is_finite())
    }

    fn near_one() -> impl Strategy<Value = f64> {
        -1e6..1e6
    }

    #[test]
    fn it_is_four_words() {
        assert_eq!(size_of::<ExactSum>(), 32);
    }

    #[test]
    fn values_of_one_magnitude_need_no_heap() {
        let sum = sum_of(&[0.02, 1.0, -3.5, 99.99, 60e6]);
        assert!(sum.rest.is_none());
    }

    #[test]
    fn an_overflow_in_between_does_not_last() {
        assert_eq!(sum_of(&[f64::MAX, f64::MAX]).value(), f64::INFINITY);
        assert_eq!(sum_of(&[-f64::MAX, -f64::MAX]).value(), f64::NEG_INFINITY);
        assert_eq!(
            sum_of(&[f64::MAX, f64::MAX, -f64::MAX, 1.0, -f64::MAX]).value(),
            1.0
        );
    }

    #[test]
    fn small_values_are_not_lost_beside_large_ones() {
        let least = f64::from_bits(1);
        assert_eq!(sum_of(&[1e300, least, -1e300]).value(), least);
        assert_eq!(sum_of(&[f64::MAX, 1.0, 2.5, -f64::MAX]).value(), 3.5);
    }

    #[test]
    fn a_tie_that_something_tiny_breaks_is_rounded_up() {
        let half_ulp = f64::EPSILON / 2.0;
        assert_eq!(sum_of(&[1.0, half_ulp]).value(), 1.0);
        assert_eq!(sum_of(&[1.0, half_ulp, 1e-300]).value(), 1.0 + f64::EPSILON);
        assert_eq!(sum_of(&[1.0, half_ulp, -1e-300]).value(), 1.0);
    }

    #[test]
    fn a_full_limb_carries_on() {
        let mut sum = ExactSum {
            limb: i128::MAX,
            index: 32,
            rest: None,
        };
        let before = sum.value();
        sum.add_limb(32, i128::MAX);
        assert_eq!(sum.value(), before * 2.0);
        sum.subtract_limb(32, i128::MIN);
        assert_eq!(sum.value(), before * 3.0);
        sum.add_limb(32, i128::MIN);
        sum.subtract_limb(32, i128::MAX);
        sum.subtract_limb(32, i128::MAX);
        assert_eq!(sum.value(), 0.0);
    }

    #[test]
    fn what_is_not_finite_decides_the_sum_and_can_be_deducted() {
        assert!(sum_of(&[1.0, f64::NAN]).value().is_nan());
        assert!(sum_of(&[f64::INFINITY, f64::NEG_INFINITY]).value().is_nan());
        assert_eq!(sum_of(&[f64::NEG_INFINITY, 5.0]).value(), f64::NEG_INFINITY);
        let odd = sum_of(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5]);
        let mut sum = sum_of(&[2.0]);
        sum.combine(&odd);
        assert!(sum.value().is_nan());
        sum.deduct(&odd);
        assert_eq!(sum.value(), 2.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 2000 }))]

        #[test]
        fn the_sum_of_two_is_what_the_processor_says(a in finite(), b in finite()) {
            prop_assert_eq!(sum_of(&[a, b]).value().to_bits(), positive_zero(a + b).to_bits());
        }

        #[test]
        fn the_sum_of_two_close_by_is_what_the_processor_says(
            a in finite(), ulps in -200i64..200, scale in -60i32..60, negate in any::<bool>()
        ) {
            let b = f64::from_bits(a.to_bits().saturating_add_signed(ulps)) * 2f64.powi(scale);
            let b = if negate { -b } else { b };
            prop_assume!(b.is_finite());
            prop_assert_eq!(sum_of(&[a, b]).value().to_bits(), positive_zero(a + b).to_bits());
        }

        #[test]
        fn whole_numbers_are_summed_as_integers_are(
            values in prop::collection::vec(-(1i64 << 53)..(1i64 << 53), 0..50)
        ) {
            let floats: Vec<f64> = values.iter().map(|&v| v as f64).collect();
            let whole: i128 = values.iter().map(|&v| i128::from(v)).sum();
            prop_assert_eq!(sum_of(&floats).value(), whole as f64);
        }

        #[test]
        fn a_negated_sum_has_negated_value(values in prop::collection::vec(finite(), 0..20)) {
            let negated: Vec<f64> = values.iter().map(|v| -v).collect();
            prop_assert_eq!(sum_of(&negated).value(), -sum_of(&values).value());
        }

        #[test]
        fn a_deducted_part_leaves_no_trace(
            kept in prop::collection::vec(prop_oneof![finite(), near_one()], 0..20),
            gone in prop::collection::vec(prop_oneof![finite(), near_one()], 0..20)
        ) {
            let mut sum = sum_of(&kept);
            sum.combine(&sum_of(&gone));
            sum.deduct(&sum_of(&gone));
            prop_assert_eq!(sum.value().to_bits(), sum_of(&kept).value().to_bits());
        }

        #[test]
        fn one_limb_or_many_round_alike(values in prop::collection::vec(near_one(), 0..20)) {
            let sum = sum_of(&values);
            prop_assert_eq!(positive_zero(sum.value()).to_bits(), sum.round_all().to_bits());
        }
    }
}
