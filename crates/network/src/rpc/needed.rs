//! How much memory a buffer keeps while it is empty.

/// A buffer of this length is always kept, in bytes.
const LEAST_BYTES: usize = 64 << 10;

/// How much more than was needed is worth keeping: what grows by doubling has up to twice as much, and goes only when half of that would do.
const ROOM: usize = 4;

/// Which part of what was needed is forgotten each time.
const FORGOTTEN: usize = 128;

/// How many bytes a buffer has needed lately. Who gives memory back that he needs again soon has it cleared again and again, which costs more than what goes through it; who
/// keeps all that he ever needed has it lying idle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needed {
    bytes: usize,
}

impl Needed {
    /// So many bytes are needed.
    pub fn see(&mut self, bytes: usize) {
        self.bytes = self.bytes.max(bytes);
    }

    /// Some time has passed; how long a buffer is worth keeping now, in bytes. What was needed once is half forgotten after about ninety times.
    pub fn pass(&mut self) -> usize {
        self.bytes -= self.bytes.div_ceil(FORGOTTEN);
        self.bytes.saturating_mul(ROOM).max(LEAST_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_now_and_then_is_kept_and_what_is_needed_no_more_is_not() {
        let mut needed = Needed::default();
        for _ in 0..10 {
            needed.see(2 << 20);
            for _ in 0..80 {
                assert!(needed.pass() > 4 << 20);
            }
        }
        for _ in 0..1_000 {
            needed.pass();
        }
        assert_eq!(needed.pass(), LEAST_BYTES);
    }
}
