//! Random numbers that name a process, a run or a file.

use std::hash::{BuildHasher, RandomState};

/// Returns a random number: another one at each call, on every machine.
///
/// 64 bits of the system's randomness; not for secrets.
pub fn unique_number() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_calls_give_two_numbers() {
        assert_ne!(unique_number(), unique_number());
    }
}
