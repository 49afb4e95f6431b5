//! The parts of a deployment from which the metrics are read.

use ardea_coordination::packing::InstanceId;
use ardea_core::MessageReport;
use ardea_engine::Deployment;

use crate::backchannel::BackchannelRouter;
use crate::instance::InstanceProcesses;
use crate::remote_edges::WorkerRemoteEdges;

/// The parts of a deployment from which the metrics are read.
pub(crate) struct View<'a> {
    pub(crate) deployment: &'a Deployment,
    pub(crate) crossings: &'a WorkerRemoteEdges,
    pub(crate) backchannel: &'a BackchannelRouter,
    pub(super) processes: &'a InstanceProcesses,
}

impl View<'_> {
    /// Returns the instances in separate processes, with the ids of the running processes.
    pub(crate) fn processes(&self) -> Vec<(InstanceId, Option<u32>)> {
        self.processes.numbers()
    }

    /// Returns the message statistics of this container's instances, including those in separate
    /// processes. An instance can have several entries.
    pub(crate) fn messages(&self) -> Vec<MessageReport> {
        let mut messages = self.backchannel.messages();
        messages.extend(self.processes.messages());
        messages
    }
}
