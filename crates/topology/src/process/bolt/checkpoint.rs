//! Snapshots and restore of a bolt in a process.

use ardea_core::{
    Checkpointed, Epoch, Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter,
    StateShape,
};

use super::ProcessBolt;
use crate::process::unopened;

impl Checkpointed for ProcessBolt {
    fn states(&mut self) -> Vec<StateShape> {
        Vec::new()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.state.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.state.write(writer)
    }

    fn restore(&mut self, entries: &mut RestoredState<'_>) -> Result<()> {
        let host = self.host.as_mut().ok_or_else(unopened)?;
        self.state.restore(entries, host.session_mut())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        let host = self.host.as_mut().ok_or_else(unopened)?;
        self.state.on_restored(epoch, host.session_mut());
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.state.commit(epoch);
        let host = self.host.as_mut().ok_or_else(unopened)?;
        host.session_mut().push_commit(epoch);
        host.send();
        Ok(Progress::DONE)
    }
}
