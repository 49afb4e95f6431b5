//! Instances in processes of their own, for vertices that are isolated so ([`Isolation::Process`](ardea_core::Isolation::Process)).
//!
//! To its container such an instance is a step like any other: a *stand-in* takes its place in the graph, sends what comes to the
//! process and gives out what comes back. What comes from other containers is passed on undecoded. So routing, backpressure, time and
//! ends are the engine's, and nobody else in the cluster knows of the process. Between both is a connection of the container's network, as to another container, and a socket at the
//! process's standard input for all that is no record. When that closes the process ends: it never outlives its container.
//!
//! A process that dies is noticed at once and started again, with growing delays. What was under way in it is lost, which the job's side
//! channels are told; the streams begin anew.

mod child;
mod cut_out;
mod keeper;
mod process;
mod processes;
mod sealed;
mod stand_in;

use ardea_coordination::control::WorkerStart;
use ardea_core::{Error, ErrorCode, MessageCounts, Result, VertexId};
use ardea_engine::{Parallelisms, Site};
use serde::{Deserialize, Serialize};

pub(crate) use keeper::Death;
pub(crate) use process::run_instance;
pub(crate) use processes::{InstanceProcesses, Launch, with_processes};
pub(crate) use sealed::Passing;

/// The environment variable in which an instance's process finds its [`InstanceStart`], as JSON.
const INSTANCE_START_VARIABLE: &str = "ARDEA_INSTANCE";

/// The first site that is no container, but the process of an instance.
const FIRST_INSTANCE_SITE: u32 = 1 << 31;

/// A vertex can have so many instances in processes of their own, by their numbers over all containers.
pub const MOST_ISOLATED_INSTANCES: u32 = 1 << 16;

/// Of the vertices of a graph so many can be isolated: the first ones, in the order in which they were added.
pub const MOST_ISOLATED_VERTICES: usize = 1 << 15;

/// Where an instance in a process of its own is, as seen by its container.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if its number, or that of its vertex, is greater than there can be.
pub(crate) fn site_of(vertex: VertexId, instance: u32) -> Result<Site> {
    let place = u32::try_from(vertex.index()).unwrap_or(u32::MAX);
    if vertex.index() >= MOST_ISOLATED_VERTICES || instance >= MOST_ISOLATED_INSTANCES {
        return Err(Error::new(
            ErrorCode::InvalidJob,
            format!(
                "instance {instance} of vertex {place} can't have a process of its own: at most {MOST_ISOLATED_INSTANCES} instances of a vertex, and {MOST_ISOLATED_VERTICES} vertices of a job can"
            ),
        )
        .hint("lower its parallelism, or isolate it less"));
    }
    Ok(Site(FIRST_INSTANCE_SITE | (place << 16) | instance))
}

/// Whether this is no container, but the process of an instance.
pub(crate) fn is_instance(site: Site) -> bool {
    site.0 >= FIRST_INSTANCE_SITE
}

/// The vertex of an instance in a process of its own, by its place among all.
pub(crate) fn vertex_at(site: Site) -> usize {
    (site.0 >> 16 & 0x7fff) as usize
}

/// What an instance's process is told when it is started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InstanceStart {
    /// Its container's worker.
    pub(crate) worker: WorkerStart,
    /// Which start of this instance it is.
    pub(crate) incarnation: u64,
    pub(crate) vertex: String,
    pub(crate) instance: u32,
    /// How many instances each vertex has.
    pub(crate) parallelisms: Parallelisms,
    /// Where its container listens.
    pub(crate) container_address: String,
    /// Whether its source, if it is one, has to wait.
    pub(crate) is_paused: bool,
}

impl InstanceStart {
    /// What this process was started with, if it is that of an instance.
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

/// What a container tells the process of an instance, beside records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToInstance {
    /// Its source has to wait, or may read.
    Pause(bool),
    /// Its source is to end as if its input had.
    Drain,
    /// Its source is to end an epoch.
    EndEpoch,
    /// A container or another instance's process was lost, with what was under way there.
    Lost,
    /// Vertices have so many instances now.
    Rescaled(Parallelisms),
}

/// What the process of an instance tells its container, beside records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromInstance {
    /// It can't go on, for this reason.
    Failed {
        /// The error's code.
        code: String,
        /// The error itself.
        why: String,
    },
    /// What it has counted so far that its stand-in can't.
    Counted {
        late: u64,
        late_in_part: u64,
        bad: u64,
    },
    /// What became so far of the messages of its source.
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
