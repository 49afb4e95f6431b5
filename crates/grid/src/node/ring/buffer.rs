//! Ring buffers.

use std::fmt;
use std::sync::Arc;

use crate::protocol::WhenFull;
use ardea_codec::StateValue;
use ardea_core::Result;

use super::Ring;
use crate::node::grid::Inner;

/// Approximate size of a read, in bytes.
const READ_BYTES: u32 = 256 << 10;

/// A replicated ring buffer: values with consecutive numbers, of which the newest are retained, up
/// to its capacity. Reads do not remove values, so several readers may read the same values. Cheap
/// to clone. Calls block and may be made from any thread.
///
/// Like a [`GridQueue`](crate::node::GridQueue), it is linearizable, as durable as the grid's
/// entries, and stored on one member and its backups.
///
/// ```
/// use ardea_grid::node::{Grid, GridConfig};
///
/// let grid = Grid::start(GridConfig::new("harbour"))?;
/// let log = grid.ring::<u32>("log", 2)?;
/// for entry in [10, 11, 12] {
///     log.add(&entry)?;
/// }
/// let run = log.read(0)?;
/// assert_eq!((run.from, run.values, run.next), (1, vec![11, 12], 3));
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct GridRing<V>(Ring<V>);

/// Consecutive values of a ring buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run<V> {
    /// The number of the first value. If it is greater than requested, the values before it have
    /// been overwritten.
    pub from: u64,
    /// The values.
    pub values: Vec<V>,
    /// The number of the next value to be added. There are more values if it is greater than the
    /// number after the last one returned.
    pub next: u64,
}

impl<V> Clone for GridRing<V> {
    fn clone(&self) -> Self {
        GridRing(self.0.clone())
    }
}

impl<V: StateValue> GridRing<V> {
    pub(crate) fn new(inner: Arc<Inner>, name: &str, capacity: u64) -> Result<Self> {
        Ring::new(inner, ("ring buffer", name), capacity).map(GridRing)
    }

    /// Returns the ring buffer's name.
    pub fn name(&self) -> &str {
        self.0.asking.name()
    }

    /// Adds a value, overwriting the oldest if the buffer is full. Returns its number.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if no member may
    /// write within the timeout, [`ErrorCode::LimitReached`](ardea_core::ErrorCode::LimitReached)
    /// if the memory limit is reached; in both cases nothing was written.
    /// [`ErrorCode::OutcomeUnknown`](ardea_core::ErrorCode::OutcomeUnknown) if it is unknown
    /// whether the value was added.
    pub fn add(&self, value: &V) -> Result<u64> {
        let place = self.0.append(value, WhenFull::Overwrite)?;
        place.ok_or_else(|| {
            self.0
                .asking
                .unexpected_answer(&crate::protocol::Answer::Place(None))
        })
    }

    /// Reads some values from a number on, or from the oldest available if that number has been
    /// overwritten. Returns none if the number has not been added yet.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`ErrorCode::BadRecord`](ardea_core::ErrorCode::BadRecord) if
    /// values are of another type.
    pub fn read(&self, from: u64) -> Result<Run<V>> {
        let (from, values, next) = self.0.read(from, READ_BYTES)?;
        Ok(Run { from, values, next })
    }

    /// Returns the number of values.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn len(&self) -> Result<u64> {
        self.0.len()
    }

    /// Returns true if there are no values.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }
}

impl<V> fmt::Debug for GridRing<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GridRing({:?})", self.0.asking.name())
    }
}
