//! Counter-based randomness: the draws of event `i` depend on the seed and on `i`, never on earlier
//! events.
//!
//! The mixer is the finaliser of splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom
//! Number Generators", 2014, with Stafford's variant 13 of the constants). An event hashes (seed,
//! `i`) into a separate state, and continues with a splitmix64 sequence from there.

/// The step of the Weyl sequences: 2^64 divided by the golden ratio, odd.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Applies a bijection of 64 bits in which each input bit flips about half of the output bits.
#[inline]
pub(crate) const fn mix64(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Scales `bits` to `0..bound` by a multiplication; its bias is at most `bound` / 2^64.
#[inline]
pub(crate) const fn scale(bits: u64, bound: u64) -> u64 {
    ((bits as u128 * bound as u128) >> 64) as u64
}

/// The random draws of one event, in the order in which the event's fields request them.
#[derive(Debug)]
pub(crate) struct EventRandom {
    state: u64,
}

impl EventRandom {
    /// Returns the draws of event `index` in the stream of `seed`.
    pub(crate) fn new(seed: u64, index: u64) -> Self {
        let stream = mix64(seed.wrapping_add(GOLDEN));
        Self {
            state: mix64(stream.wrapping_add(index.wrapping_mul(GOLDEN))),
        }
    }

    /// Returns 64 uniform bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix64(self.state)
    }

    /// Returns a uniform number in `0..bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        scale(self.bits(), bound)
    }

    /// Returns true for all but one in `ratio` draws: Beam's meaning of a "hot ratio".
    pub(crate) fn all_but_one_in(&mut self, ratio: u64) -> bool {
        self.below(ratio) > 0
    }

    /// Returns one of `choices`, which must not be empty.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Returns a price from 100 to about 105 million with a nearly uniform logarithm. Beam takes a
    /// power of ten. Here both the octave and the position in it are uniform, which needs integers
    /// only and so is the same on every machine.
    pub(crate) fn price(&mut self) -> u64 {
        let octave = 100_u64 << self.below(20);
        octave + self.below(octave)
    }

    /// Returns `length` lower-case letters.
    pub(crate) fn letters(&mut self, length: usize) -> String {
        const LETTERS_PER_DRAW: usize = 12; // 26^12 < 2^57, so the last letter is still unbiased
        let mut text = String::with_capacity(length);
        while text.len() < length {
            let mut bits = self.bits();
            for _ in 0..LETTERS_PER_DRAW.min(length - text.len()) {
                text.push(char::from(b'a' + (bits % 26) as u8));
                bits /= 26;
            }
        }
        text
    }

    /// Returns letters that pad an event of `size` bytes to about `average` bytes. The padding
    /// varies by a fifth; it is empty if the event is large enough.
    pub(crate) fn padding(&mut self, size: usize, average: usize) -> String {
        let lacking = average.saturating_sub(size);
        let spread = self.below(2 * (lacking as u64 / 5) + 1) as usize;
        self.letters(lacking - lacking / 5 + spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_of_an_event_depend_on_seed_and_index_only() {
        let draws = |seed, index| {
            let mut random = EventRandom::new(seed, index);
            [random.bits(), random.below(1000), random.price()]
        };
        assert_eq!(draws(1, 5), draws(1, 5));
        assert_ne!(draws(1, 5), draws(1, 6));
        assert_ne!(draws(1, 5), draws(2, 5));
    }

    #[test]
    fn scaling_stays_below_the_bound_and_reaches_both_ends() {
        assert_eq!(scale(u64::MAX, 10), 9);
        assert_eq!(scale(0, 10), 0);
        assert_eq!(scale(u64::MAX, 0), 0);
        assert_eq!(scale(u64::MAX, u64::MAX), u64::MAX - 1);
    }

    #[test]
    fn letters_are_as_many_as_asked_for_and_filling_lies_around_the_average() {
        let mut random = EventRandom::new(3, 3);
        for length in [0, 1, 12, 13, 40] {
            let text = random.letters(length);
            assert_eq!(text.len(), length);
            assert!(text.bytes().all(|byte| byte.is_ascii_lowercase()));
        }
        assert_eq!(random.padding(200, 100), "");
        for _ in 0..100 {
            assert!((80..=120).contains(&random.padding(400, 500).len()));
        }
    }

    #[test]
    fn half_of_the_prices_lie_below_the_middle_octave() {
        let mut random = EventRandom::new(9, 1);
        let cheap = (0..10_000).filter(|_| random.price() < 100 << 10).count();
        assert!((4_800..5_200).contains(&cheap), "{cheap}");
    }
}
