//! Which requests of a member have come, so that none is carried out twice.

use std::collections::VecDeque;

/// Which requests of a member have come.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Nothing below this number is waited for.
    floor: u64,
    /// Whether each from there on has come.
    came: VecDeque<bool>,
}

/// How far apart the requests may be that a member waits for.
pub(super) const MOST: u64 = 1 << 20;

impl Seen {
    /// Whether the request is to be carried out: it comes for the first time, and is waited for.
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
        let mut seen = Seen::default();
        assert!(seen.is_new(5, 3));
        assert!(!seen.is_new(5, 3));
        assert!(seen.is_new(3, 3));
        assert!(!seen.is_new(2, 3));
        assert!(seen.is_new(100, 50));
        assert!(!seen.is_new(6, 3), "the floor never sinks");
        assert!(!seen.is_new(u64::MAX, 50));
    }
}
