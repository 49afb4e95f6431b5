//! Ring buffers.

use std::fmt;
use std::sync::Arc;

use crate::protocol::WhenFull;
use ardea_codec::Kept;
use ardea_core::Result;

use super::Ring;
use crate::node::grid::Inner;

/// About how many bytes are read at a time.
const READ_BYTES: u32 = 256 << 10;

/// A ring buffer in the memory of all members: values with consecutive numbers, of which the newest are kept, as many as its capacity. Who reads takes nothing out, and so may read
/// again, as may others. Cheap to clone; calls block, and may come from any thread.
///
/// What holds for a [`GridQueue`](crate::node::GridQueue) holds here: it is linearizable, survives with the grid's entries, and is kept by one member and its backups.
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

/// Values of a ring buffer that follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run<V> {
    /// The number of the first. If it is greater than what was asked for, those before it are gone.
    pub from: u64,
    /// The values.
    pub values: Vec<V>,
    /// The number that the next value gets which is added to the ring buffer: there are more if it is greater than that behind these.
    pub next: u64,
}

impl<V> Clone for GridRing<V> {
    fn clone(&self) -> Self {
        GridRing(self.0.clone())
    }
}

impl<V: Kept> GridRing<V> {
    pub(crate) fn new(inner: Arc<Inner>, name: &str, capacity: u64) -> Result<Self> {
        Ring::new(inner, ("ring buffer", name), capacity).map(GridRing)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.asking.name()
    }

    /// Adds a value, for which the oldest goes if there are as many as there may be; its number.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if nobody may write within the patience,
    /// [`ErrorCode::LimitReached`](ardea_core::ErrorCode::LimitReached) if the members have no room: then nothing was done.
    /// [`ErrorCode::StateUnknown`](ardea_core::ErrorCode::StateUnknown) if nobody knows.
    pub fn add(&self, value: &V) -> Result<u64> {
        let place = self.0.append(value, WhenFull::Overwrite)?;
        place.ok_or_else(|| {
            self.0
                .asking
                .no_answer(&crate::protocol::Answer::Place(None))
        })
    }

    /// Values from a number on, some at a time: from the oldest that is there, if that one is gone; none if it has not come yet.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`ErrorCode::BadRecord`](ardea_core::ErrorCode::BadRecord) if values are of another type.
    pub fn read(&self, from: u64) -> Result<Run<V>> {
        let (from, values, next) = self.0.read(from, READ_BYTES)?;
        Ok(Run { from, values, next })
    }

    /// How many values there are.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn len(&self) -> Result<u64> {
        self.0.len()
    }

    /// Whether there is none.
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
