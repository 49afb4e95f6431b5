//! The size of a ring.

use crate::layout::{RingLayout, UNIT};

/// The size of a ring: a power of two from 64 KiB to 256 MiB.
///
/// A message of more than a quarter of the ring goes in parts, each copied twice. A larger ring
/// lets producers run further ahead. But a ring that exceeds the cache of a core makes large
/// messages slower, by a half at 320 KB.
///
/// ```
/// use ardea_shm::RingSize;
///
/// assert_eq!(RingSize::of_bytes(100_000).bytes(), 128 << 10);
/// assert_eq!(RingSize::for_messages(10 << 10).bytes(), 512 << 10);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RingSize {
    bytes: u64,
}

impl RingSize {
    /// The smallest ring.
    pub const MIN: Self = RingSize { bytes: 64 << 10 };
    /// The largest ring.
    pub const MAX: Self = RingSize { bytes: 256 << 20 };

    /// The least multiple of the message size of a ring [for messages](Self::for_messages); the
    /// next power of two is less than twice as much.
    const MESSAGES: u64 = 50;

    /// Creates a size of at least `bytes`, within the limits.
    pub const fn of_bytes(bytes: u64) -> Self {
        if bytes <= Self::MIN.bytes {
            Self::MIN
        } else if bytes >= Self::MAX.bytes {
            Self::MAX
        } else {
            RingSize {
                bytes: bytes.next_power_of_two(),
            }
        }
    }

    /// The size up to which a ring stays in the second-level cache of a core.
    const CACHED: Self = RingSize { bytes: 2 << 20 };
    /// The least multiple of the size of large messages: each takes less than a quarter.
    const LARGE_MESSAGES: u64 = 5;

    /// Creates the default size for messages of so many bytes on average. 50 to 100 of them fit, or
    /// 5 to 50 if they are larger than 40 KB.
    pub const fn for_messages(bytes: u64) -> Self {
        let many = Self::of_bytes(bytes.saturating_mul(Self::MESSAGES));
        let few = Self::of_bytes(bytes.saturating_mul(Self::LARGE_MESSAGES));
        if many.bytes <= Self::CACHED.bytes {
            many
        } else if few.bytes <= Self::CACHED.bytes {
            Self::CACHED
        } else {
            few
        }
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    pub(crate) const fn geometry(self) -> RingLayout {
        RingLayout::new(self.bytes / UNIT as u64)
    }
}

impl Default for RingSize {
    /// Returns the size for messages of 10 KiB.
    fn default() -> Self {
        Self::for_messages(10 << 10)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn many_messages_fit_or_some_large_ones() {
        for bytes in (2_000..20_000_000).step_by(777) {
            let size = RingSize::for_messages(bytes);
            let count = size.bytes() / bytes;
            let expected = if bytes <= 40_000 { 50..100 } else { 5..53 };
            assert!(expected.contains(&count), "{count} of {bytes} bytes");
            assert!(bytes as usize / UNIT + 1 < size.geometry().max_slot() as usize);
        }
        assert_eq!(RingSize::for_messages(0), RingSize::MIN);
        assert_eq!(RingSize::for_messages(u64::MAX), RingSize::MAX);
        assert_eq!(RingSize::MAX.geometry().max_slot(), 1 << 20);
    }
}
