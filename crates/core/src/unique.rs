//! Random numbers that name a process, a run or a file.

use std::hash::{BuildHasher, RandomState};

/// Returns a random 64-bit number, different at each call and on every machine. Not for secrets.
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
