//! Deterministic random numbers, the only source of randomness of a simulation.

use std::time::Duration;

/// A stream of random numbers (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the stream of a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns a random number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `end`, or zero if `end` is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.any().checked_rem(end).unwrap_or(0)
    }

    /// Returns true with a probability of `times` in a thousand.
    pub fn per_mille(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// Returns a time from `from` to below `to`.
    pub fn time(&mut self, from: Duration, to: Duration) -> Duration {
        let span = to.saturating_sub(from).as_micros();
        from + Duration::from_micros(self.below(u64::try_from(span).unwrap_or(u64::MAX)))
    }

    /// Returns a random element, or `None` if there is none.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(from.len() as u64)).unwrap_or(0);
        from.get(at).cloned()
    }
}
