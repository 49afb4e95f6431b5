//! Instances in separate processes, for vertices with
//! [`Isolation::Process`](ardea_core::Isolation::Process).
//!
//! In the container's graph, a *proxy* represents such an instance. It sends the instance's input
//! to the process and emits the output that returns. Input from other containers is passed on
//! undecoded. So the container's engine handles routing, backpressure, event time and ends of
//! streams, and other containers do not see the process. Records use a connection of the
//! container's network, as between containers. All other messages use a socket on the process's
//! standard input. The process ends when that socket closes, so it never outlives its container.
//!
//! The container notices the death of a process at once and restarts it with increasing delays.
//! Records in flight in the process are lost, the job's side channels are notified of the loss, and
//! the process's streams start again.

mod child;
mod passthrough;
mod process;
mod process_proxy;
mod processes;
mod subgraph;
mod supervisor;

use ardea_coordination::control::WorkerStart;
use ardea_core::{Error, ErrorCode, MessageCounts, Result, VertexId};
use ardea_engine::{Parallelisms, Site};
use serde::{Deserialize, Serialize};

pub(crate) use passthrough::PassthroughCodec;
pub(crate) use process::run_instance;
pub(crate) use processes::{InstanceProcesses, Launch, with_processes};
pub(crate) use supervisor::ProcessExit;

/// The environment variable with the [`InstanceStart`] of an instance's process, as JSON.
const INSTANCE_START_VARIABLE: &str = "ARDEA_INSTANCE";

/// The first site number of instance processes; lower numbers are containers.
const FIRST_INSTANCE_SITE: u32 = 1 << 31;

/// Maximum number of instances of a vertex in separate processes. The indices of these instances
/// are below this limit.
pub const MOST_ISOLATED_INSTANCES: u32 = 1 << 16;

/// Limit on the index of a vertex whose instances run in separate processes. Vertices are counted
/// in the order in which they were added to the graph.
pub const MOST_ISOLATED_VERTICES: usize = 1 << 15;

/// Returns the site of an instance in a separate process, as seen by its container.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if the index of the instance or of the vertex exceeds its limit.
pub(crate) fn site_of(vertex: VertexId, instance: u32) -> Result<Site> {
    let place = u32::try_from(vertex.index()).unwrap_or(u32::MAX);
    if vertex.index() >= MOST_ISOLATED_VERTICES || instance >= MOST_ISOLATED_INSTANCES {
        return Err(Error::new(
            ErrorCode::InvalidJob,
            format!(
                "instance {instance} of vertex {place} can't have a separate process: at most {MOST_ISOLATED_INSTANCES} instances of a vertex, and {MOST_ISOLATED_VERTICES} vertices of a job can"
            ),
        )
        .hint("lower its parallelism, or reduce its isolation"));
    }
    Ok(Site(FIRST_INSTANCE_SITE | (place << 16) | instance))
}

/// Returns true if a site is the process of an instance, and not a container.
pub(crate) fn is_instance(site: Site) -> bool {
    site.0 >= FIRST_INSTANCE_SITE
}

/// Returns the index of the vertex whose instance runs in the process `site`.
pub(crate) fn vertex_at(site: Site) -> usize {
    (site.0 >> 16 & 0x7fff) as usize
}

/// The start parameters of an instance's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InstanceStart {
    /// The start parameters of the worker of the instance's container.
    pub(crate) worker: WorkerStart,
    /// The incarnation of this instance's process.
    pub(crate) incarnation: u64,
    pub(crate) vertex: String,
    pub(crate) instance: u32,
    /// The parallelism of each vertex.
    pub(crate) parallelisms: Parallelisms,
    /// The listen address of the instance's container.
    pub(crate) container_address: String,
    /// True if the instance, when it is a source, starts paused.
    pub(crate) is_paused: bool,
}

impl InstanceStart {
    /// Returns the start parameters if this process is that of an instance; `None` otherwise.
    pub(crate) fn from_environment() -> Result<Option<Self>> {
        let Some(text) = std::env::var_os(INSTANCE_START_VARIABLE) else {
            return Ok(None);
        };
        let read = serde_json::from_slice(text.as_encoded_bytes());
        read.map(Some).map_err(|error| {
            Error::new(
                ErrorCode::InvalidConfig,
                format!(
                    "the variable {INSTANCE_START_VARIABLE} does not say how to start an instance"
                ),
            )
            .because(error)
            .hint("it is set by workers only: unset it")
        })
    }
}

/// A message of a container to the process of an instance, other than records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToInstance {
    /// Pause (true) or resume (false) the source.
    Pause(bool),
    /// End the source as if its input had ended.
    Drain,
    /// End an epoch at the source.
    EndEpoch,
    /// A container or another instance's process has been lost, with the messages in transit to and
    /// from it.
    Lost,
    /// The parallelism of vertices has changed.
    Rescaled(Parallelisms),
}

/// A message of an instance's process to its container, other than records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromInstance {
    /// The instance has failed.
    Failed {
        /// The code of the error.
        code: String,
        /// The text of the error.
        why: String,
    },
    /// The increments of the counters that the proxy cannot count itself.
    Counted {
        late: u64,
        late_in_part: u64,
        bad: u64,
    },
    /// The message statistics of the source in this process so far.
    Messages(Box<MessageCounts>),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_instances_have_one_site_and_what_does_not_fit_is_refused() {
        let ends = |most: u32| [0, 1, most - 1];
        let vertices = ends(MOST_ISOLATED_VERTICES as u32);
        let all = vertices.into_iter().flat_map(|vertex| {
            let vertex = VertexId::of_index(vertex as usize);
            ends(MOST_ISOLATED_INSTANCES).map(|instance| site_of(vertex, instance).unwrap())
        });
        let all: BTreeSet<Site> = all.collect();
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|site| is_instance(*site)));
        let (first, beyond) = (
            VertexId::of_index(0),
            VertexId::of_index(MOST_ISOLATED_VERTICES),
        );
        for refused in [site_of(first, MOST_ISOLATED_INSTANCES), site_of(beyond, 0)] {
            let error = refused.unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidJob);
            assert!(error.to_string().contains("at most 65536"), "{error}");
        }
    }
}
