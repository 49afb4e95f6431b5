//! Queues.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::protocol::WhenFull;
use ardea_codec::StateValue;
use ardea_core::Result;

use super::Ring;
use crate::node::grid::Inner;

/// Poll interval of a consumer that waits for a value: initial and maximum.
const FIRST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(20);

/// A replicated FIFO queue: each value is taken once. Cheap to clone. Calls block and may be made
/// from any thread.
///
/// Operations are linearizable and as durable as the grid's entries. One that fails with
/// [`ErrorCode::OutcomeUnknown`](ardea_core::ErrorCode::OutcomeUnknown) may have been carried out,
/// may be carried out later, or never: a value may have been taken without being returned. A queue
/// is stored on one member and its backups, so its throughput is that of one member.
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

impl<V: StateValue> GridQueue<V> {
    pub(crate) fn new(inner: Arc<Inner>, name: &str, capacity: u64) -> Result<Self> {
        Ring::new(inner, ("queue", name), capacity).map(GridQueue)
    }

    /// Returns the queue's name.
    pub fn name(&self) -> &str {
        self.0.asking.name()
    }

    /// Appends a value. Returns false if the queue is full.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if no member may
    /// write within the timeout, [`ErrorCode::LimitReached`](ardea_core::ErrorCode::LimitReached)
    /// if the memory limit is reached; in both cases nothing was written.
    /// [`ErrorCode::OutcomeUnknown`](ardea_core::ErrorCode::OutcomeUnknown) if it is unknown
    /// whether the value was added.
    pub fn offer(&self, value: &V) -> Result<bool> {
        let place = self.0.append(value, WhenFull::Refuse)?;
        Ok(place.is_some())
    }

    /// Removes and returns the first value, if there is one.
    ///
    /// # Errors
    /// As [`offer`](Self::offer), and [`ErrorCode::BadRecord`](ardea_core::ErrorCode::BadRecord) if
    /// the value is of another type; it has been removed then.
    pub fn poll(&self) -> Result<Option<V>> {
        self.0.take()
    }

    /// Like [`poll`](Self::poll), but waits up to `patience` for a value.
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

    /// Returns the first value without removing it.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn peek(&self) -> Result<Option<V>> {
        let (_, values, _) = self.0.read(0, 0)?;
        Ok(values.into_iter().next())
    }

    /// Returns the number of values.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn len(&self) -> Result<u64> {
        self.0.len()
    }

    /// Returns true if there are no values.
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
