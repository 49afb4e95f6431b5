//! Reproducible random numbers.

/// A sequence of pseudo-random numbers (SplitMix64: Steele, Lea, Flood, "Fast splittable
/// pseudorandom number generators", 2014).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        SeededRandom(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`; zero if the bound is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The quotient is below the bound; its bias is below 2^-64 times the bound.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from zero to one, one excluded.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Brings a list into random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            list.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_sequence() {
        let take = |seed| {
            let mut random = SeededRandom::new(seed);
            let mut list: Vec<u32> = (0..50).collect();
            random.shuffle(&mut list);
            (list, random.unit())
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
        let (mut list, unit) = take(7);
        list.sort_unstable();
        assert!(list.into_iter().eq(0..50));
        assert!((0.0..1.0).contains(&unit));
    }
}
