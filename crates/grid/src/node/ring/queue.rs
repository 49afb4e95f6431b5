//! Queues.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::protocol::WhenFull;
use ardea_codec::Kept;
use ardea_core::Result;

use super::Ring;
use crate::node::grid::Inner;

/// How long who waits for a value sleeps before it looks again: at first, and at most.
const FIRST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(20);

/// A queue in the memory of all members: each value that is offered is taken once, the first first. Cheap to clone; calls block, and may come from any thread.
///
/// Each operation is done at one moment while it is under way, seen by all (it is linearizable), and survives what the grid's entries survive. One that ends with
/// [`ErrorCode::StateUnknown`](ardea_core::ErrorCode::StateUnknown) was done, or was not, or will still be: a value may have been taken that nobody has got.
/// All of a queue is kept by one member and its backups, so it carries what one of them does.
///
/// ```
/// use ardea_grid::node::{Grid, GridConfig};
///
/// let grid = Grid::start(GridConfig::new("harbour"))?;
/// let arrivals = grid.queue::<String>("arrivals", 1_000)?;
/// assert!(arrivals.offer(&"seagull".to_string())?);
/// assert_eq!(arrivals.poll()?.as_deref(), Some("seagull"));
/// assert_eq!(arrivals.poll()?, None);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct GridQueue<V>(Ring<V>);

impl<V> Clone for GridQueue<V> {
    fn clone(&self) -> Self {
        GridQueue(self.0.clone())
    }
}

impl<V: Kept> GridQueue<V> {
    pub(crate) fn new(inner: Arc<Inner>, name: &str, capacity: u64) -> Result<Self> {
        Ring::new(inner, ("queue", name), capacity).map(GridQueue)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.asking.name()
    }

    /// Adds a value at the end; false if the queue is full.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if nobody may write within the patience,
    /// [`ErrorCode::LimitReached`](ardea_core::ErrorCode::LimitReached) if the members have no room: then nothing was done.
    /// [`ErrorCode::StateUnknown`](ardea_core::ErrorCode::StateUnknown) if nobody knows.
    pub fn offer(&self, value: &V) -> Result<bool> {
        let place = self.0.append(value, WhenFull::Refuse)?;
        Ok(place.is_some())
    }

    /// Takes the first value out, if there is one.
    ///
    /// # Errors
    /// As [`offer`](Self::offer), and [`ErrorCode::BadRecord`](ardea_core::ErrorCode::BadRecord) if the value is of another type: it is gone then.
    pub fn poll(&self) -> Result<Option<V>> {
        self.0.take()
    }

    /// Takes the first value out, and waits for so long at most until there is one.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn poll_within(&self, patience: Duration) -> Result<Option<V>> {
        let until = Instant::now() + patience;
        let mut rest = FIRST_REST;
        loop {
            let value = self.poll()?;
            let left = until.saturating_duration_since(Instant::now());
            if value.is_some() || left.is_zero() {
                return Ok(value);
            }
            thread::sleep(rest.min(left));
            rest = (2 * rest).min(LONGEST_REST);
        }
    }

    /// The first value, which stays.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn peek(&self) -> Result<Option<V>> {
        let (_, values, _) = self.0.read(0, 0)?;
        Ok(values.into_iter().next())
    }

    /// How many values there are.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn len(&self) -> Result<u64> {
        self.0.len()
    }

    /// Whether there is none.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }
}

impl<V> fmt::Debug for GridQueue<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GridQueue({:?})", self.0.asking.name())
    }
}
