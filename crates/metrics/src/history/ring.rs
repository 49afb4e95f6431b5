//! The numbers of one series: a minute of seconds and an hour of ten seconds each.

use super::query::Grain;

/// Seconds that are kept one by one.
const FINE: usize = 60;
/// Cells of ten seconds.
const COARSE: usize = 360;

impl Grain {
    /// Seconds that a cell stands for.
    pub(super) const fn secs(self) -> i64 {
        match self {
            Grain::Seconds => 1,
            Grain::TenSeconds => 10,
        }
    }

    const fn cells(self) -> usize {
        match self {
            Grain::Seconds => FINE,
            Grain::TenSeconds => COARSE,
        }
    }

    /// Where the cells of this grain begin.
    const fn offset(self) -> usize {
        match self {
            Grain::Seconds => 0,
            Grain::TenSeconds => FINE,
        }
    }

    pub(super) const ALL: [Grain; 2] = [Grain::Seconds, Grain::TenSeconds];
}

/// Both rings in one piece of memory, as `f32` less a base: 1,680 bytes, exact to 1 in 16 million of how far a number is
/// from the first that was large.
///
/// What is being added up in the newest cells is kept as `f64`, so that a sum of many small numbers is as exact.
#[derive(Clone)]
pub(super) struct Ring {
    cells: Box<[f32; FINE + COARSE]>,
    base: f64,
    /// The newest second; nothing is there after it.
    head: i64,
    /// The newest cells, in the order of [`Grain::ALL`].
    newest: [f64; 2],
}

/// Numbers up to here lie as they are.
const SMALL: f64 = (1 << 24) as f64;

impl Ring {
    pub(super) const BYTES: usize = (FINE + COARSE) * size_of::<f32>();

    /// Empty, and about to be written at `second`.
    pub(super) fn new(second: i64) -> Self {
        Ring {
            cells: Box::new([f32::NAN; FINE + COARSE]),
            base: 0.0,
            head: second,
            newest: [f64::NAN; 2],
        }
    }

    /// The newest second.
    pub(super) fn head(&self) -> i64 {
        self.head
    }

    /// Puts `number` into the cells of `second`, which `fold` joins with what is there. A second before the newest counts
    /// as the newest: the clock has been put back a little.
    pub(super) fn put(&mut self, second: i64, number: f64, fold: impl Fn(f64, f64) -> f64) {
        let second = second.max(self.head);
        let is_first = self.newest.iter().all(|cell| cell.is_nan());
        if is_first && number.abs() >= SMALL {
            self.base = number;
        }
        for (newest, grain) in self.newest.iter_mut().zip(Grain::ALL) {
            let (from, to) = (
                self.head.div_euclid(grain.secs()),
                second.div_euclid(grain.secs()),
            );
            let cells = &mut self.cells[grain.offset()..grain.offset() + grain.cells()];
            let gone = (to - from).min(cells.len() as i64);
            for slot in to - gone + 1..=to {
                cells[slot.rem_euclid(cells.len() as i64) as usize] = f32::NAN;
            }
            if gone > 0 {
                *newest = f64::NAN;
            }
            *newest = if newest.is_nan() {
                number
            } else {
                fold(*newest, number)
            };
            cells[to.rem_euclid(cells.len() as i64) as usize] = (*newest - self.base) as f32;
        }
        self.head = second;
    }

    /// What is in the cell of this number: a second, or a tenth of one. Nothing before the ring's time and after the newest.
    pub(super) fn get(&self, grain: Grain, slot: i64) -> Option<f64> {
        let newest = self.head.div_euclid(grain.secs());
        if slot > newest || slot <= newest - grain.cells() as i64 {
            return None;
        }
        let at = grain.offset() + slot.rem_euclid(grain.cells() as i64) as usize;
        let number = self.cells[at];
        (!number.is_nan()).then(|| f64::from(number) + self.base)
    }

    /// Joins the cells of another ring with these.
    pub(super) fn merge(&mut self, other: &Ring, fold: impl Fn(f64, f64) -> f64) {
        let head = self.head.max(other.head);
        let mut merged = Ring::new(head);
        let bases = [self.base, other.base];
        merged.base =
            bases.into_iter().fold(
                0.0,
                |one: f64, other| {
                    if other.abs() > one.abs() { other } else { one }
                },
            );
        for (newest, grain) in merged.newest.iter_mut().zip(Grain::ALL) {
            let last = head.div_euclid(grain.secs());
            for slot in last - grain.cells() as i64 + 1..=last {
                let number = match (self.get(grain, slot), other.get(grain, slot)) {
                    (Some(one), Some(other)) => fold(one, other),
                    (Some(number), None) | (None, Some(number)) => number,
                    (None, None) => continue,
                };
                let at = grain.offset() + slot.rem_euclid(grain.cells() as i64) as usize;
                merged.cells[at] = (number - merged.base) as f32;
                if slot == last {
                    *newest = number;
                }
            }
        }
        *self = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_ring_knows_the_last_minute_by_seconds_and_the_last_hour_by_tens(
            steps in prop::collection::vec((0i64..400, 1u32..1_000_000), 1..200)
        ) {
            let mut ring = Ring::new(-5);
            let mut plain: BTreeMap<i64, f64> = BTreeMap::new();
            let mut second = -5;
            for (step, number) in steps {
                second += step * i64::from(step % 3 == 0);
                ring.put(second, f64::from(number), |one, other| one + other);
                *plain.entry(second).or_default() += f64::from(number);
            }
            for grain in Grain::ALL {
                let last = second.div_euclid(grain.secs());
                for slot in last - grain.cells() as i64 - 5..last + 5 {
                    let is_kept = slot > last - grain.cells() as i64;
                    let range = slot * grain.secs()..(slot + 1) * grain.secs();
                    let sum: f64 = plain.range(range).map(|(_, number)| number).sum();
                    let expected = (is_kept && sum > 0.0).then_some(sum);
                    let got = ring.get(grain, slot);
                    prop_assert_eq!(got.is_some(), expected.is_some());
                    let (got, sum) = (got.unwrap_or(0.0), expected.unwrap_or(0.0));
                    prop_assert!((got - sum).abs() <= sum * 1e-7, "{} for {}", got, sum);
                }
            }
        }
    }

    #[test]
    fn a_large_number_that_changes_little_is_kept_exactly() {
        let mut ring = Ring::new(0);
        for second in 0..100 {
            ring.put(second, 1.7e9 + second as f64 / 8.0, |_, new| new);
        }
        assert_eq!(ring.get(Grain::Seconds, 99), Some(1.7e9 + 99.0 / 8.0));
        assert_eq!(ring.get(Grain::TenSeconds, 0), Some(1.7e9 + 9.0 / 8.0));
    }

    #[test]
    fn merged_rings_are_as_if_all_had_been_put_into_one() {
        let (mut one, mut other, mut both) = (Ring::new(0), Ring::new(0), Ring::new(0));
        for second in 0..500 {
            let ring = if second % 3 == 0 {
                &mut one
            } else {
                &mut other
            };
            for ring in [ring, &mut both] {
                ring.put(second, 1.0, |one, other| one + other);
            }
        }
        one.merge(&other, |one, other| one + other);
        one.put(499, 1.0, |one, other| one + other);
        both.put(499, 1.0, |one, other| one + other);
        for slot in 0..50 {
            assert_eq!(
                one.get(Grain::TenSeconds, slot),
                both.get(Grain::TenSeconds, slot)
            );
        }
        assert_eq!(one.get(Grain::Seconds, 499), Some(2.0));
    }
}
