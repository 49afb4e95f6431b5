//! The scheduler `hosts`: containers on the machines of a cluster, each of which runs a
//! [`RunnerServer`].
//!
//! Hosts register in the metadata store below `/workers`, with session nodes. A job's scheduler
//! watches these nodes, keeps a connection to each host, and requests the host's inventory of
//! containers. Only the hosts' runners store the placement of containers, so a new scheduler finds
//! all of them.
//!
//! A host whose session has ended is lost. Its containers are reported as ended, and are placed
//! elsewhere when the leader restarts them. The leader does not restart containers whose workers
//! still send heartbeats: in that case only the host process is down, or it is cut off from the
//! metadata store. When a lost host comes back, an incarnation that was replaced elsewhere is
//! stopped. Of two incarnations of a container, the later one counts.
//!
//! A drained host ([`Drains`]) gets no new containers. The scheduler reports the host's containers
//! to the leader, which moves them. A restarted container is placed on another host if there is
//! room.

mod container_table;
mod drain_plan;
mod drains;
mod job;
mod link;
mod membership;
mod message;
mod placement;
mod reconcile;
mod record;
mod server;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::SchedulerTraits;
use ardea_metastore::MetadataStore;
use ardea_network::rpc::Security;

use crate::{ContainerEvents, LaunchPlan, Pending, Scheduler, SchedulerKind};

pub use drain_plan::check_room_elsewhere;
pub use drains::Drains;
pub use record::{HeldContainer, HostRecord};
pub use server::{HostIdentity, RunnerServer};

/// The scheduler for the hosts registered in a metadata store.
///
/// The scheduler is stateful: the leader decides when an ended container is restarted. Containers
/// may be of different sizes. Placement depends on the free resources of hosts and on the
/// containers' attributes: `host=NAME`, `rack=NAME`, `spread=host`, `spread=rack`. If two jobs are
/// placed on a host at the same time and there is room for one only, the host refuses the second,
/// and that scheduler places its container again.
#[derive(Clone)]
pub struct Hosts {
    state: Arc<dyn MetadataStore>,
    security: Security,
    lost_after: Duration,
    gather_within: Duration,
}

impl Hosts {
    /// Creates the scheduler for the hosts registered in `state`. Connections to them are
    /// authenticated by `security`.
    pub fn new(state: Arc<dyn MetadataStore>, security: Security) -> Self {
        Hosts {
            state,
            security,
            lost_after: Duration::from_secs(1),
            gather_within: Duration::from_secs(6),
        }
    }

    /// Sets how long a host may be missing from the metadata store before it is lost. A restarted
    /// host must be able to register within this time. Default: one second.
    pub fn lost_after(mut self, lost_after: Duration) -> Self {
        self.lost_after = lost_after;
        self
    }

    /// Sets how long a new leader's scheduler waits for hosts to register. During this time it does
    /// not restart containers that no registered host has. After an outage of the metadata store,
    /// leaders and hosts reconnect in any order. Default: six seconds.
    pub fn gather_within(mut self, gather_within: Duration) -> Self {
        self.gather_within = gather_within;
        self
    }
}

impl SchedulerKind for Hosts {
    fn traits(&self) -> SchedulerTraits {
        SchedulerTraits {
            stateful: true,
            homogeneous: false,
        }
    }

    fn initialize(&self, launch: LaunchPlan) -> Pending<'_, (Arc<dyn Scheduler>, ContainerEvents)> {
        Box::pin(async move {
            let (job, events) = job::HostsJob::begin(self.clone(), launch).await?;
            Ok((Arc::new(job) as Arc<dyn Scheduler>, events))
        })
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts")
            .field("state", &self.state.place())
            .field("security", &self.security)
            .field("lost_after", &self.lost_after)
            .field("gather_within", &self.gather_within)
            .finish()
    }
}
