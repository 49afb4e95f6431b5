//! Randomness from a seed: the only one there is, so that a seed says everything.

use std::time::Duration;

use ardea_control::TupleIds;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(TupleIds);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Random(TupleIds::new(seed))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.next_id()
    }

    /// A number from zero to below `end`; zero if that is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.any().checked_rem(end).unwrap_or(0)
    }

    /// Yes, so many times in a thousand.
    pub fn per_mille(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// A time between both, the second excluded.
    pub fn time(&mut self, from: Duration, to: Duration) -> Duration {
        let span = to.saturating_sub(from).as_micros();
        from + Duration::from_micros(self.below(u64::try_from(span).unwrap_or(u64::MAX)))
    }

    /// One of them.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(from.len() as u64)).unwrap_or(0);
        from.get(at).cloned()
    }
}
