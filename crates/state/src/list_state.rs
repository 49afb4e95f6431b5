//! A list per key, written item by item.

use std::any::Any;
use std::fmt;

use ardea_codec::StateValue;
use ardea_core::{
    Checkpointed, Epoch, InstanceContext, Key, Progress, RestoredEntry, RestoredState, Result,
    SnapshotRequest, SnapshotWriter, StateShape,
};

use crate::{MapState, NamedState};

/// A state with a list per key, for lists that grow: an increment contains the new items only.
///
/// ```
/// use ardea_state::ListState;
///
/// let mut bids: ListState<u64, i64> = ListState::new("bids");
/// for (auction, price) in [(1, 30), (2, 10), (1, 20)] {
///     bids.push(&auction, price)?;
/// }
/// assert_eq!(bids.iter(&1).collect::<Vec<_>>(), [&30, &20]);
/// bids.clear(&1);
/// assert_eq!(bids.iter(&1).count(), 0);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct ListState<K, T>(MapState<K, u64, T>);

impl<K: Key, T> ListState<K, T> {
    /// Creates an empty state that is not checkpointed. The name identifies it in snapshots.
    pub fn new(name: &'static str) -> Self {
        ListState(MapState::new(name))
    }

    /// Creates an empty state that is serialized by the default codecs of its types.
    pub fn checkpointed(name: &'static str) -> Self
    where
        K: StateValue,
        T: StateValue,
    {
        ListState(MapState::checkpointed(name))
    }

    /// Appends an item to the list of a key.
    ///
    /// # Errors
    /// As [`MapState::entry`].
    pub fn push(&mut self, key: &K, item: T) -> Result<()> {
        let number = self.0.last_name(key).map_or(0, |last| last + 1);
        self.0.insert(key, &number, item)
    }

    /// Returns the items of a key in the order in which they were appended.
    pub fn iter<'a>(&'a self, key: &'a K) -> impl Iterator<Item = &'a T> {
        self.0.iter(key).map(|(_, item)| item)
    }

    /// Removes the first item of a key, and returns it.
    pub fn pop_front(&mut self, key: &K) -> Option<T> {
        let number = *self.0.iter(key).next()?.0;
        self.0.remove(key, &number)
    }

    /// Removes all items of a key.
    pub fn clear(&mut self, key: &K) {
        self.0.clear(key);
    }
}

impl<K: Key, T: Send + 'static> Checkpointed for ListState<K, T> {
    fn states(&mut self) -> Vec<StateShape> {
        self.0.states()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.0.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.0.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.0.restore(state)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        self.0.take_over_state(memory)
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.0.on_restored(epoch)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.0.on_checkpoint_committed(epoch)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        self.0.on_checkpoint_aborted(epoch)
    }
}

impl<K: Key, T: Send + 'static> NamedState for ListState<K, T> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        self.0.open(context)
    }

    fn restore_entry(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        self.0.restore_entry(entry)
    }

    fn hand_over(&mut self) -> Box<dyn Any + Send> {
        self.0.hand_over()
    }
}

impl<K: Key, T> fmt::Debug for ListState<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListState({} items)", self.0.len())
    }
}
