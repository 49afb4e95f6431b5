//! Snapshots, restore and handoff of keyed state.

use std::any::Any;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Instance, Key, PartitionId, PartitionRestore, Progress,
    RestoredEntry, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape,
};

use super::{KeyedState, read, write};

impl<K: Key, S> KeyedState<K, S> {
    /// Restores one entry, for operators whose restore has further entries.
    ///
    /// # Errors
    /// The entry cannot be decoded, belongs to another state, or occurs twice.
    pub fn restore_entry(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        let (key, state, times) = read(self.table.name, &self.codecs, entry)?;
        self.table.weigh(entry);
        let slot = self.table.restore(key, state)?;
        self.timers.set(slot, times);
        self.spill()
    }

    /// Wakes the operator if there are processing timers. During a restore there is no outbox to
    /// schedule it.
    fn wake_for_timers(&self) {
        if self.first_processing_timer().is_some() {
            self.waker.wake();
        }
    }
}

impl<K: Key, S: Send + 'static> Checkpointed for KeyedState<K, S> {
    fn states(&mut self) -> Vec<StateShape> {
        let codecs = self.codecs.iter();
        codecs.map(|it| it.shape(self.table.name)).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        if self.instance.is_none() {
            return Err(not_opened(self.table.name));
        }
        self.table.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let name = self.table.name;
        let instance = self.instance.ok_or_else(|| not_opened(name))?;
        let format = (name, &self.codecs, &self.timers);
        self.table
            .write_snapshot(writer, |chunk, key, slot, state| {
                if PartitionId::of(key).owner(instance.parallelism) != instance.index {
                    return Err(not_owned(name, instance));
                }
                write(format, chunk, (key, slot), state)
            })
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.table.commit(epoch)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.table.abort(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            self.restore_entry(&entry)?;
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.table.all_restored();
        self.wake_for_timers();
        Ok(Progress::DONE)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.table = before.table;
        self.timers.take_over(before.timers);
        true
    }

    fn partitioned_restore(&mut self) -> Option<&mut dyn PartitionRestore> {
        match self.is_lazily_restored {
            true => Some(self),
            false => None,
        }
    }
}

fn not_opened(name: &str) -> Error {
    let what = format!("the state {name:?} was not opened, so its changes are not tracked");
    Error::new(ErrorCode::InvalidJob, what).hint("call `open` of the state in `init`")
}

/// Returns the error of a state with a key of another instance. A restored job would give the key
/// to its owner, which does not receive the records.
fn not_owned(name: &str, instance: Instance) -> Error {
    let Instance { index, parallelism } = instance;
    let what = format!(
        "the state {name:?} of instance {index} of {parallelism} has a key of another instance"
    );
    let hint = "use the key of the step's `key_by` as the key of the state, or a parallelism of 1";
    Error::new(ErrorCode::InvalidJob, what).hint(hint)
}

impl<K: Key, S: Send + 'static> PartitionRestore for KeyedState<K, S> {
    fn enable_lazy_restore(&mut self, entries: u64) -> bool {
        self.table.begin_early(entries, self.codecs.is_some())
    }

    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        self.table.partition_restored(partition);
        self.wake_for_timers();
        Ok(())
    }

    fn take_requested_partitions(&mut self, wanted: &mut Vec<PartitionId>) {
        self.table.take_wanted(wanted);
    }
}
