//! The ring buffer of one series: a minute in cells of one second, and an hour in cells of ten
//! seconds.

use super::query::Resolution;

/// The number of cells of one second.
const FINE: usize = 60;
/// The number of cells of ten seconds.
const COARSE: usize = 360;

impl Resolution {
    /// Returns the length of a cell in seconds.
    pub(super) const fn secs(self) -> i64 {
        match self {
            Resolution::Seconds => 1,
            Resolution::TenSeconds => 10,
        }
    }

    const fn cells(self) -> usize {
        match self {
            Resolution::Seconds => FINE,
            Resolution::TenSeconds => COARSE,
        }
    }

    /// Returns the index of the first cell of this resolution in the ring's array.
    const fn offset(self) -> usize {
        match self {
            Resolution::Seconds => 0,
            Resolution::TenSeconds => FINE,
        }
    }

    /// Returns the index in the ring's array of the cell with the number `slot`.
    const fn place(self, slot: i64) -> usize {
        self.offset() + slot.rem_euclid(self.cells() as i64) as usize
    }

    pub(super) const ALL: [Resolution; 2] = [Resolution::Seconds, Resolution::TenSeconds];
}

/// A time range, from and to, in microseconds since 1970.
pub(super) type Span = (i64, i64);

const MICROS: i64 = 1_000_000;

/// The rings of both resolutions in one allocation of 1,680 bytes. Values are `f32` relative to a
/// base, and exact to 1 in 16 million of the distance from the first large value.
///
/// The newest cell and the cell before it are summed as `f64`, so that sums of many small values
/// are equally exact. Two cells are needed, because processes report at different times of a
/// second.
#[derive(Clone)]
pub(super) struct Ring {
    cells: Box<[f32; FINE + COARSE]>,
    base: f64,
    /// The newest second with a value.
    head: i64,
    /// The newest cell and the cell before it for each resolution, in the order of
    /// [`Resolution::ALL`].
    exact: [[f64; EXACT]; 2],
}

/// The number of newest cells of each resolution that are stored as `f64`.
const EXACT: usize = 2;

/// The maximum value that is stored without a base.
const SMALL: f64 = (1 << 24) as f64;

impl Ring {
    pub(super) const BYTES: usize = (FINE + COARSE) * size_of::<f32>();

    /// Creates an empty ring whose newest second is `second`.
    pub(super) fn new(second: i64) -> Self {
        Ring {
            cells: Box::new([f32::NAN; FINE + COARSE]),
            base: 0.0,
            head: second,
            exact: [[f64::NAN; EXACT]; 2],
        }
    }

    /// Returns the newest second.
    pub(super) fn head(&self) -> i64 {
        self.head
    }

    /// Puts `number` into the cells of `second`, combined with the cell's value by `fold`. A second
    /// before the newest counts as the newest, because the clock was set back a little.
    pub(super) fn put(&mut self, second: i64, number: f64, fold: impl Fn(f64, f64) -> f64) {
        let second = second.max(self.head);
        let is_first = self.exact.iter().all(|[newest, _]| newest.is_nan());
        if is_first && number.abs() >= SMALL {
            self.base = number;
        }
        self.advance(second);
        for ([newest, _], grain) in self.exact.iter_mut().zip(Resolution::ALL) {
            *newest = if newest.is_nan() {
                number
            } else {
                fold(*newest, number)
            };
            let at = grain.place(second.div_euclid(grain.secs()));
            self.cells[at] = (*newest - self.base) as f32;
        }
    }

    /// Distributes `growth` proportionally over the cells of its time range. Shares older than the
    /// ring are dropped. An integer is distributed as integers.
    pub(super) fn spread(&mut self, (from, to): Span, growth: f64) {
        // A cell that begins at the end of the range has no share.
        let last = if to > from { to - 1 } else { to };
        self.advance(last.div_euclid(MICROS));
        let grown_by = |at: i64| {
            let share = (at.clamp(from, to) - from) as f64 / (to - from) as f64;
            match growth.fract() == 0.0 {
                true => (growth * share).round(),
                false => growth * share,
            }
        };
        for (index, grain) in Resolution::ALL.into_iter().enumerate() {
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

    /// Makes `second` the newest second, unless it is older. New cells are empty.
    fn advance(&mut self, second: i64) {
        for (exact, grain) in self.exact.iter_mut().zip(Resolution::ALL) {
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

    /// Returns the value of the cell with the number `slot`, counted in seconds or tens of seconds.
    /// Returns `None` outside the ring's range.
    pub(super) fn get(&self, grain: Resolution, slot: i64) -> Option<f64> {
        let newest = self.head.div_euclid(grain.secs());
        if slot > newest || slot <= newest - grain.cells() as i64 {
            return None;
        }
        let number = self.cells[grain.place(slot)];
        (!number.is_nan()).then(|| f64::from(number) + self.base)
    }

    /// Returns the value as [`get`](Self::get), with the best available precision. `index` is the
    /// index of the resolution.
    fn exact(&self, index: usize, grain: Resolution, slot: i64) -> Option<f64> {
        let behind = usize::try_from(self.head.div_euclid(grain.secs()) - slot).ok()?;
        match self.exact[index].get(behind) {
            Some(number) => (!number.is_nan()).then_some(*number),
            None => self.get(grain, slot),
        }
    }

    /// Merges the cells of another ring into this one, combined by `fold`.
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
        for (index, grain) in Resolution::ALL.into_iter().enumerate() {
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
            for grain in Resolution::ALL {
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
        assert_eq!(ring.get(Resolution::Seconds, 99), Some(1.7e9 + 99.0 / 8.0));
        assert_eq!(ring.get(Resolution::TenSeconds, 0), Some(1.7e9 + 9.0 / 8.0));
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
            assert_eq!(
                ring.get(Resolution::Seconds, second),
                Some(600.0),
                "{second}"
            );
        }
        for ten in 0..3 {
            assert_eq!(ring.get(Resolution::TenSeconds, ten), Some(6_000.0));
        }
        // An empty range: all belongs to its second.
        ring.spread((30_000_000, 30_000_000), 7.0);
        assert_eq!(ring.get(Resolution::Seconds, 30), Some(7.0));
        // Integers stay integers, and nothing is lost; shares outside the ring are dropped.
        ring.spread((30_500_000, 33_500_000), 2.0);
        let shares = (30..=33).map(|second| ring.get(Resolution::Seconds, second).unwrap());
        let shares: Vec<f64> = shares.collect();
        assert!(
            shares.iter().all(|share| share.fract() == 0.0),
            "{shares:?}"
        );
        assert_eq!(shares.iter().sum::<f64>(), 9.0);
        ring.spread((33_500_000, 10_000_000_000), 9_966.5);
        assert_eq!(ring.get(Resolution::Seconds, 9_940), Some(1.0));
        assert_eq!(ring.get(Resolution::TenSeconds, 700), Some(10.0));
    }

    #[test]
    fn many_small_shares_of_large_sums_are_not_lost_whoever_tells_them_when() {
        for is_merged in [false, true] {
            let (mut ring, large) = (Ring::new(0), 3e8);
            for second in 1..30i64 {
                // Reports of the previous second: one large value, then many small ones, each a
                // little later.
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
                let got = ring.get(Resolution::Seconds, second).unwrap();
                assert!((got - large - small).abs() <= tolerance, "{second}: {got}");
            }
            for ten in 1..2 {
                let got = ring.get(Resolution::TenSeconds, ten).unwrap();
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
                one.get(Resolution::TenSeconds, slot),
                both.get(Resolution::TenSeconds, slot)
            );
        }
        assert_eq!(one.get(Resolution::Seconds, 499), Some(2.0));
    }
}
