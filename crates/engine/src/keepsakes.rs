//! What instances remember, on its way from one life of a job to the next in the same process, without leaving memory.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ardea_core::{Epoch, Watermark};

use crate::InstanceName;
use crate::panics::quietly;

/// Where the instances of a job leave what they remember when the job is ended, for those that take their places.
///
/// **What is taken is what the snapshot has.** An instance leaves something only if nothing has come to it since it took the cut of an epoch that was
/// written whole, and it is taken only by an instance of the same vertex, number and parallelism, so of the same partitions, that
/// begins from the end of that very epoch. Whoever hands this from one life to the next has to see to it that the epoch belongs to the former.
/// So it is worth no more than a short cut: whoever finds nothing here reads the snapshot.
#[derive(Default)]
pub struct Keepsakes {
    left: Mutex<HashMap<InstanceName, Keepsake>>,
}

/// What an instance has left.
pub(crate) struct Keepsake {
    /// The epoch at whose end it remembered this.
    pub(crate) epoch: Epoch,
    /// What it had been told of time.
    pub(crate) watermark: Option<Watermark>,
    pub(crate) memory: Box<dyn Any + Send>,
}

impl Keepsakes {
    /// An instance leaves something.
    pub(crate) fn leave(&self, of: InstanceName, keepsake: Keepsake) {
        let before = self.left().insert(of, keepsake);
        quietly(|| drop(before));
    }

    /// What such an instance has left that had come to the end of this epoch, if it has.
    pub(crate) fn take(&self, of: &InstanceName, epoch: Epoch) -> Option<Keepsake> {
        let mut left = self.left();
        let is_of_it = left.get(of).is_some_and(|it| it.epoch == epoch);
        is_of_it.then(|| left.remove(of)).flatten()
    }

    /// How many instances have left something that nobody has taken.
    pub fn len(&self) -> usize {
        self.left().len()
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.left().is_empty()
    }

    /// Drops what nobody has taken. Cost: that of dropping the state.
    pub fn clear(&self) {
        let left = std::mem::take(&mut *self.left());
        for keepsake in left.into_values() {
            quietly(|| drop(keepsake));
        }
    }

    fn left(&self) -> MutexGuard<'_, HashMap<InstanceName, Keepsake>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Keepsakes {
    fn drop(&mut self) {
        self.clear();
    }
}

impl std::fmt::Debug for Keepsakes {
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

    fn keepsake(epoch: u64) -> Keepsake {
        Keepsake {
            epoch: Epoch(epoch),
            watermark: None,
            memory: Box::new(epoch),
        }
    }

    #[test]
    fn only_the_same_instance_takes_and_only_from_the_end_of_the_same_epoch() {
        let keepsakes = Keepsakes::default();
        keepsakes.leave(name(0, 2), keepsake(7));
        assert!(keepsakes.take(&name(1, 2), Epoch(7)).is_none());
        assert!(keepsakes.take(&name(0, 3), Epoch(7)).is_none());
        assert!(keepsakes.take(&name(0, 2), Epoch(8)).is_none());
        let taken = keepsakes.take(&name(0, 2), Epoch(7)).unwrap();
        assert_eq!(taken.memory.downcast_ref(), Some(&7u64));
        assert!(keepsakes.take(&name(0, 2), Epoch(7)).is_none());
        assert!(keepsakes.is_empty());
    }
}
