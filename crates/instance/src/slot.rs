//! The place of an instance's host in a processor, and the state of the instance in snapshots.

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, InstanceContext, Progress, RestoredState, Result,
    SnapshotRequest, SnapshotWriter, StateShape,
};

use crate::host::{InstanceHost, RestartPolicy, SharedParts};
use crate::protocol::InstanceConfiguration;

/// The host of an instance, from the start of its process on.
#[derive(Default)]
pub struct InstanceSlot {
    host: Option<InstanceHost>,
    /// The states of the process, as far as its host knows them.
    shapes: Vec<StateShape>,
    /// The latest epoch whose commit was sent.
    committing: Epoch,
}

#[cold]
fn unopened() -> Error {
    Error::new(ErrorCode::Internal, "a process is used before its start")
}

impl InstanceSlot {
    /// Creates the slot of a process with these states.
    pub fn with_states(shapes: Vec<StateShape>) -> Self {
        InstanceSlot {
            shapes,
            ..InstanceSlot::default()
        }
    }

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
        self.host = Some(host);
        Ok(())
    }

    /// Returns the host.
    ///
    /// # Errors
    /// If the process was not started.
    pub fn host(&self) -> Result<&InstanceHost> {
        self.host.as_ref().ok_or_else(unopened)
    }

    /// Returns the host, to change it.
    ///
    /// # Errors
    /// If the process was not started.
    pub fn host_mut(&mut self) -> Result<&mut InstanceHost> {
        self.host.as_mut().ok_or_else(unopened)
    }

    /// Takes the host, if the process was started.
    pub fn take(&mut self) -> Option<InstanceHost> {
        self.host.take()
    }
}

impl Checkpointed for InstanceSlot {
    fn states(&mut self) -> Vec<StateShape> {
        self.shapes.clone()
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
        let is_new = self.committing < epoch;
        self.committing = self.committing.max(epoch);
        let host = self.host_mut()?;
        if is_new {
            host.on_committed(epoch);
        }
        Ok(Progress::done_if(host.has_committed(epoch)?))
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        self.host_mut()?.on_aborted(epoch);
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        let host = self.host.as_ref();
        host.is_some_and(|host| host.session().awaits_commit())
    }
}
