//! Handoff of in-memory state from one attempt of a job to the next in the same process.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ardea_core::{Epoch, Watermark};

use crate::InstanceName;
use crate::panics::quietly;

/// The state in memory that instances of an ended job leave for their successors.
///
/// **Consistency.** An instance leaves its state only if it had no input since the snapshot of an
/// epoch that was written completely. Only an instance of the same vertex, index and parallelism,
/// and so of the same partitions, that resumes from that epoch takes the state. The caller that
/// passes a handoff to the next attempt must ensure that the epoch belongs to the previous attempt.
/// An instance that finds no state here is restored from the checkpoint.
#[derive(Default)]
pub struct StateHandoff {
    left: Mutex<HashMap<InstanceName, HandedOffState>>,
}

/// The state of one instance.
pub(crate) struct HandedOffState {
    /// The epoch whose end this state corresponds to.
    pub(crate) epoch: Epoch,
    /// The watermark of the instance.
    pub(crate) watermark: Option<Watermark>,
    pub(crate) memory: Box<dyn Any + Send>,
}

impl StateHandoff {
    /// Stores the state of an instance.
    pub(crate) fn put(&self, of: InstanceName, keepsake: HandedOffState) {
        let before = self.left().insert(of, keepsake);
        quietly(|| drop(before));
    }

    /// Takes the state of the instance `of` at the end of `epoch`, if there is one.
    pub(crate) fn take(&self, of: &InstanceName, epoch: Epoch) -> Option<HandedOffState> {
        let mut left = self.left();
        let is_of_it = left.get(of).is_some_and(|it| it.epoch == epoch);
        is_of_it.then(|| left.remove(of)).flatten()
    }

    /// Returns the number of states that were not taken.
    pub fn len(&self) -> usize {
        self.left().len()
    }

    /// Returns true if there is no state.
    pub fn is_empty(&self) -> bool {
        self.left().is_empty()
    }

    /// Drops all states that were not taken. Costs as much as dropping the state.
    pub fn clear(&self) {
        let left = std::mem::take(&mut *self.left());
        for keepsake in left.into_values() {
            quietly(|| drop(keepsake));
        }
    }

    fn left(&self) -> MutexGuard<'_, HashMap<InstanceName, HandedOffState>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StateHandoff {
    fn drop(&mut self) {
        self.clear();
    }
}

impl std::fmt::Debug for StateHandoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keepsakes({})", self.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use ardea_core::Instance;

    fn name(index: u32, parallelism: u32) -> InstanceName {
        InstanceName {
            vertex: "counts".into(),
            instance: Instance { index, parallelism },
        }
    }

    fn keepsake(epoch: u64) -> HandedOffState {
        HandedOffState {
            epoch: Epoch(epoch),
            watermark: None,
            memory: Box::new(epoch),
        }
    }

    #[test]
    fn only_the_same_instance_takes_and_only_from_the_end_of_the_same_epoch() {
        let keepsakes = StateHandoff::default();
        keepsakes.put(name(0, 2), keepsake(7));
        assert!(keepsakes.take(&name(1, 2), Epoch(7)).is_none());
        assert!(keepsakes.take(&name(0, 3), Epoch(7)).is_none());
        assert!(keepsakes.take(&name(0, 2), Epoch(8)).is_none());
        let taken = keepsakes.take(&name(0, 2), Epoch(7)).unwrap();
        assert_eq!(taken.memory.downcast_ref(), Some(&7u64));
        assert!(keepsakes.take(&name(0, 2), Epoch(7)).is_none());
        assert!(keepsakes.is_empty());
    }
}
