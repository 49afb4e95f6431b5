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

    /// Where the cell of this number lies.
    const fn place(self, slot: i64) -> usize {
        self.offset() + slot.rem_euclid(self.cells() as i64) as usize
    }

    pub(super) const ALL: [Grain; 2] = [Grain::Seconds, Grain::TenSeconds];
}

/// A time: from, to, in microseconds since 1970.
pub(super) type Span = (i64, i64);

const MICROS: i64 = 1_000_000;

/// Both rings in one piece of memory, as `f32` less a base: 1,680 bytes, exact to 1 in 16 million of how far a number is
/// from the first level that was large.
///
/// What is being added up is kept as `f64`, so that a sum of many small numbers is as exact: in the newest cells and in those before,
/// since processes tell at different moments of a second what has grown since the one before.
#[derive(Clone)]
pub(super) struct Ring {
    cells: Box<[f32; FINE + COARSE]>,
    base: f64,
    /// The newest second; nothing is there after it.
    head: i64,
    /// The newest cell and the one before, in the order of [`Grain::ALL`].
    exact: [[f64; EXACT]; 2],
}

/// So many of the newest cells of a grain are kept as `f64`.
const EXACT: usize = 2;

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
            exact: [[f64::NAN; EXACT]; 2],
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
        let is_first = self.exact.iter().all(|[newest, _]| newest.is_nan());
        if is_first && number.abs() >= SMALL {
            self.base = number;
        }
        self.advance(second);
        for ([newest, _], grain) in self.exact.iter_mut().zip(Grain::ALL) {
            *newest = if newest.is_nan() {
                number
            } else {
                fold(*newest, number)
            };
            let at = grain.place(second.div_euclid(grain.secs()));
            self.cells[at] = (*newest - self.base) as f32;
        }
    }

    /// Adds what has grown over a time to the cells of that time, to each its share; what is older than the cells is left
    /// out. Of a whole number the shares are whole as well.
    pub(super) fn spread(&mut self, (from, to): Span, growth: f64) {
        // The cell that begins where the time ends has no part in it.
        let last = if to > from { to - 1 } else { to };
        self.advance(last.div_euclid(MICROS));
        let grown_by = |at: i64| {
            let share = (at.clamp(from, to) - from) as f64 / (to - from) as f64;
            match growth.fract() == 0.0 {
                true => (growth * share).round(),
                false => growth * share,
            }
        };
        for (index, grain) in Grain::ALL.into_iter().enumerate() {
            let cell = grain.secs() * MICROS;
            let newest = self.head.div_euclid(grain.secs());
            let oldest = newest - grain.cells() as i64 + 1;
            let last = last.div_euclid(cell);
            for slot in from.div_euclid(cell).clamp(oldest, last.max(oldest))..=last {
                let own = match to > from {
                    true => grown_by((slot + 1) * cell) - grown_by(slot * cell),
                    false => growth,
                };
                let sum = own + self.exact(index, grain, slot).unwrap_or(0.0);
                if let Some(exact) = self.exact[index].get_mut((newest - slot) as usize) {
                    *exact = sum;
                }
                self.cells[grain.place(slot)] = (sum - self.base) as f32;
            }
        }
    }

    /// Makes this second the newest, unless it is older; the cells that come with it are empty.
    fn advance(&mut self, second: i64) {
        for (exact, grain) in self.exact.iter_mut().zip(Grain::ALL) {
            let from = self.head.div_euclid(grain.secs());
            let to = second.div_euclid(grain.secs());
            let gone = (to - from).min(grain.cells() as i64);
            for slot in to - gone + 1..=to {
                self.cells[grain.place(slot)] = f32::NAN;
            }
            match gone {
                ..=0 => {}
                1 => *exact = [f64::NAN, exact[0]],
                _ => *exact = [f64::NAN; EXACT],
            }
        }
        self.head = self.head.max(second);
    }

    /// What is in the cell of this number: a second, or a tenth of one. Nothing before the ring's time and after the newest.
    pub(super) fn get(&self, grain: Grain, slot: i64) -> Option<f64> {
        let newest = self.head.div_euclid(grain.secs());
        if slot > newest || slot <= newest - grain.cells() as i64 {
            return None;
        }
        let number = self.cells[grain.place(slot)];
        (!number.is_nan()).then(|| f64::from(number) + self.base)
    }

    /// As [`get`](Self::get), as exactly as it is known. `index` is that of the grain.
    fn exact(&self, index: usize, grain: Grain, slot: i64) -> Option<f64> {
        let behind = usize::try_from(self.head.div_euclid(grain.secs()) - slot).ok()?;
        match self.exact[index].get(behind) {
            Some(number) => (!number.is_nan()).then_some(*number),
            None => self.get(grain, slot),
        }
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
        for (index, grain) in Grain::ALL.into_iter().enumerate() {
            let last = head.div_euclid(grain.secs());
            for slot in last - grain.cells() as i64 + 1..=last {
                let cells = [&*self, other].map(|ring| ring.exact(index, grain, slot));
                let number = match cells.into() {
                    (Some(one), Some(other)) => fold(one, other),
                    (Some(number), None) | (None, Some(number)) => number,
                    (None, None) => continue,
                };
                merged.cells[grain.place(slot)] = (number - merged.base) as f32;
                if let Some(exact) = merged.exact[index].get_mut((last - slot) as usize) {
                    *exact = number;
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
    fn what_has_grown_over_a_time_is_shared_out_over_its_cells() {
        let mut ring = Ring::new(0);
        let mut until = 0;
        // 1.5 s at a time, 600 a second.
        for _ in 0..20 {
            ring.spread((until, until + 1_500_000), 900.0);
            until += 1_500_000;
        }
        for second in 0..30 {
            assert_eq!(ring.get(Grain::Seconds, second), Some(600.0), "{second}");
        }
        for ten in 0..3 {
            assert_eq!(ring.get(Grain::TenSeconds, ten), Some(6_000.0));
        }
        // A moment has no length: all is its second's.
        ring.spread((30_000_000, 30_000_000), 7.0);
        assert_eq!(ring.get(Grain::Seconds, 30), Some(7.0));
        // Whole numbers stay whole, and nothing is lost; what has no room is left out.
        ring.spread((30_500_000, 33_500_000), 2.0);
        let shares = (30..=33).map(|second| ring.get(Grain::Seconds, second).unwrap());
        let shares: Vec<f64> = shares.collect();
        assert!(
            shares.iter().all(|share| share.fract() == 0.0),
            "{shares:?}"
        );
        assert_eq!(shares.iter().sum::<f64>(), 9.0);
        ring.spread((33_500_000, 10_000_000_000), 9_966.5);
        assert_eq!(ring.get(Grain::Seconds, 9_940), Some(1.0));
        assert_eq!(ring.get(Grain::TenSeconds, 700), Some(10.0));
    }

    #[test]
    fn many_small_shares_of_large_sums_are_not_lost_whoever_tells_them_when() {
        for is_merged in [false, true] {
            let (mut ring, large) = (Ring::new(0), 3e8);
            for second in 1..30i64 {
                // Told of the second before: one large number, then many small ones, each a little later than the one before.
                let until = second * 1_000_000;
                ring.spread((until - 1_000_000, until), large);
                if is_merged {
                    let mut other = Ring::new(second - 1);
                    other.spread((until - 1_000_000, until), 1.25);
                    ring.merge(&other, |one, other| one + other);
                }
                for process in 0..1_000 {
                    let until = until + process * 1_000;
                    ring.spread((until - 1_000_000, until), 0.5);
                }
            }
            let small = 500.0 + if is_merged { 1.25 } else { 0.0 };
            let tolerance = (large + small) * 1e-7;
            for second in 1..28 {
                let got = ring.get(Grain::Seconds, second).unwrap();
                assert!((got - large - small).abs() <= tolerance, "{second}: {got}");
            }
            for ten in 1..2 {
                let got = ring.get(Grain::TenSeconds, ten).unwrap();
                let expected = 10.0 * (large + small);
                assert!((got - expected).abs() <= 10.0 * tolerance, "{got}");
            }
        }
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
