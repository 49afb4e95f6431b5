//! The policy for how much memory an empty buffer retains.

/// Size up to which a buffer is always retained, in bytes.
const LEAST_BYTES: usize = 64 << 10;

/// Retained size as a multiple of the recently used size. A buffer that grows by doubling has up to
/// twice the used size, and is freed only when half of the used size would be enough.
const ROOM: usize = 4;

/// The recent usage decays by one part in this many on each call of [`decay`](BufferUsage::decay).
const FORGOTTEN: usize = 128;

/// The recent usage of a buffer, in bytes. Freeing memory that is needed again soon costs repeated
/// zeroing; retaining the peak usage forever wastes memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct BufferUsage {
    bytes: usize,
}

impl BufferUsage {
    /// Records that this many bytes are needed.
    pub fn record(&mut self, bytes: usize) {
        self.bytes = self.bytes.max(bytes);
    }

    /// Decays the recent usage after some time; returns the largest buffer worth retaining, in
    /// bytes. A single peak is halved after about ninety calls.
    pub fn decay(&mut self) -> usize {
        self.bytes -= self.bytes.div_ceil(FORGOTTEN);
        self.bytes.saturating_mul(ROOM).max(LEAST_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_now_and_then_is_kept_and_what_is_needed_no_more_is_not() {
        let mut needed = BufferUsage::default();
        for _ in 0..10 {
            needed.record(2 << 20);
            for _ in 0..80 {
                assert!(needed.decay() > 4 << 20);
            }
        }
        for _ in 0..1_000 {
            needed.decay();
        }
        assert_eq!(needed.decay(), LEAST_BYTES);
    }
}
