//! The parts of a deployment from which the metrics are read.

use ardea_core::MessageReport;
use ardea_engine::Deployment;

use crate::backchannel::BackchannelRouter;
use crate::remote_edges::WorkerRemoteEdges;

/// The parts of a deployment from which the metrics are read.
pub(crate) struct View<'a> {
    pub(crate) deployment: &'a Deployment,
    pub(crate) crossings: &'a WorkerRemoteEdges,
    pub(crate) backchannel: &'a BackchannelRouter,
}

impl View<'_> {
    /// Returns the message statistics of this container's instances. An instance can have several
    /// entries.
    pub(crate) fn messages(&self) -> Vec<MessageReport> {
        self.backchannel.messages()
    }
}
