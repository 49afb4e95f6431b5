//! Deduplication of requests of a member.

use std::collections::VecDeque;

/// Set of received requests of a member.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestDedup {
    /// No request below this number is outstanding.
    floor: u64,
    /// For each number from `floor` on, true if the request has been received.
    came: VecDeque<bool>,
}

/// Maximum distance between the numbers of outstanding requests of a member.
pub(super) const MOST: u64 = 1 << 20;

impl RequestDedup {
    /// Returns true if the request must be carried out: it is received for the first time and is
    /// outstanding.
    pub fn is_new(&mut self, number: u64, floor: u64) -> bool {
        while self.floor < floor {
            if self.came.pop_front().is_none() {
                self.floor = floor;
                break;
            }
            self.floor += 1;
        }
        let Some(at) = number.checked_sub(self.floor).filter(|at| *at < MOST) else {
            return false;
        };
        let at = at as usize;
        if self.came.len() <= at {
            self.came.resize(at + 1, false);
        }
        !std::mem::replace(&mut self.came[at], true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_new_once_and_never_when_nobody_waits_for_it() {
        let mut seen = RequestDedup::default();
        assert!(seen.is_new(5, 3));
        assert!(!seen.is_new(5, 3));
        assert!(seen.is_new(3, 3));
        assert!(!seen.is_new(2, 3));
        assert!(seen.is_new(100, 50));
        assert!(!seen.is_new(6, 3), "the floor never sinks");
        assert!(!seen.is_new(u64::MAX, 50));
    }
}
