//! The capacity of a queue, validated on construction.

use std::error::Error;
use std::fmt;

/// The number of items that a queue may hold: from 1 to [`Capacity::MAX`].
///
/// The bound is exact: a queue of capacity 1000 refuses the 1001st item, although
/// its memory has 1024 slots.
///
/// ```
/// use ardea_spsc::Capacity;
///
/// assert_eq!(Capacity::new(1000)?.get(), 1000);
/// assert!(Capacity::new(0).is_err());
/// # Ok::<(), ardea_spsc::CapacityError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity(usize);

impl Capacity {
    /// The largest capacity, 16,777,216 items (2^24).
    ///
    /// It is far above any useful setting: a longer queue only hides a consumer
    /// that is too slow.
    pub const MAX: Self = Self(1 << 24);

    /// Creates a capacity from external input, such as a setting.
    ///
    /// # Errors
    ///
    /// [`CapacityError`] if `items` is 0 or above [`Capacity::MAX`].
    pub const fn new(items: usize) -> Result<Self, CapacityError> {
        if items == 0 || items > Self::MAX.0 {
            Err(CapacityError { items })
        } else {
            Ok(Self(items))
        }
    }

    /// Creates a capacity from a computed number and clamps it to the allowed range: 0 becomes 1,
    /// and a number above [`Capacity::MAX`] becomes the maximum.
    #[must_use]
    pub const fn clamped(items: usize) -> Self {
        if items == 0 {
            Self(1)
        } else if items > Self::MAX.0 {
            Self::MAX
        } else {
            Self(items)
        }
    }

    /// Returns the number of items.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

/// An error for a number of items outside the allowed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityError {
    items: usize,
}

impl CapacityError {
    /// Returns the requested number of items.
    #[must_use]
    pub const fn items(&self) -> usize {
        self.items
    }
}

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a queue cannot hold {} items: choose a capacity from 1 to {}",
            self.items,
            Capacity::MAX.0
        )
    }
}

impl Error for CapacityError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_one_to_the_maximum() {
        assert_eq!(Capacity::new(1).map(Capacity::get), Ok(1));
        assert_eq!(Capacity::new(1 << 24), Ok(Capacity::MAX));
        assert!(Capacity::new(0).is_err());
        assert!(Capacity::new((1 << 24) + 1).is_err());
    }

    #[test]
    fn clamping_moves_into_the_range() {
        assert_eq!(Capacity::clamped(0).get(), 1);
        assert_eq!(Capacity::clamped(7).get(), 7);
        assert_eq!(Capacity::clamped(usize::MAX), Capacity::MAX);
    }

    #[test]
    fn the_error_says_what_was_asked_and_what_is_allowed() {
        let message = Capacity::new(0).map_err(|error| error.to_string());
        assert_eq!(
            message,
            Err(String::from(
                "a queue cannot hold 0 items: choose a capacity from 1 to 16777216"
            ))
        );
    }
}
