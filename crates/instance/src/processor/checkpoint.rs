//! Snapshots and restore of an instance in another process.

use ardea_core::{
    Checkpointed, Epoch, Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter,
    StateShape,
};

use super::InstanceP;
use super::saved_state::STATE;
use crate::format::BatchFormat;
use crate::protocol::StatePartEntry;

/// The length at which a part of the restored state is sent.
const PART_BYTES: usize = 1 << 20;

impl<F: BatchFormat> Checkpointed for InstanceP<F> {
    fn states(&mut self) -> Vec<StateShape> {
        Vec::new()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.state.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.state.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            self.state.restore(&entry);
            self.restored.push(StatePartEntry {
                partition: entry.partition,
                key: entry.key,
                value: entry.value,
            });
            if self.restored.byte_len() >= PART_BYTES {
                let part = self.restored.finish();
                self.session()?.push_restore(part, false);
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.barrier.requested = epoch;
        self.barrier.received = epoch;
        let part = self.restored.finish();
        self.session()?.push_restore(part, true);
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.state.commit(epoch);
        self.session()?.push_commit(epoch);
        self.send()?;
        Ok(Progress::DONE)
    }
}
