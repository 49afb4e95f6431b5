//! The place of an instance's host in a processor, and the state of the instance in snapshots.

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, InstanceContext, Progress, RestoredState, Result,
    SnapshotRequest, SnapshotWriter, StateShape,
};

use crate::host::{InstanceHost, RestartPolicy, SharedParts};
use crate::protocol::InstanceConfiguration;

/// The host of an instance, from the start of its process on.
#[derive(Default)]
pub struct InstanceSlot(Option<InstanceHost>);

#[cold]
fn unopened() -> Error {
    Error::new(ErrorCode::Internal, "a process is used before its start")
}

impl InstanceSlot {
    /// Starts the process of the instance.
    ///
    /// # Errors
    /// Those of [`InstanceHost::start`].
    pub fn start(
        &mut self,
        shared: SharedParts,
        context: &InstanceContext,
        configuration: InstanceConfiguration,
        on_death: RestartPolicy,
    ) -> Result<()> {
        let host = InstanceHost::start(shared, context, configuration, on_death)?;
        self.0 = Some(host);
        Ok(())
    }

    /// Returns the host.
    ///
    /// # Errors
    /// If the process was not started.
    pub fn host(&self) -> Result<&InstanceHost> {
        self.0.as_ref().ok_or_else(unopened)
    }

    /// Returns the host, to change it.
    ///
    /// # Errors
    /// If the process was not started.
    pub fn host_mut(&mut self) -> Result<&mut InstanceHost> {
        self.0.as_mut().ok_or_else(unopened)
    }

    /// Takes the host, if the process was started.
    pub fn take(&mut self) -> Option<InstanceHost> {
        self.0.take()
    }
}

impl Checkpointed for InstanceSlot {
    fn states(&mut self) -> Vec<StateShape> {
        Vec::new()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.host_mut()?.state.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.host_mut()?.state.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.host_mut()?.restore(state)
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.host_mut()?.on_restored(epoch);
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.host_mut()?.on_committed(epoch);
        Ok(Progress::DONE)
    }
}
