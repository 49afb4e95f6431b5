//! A value alone on its cache lines.

use std::ops::Deref;

/// Keeps `T` on memory that no other value shares, so that a write to one side's
/// index does not take the other side's index out of its cache.
///
/// The alignment is 128 bytes, not the 64 of one line: from Sandy Bridge on,
/// Intel's x86-64 processors fetch lines in aligned pairs (the adjacent line,
/// or spatial, prefetcher; Intel 64 and IA-32 Architectures Optimization
/// Reference Manual), so neighbours disturb each other across two lines. The
/// lines of Apple's 64-bit ARM cores are 128 bytes themselves.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(T);

impl<T> Padded<T> {
    /// Wraps `value`.
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_128_bytes_apart() {
        assert_eq!(size_of::<[Padded<usize>; 2]>(), 256);
        assert_eq!(align_of::<Padded<u8>>(), 128);
    }
}
