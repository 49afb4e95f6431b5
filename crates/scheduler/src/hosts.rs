//! The scheduler `hosts`: containers on the machines of a cluster, each of which has a [`RunnerServer`].
//!
//! Hosts register in the state manager below `/workers`, with nodes that go with their sessions. A job's scheduler watches them,
//! keeps a connection to each, and asks them what they hold: which container is where is known by the runners and remembered by nobody
//! else, so a scheduler that is made anew finds it all. A host whose session has ended is lost; its containers are told to have ended, and
//! are placed elsewhere when the job's master wants them started again. It doesn't as long as it hears their workers: then only the host's
//! process is away, or can't reach the state manager. When such a host comes back, what was started elsewhere meanwhile is stopped there:
//! of two lives of a container the later one counts.
//!
//! A host that is drained ([`Drains`]) gets no container, and the job's master is told which of its containers are there: it has others
//! take their place. One that is started again goes elsewhere if there is room.

mod board;
mod calls;
mod drains;
mod job;
mod leaving;
mod link;
mod message;
mod placement;
mod record;
mod roster;
mod server;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::SchedulerTraits;
use ardea_metastore::StateManager;
use ardea_network::rpc::Security;

use crate::{ContainerEvents, LaunchPlan, Pending, Scheduler, SchedulerKind};

pub use drains::Drains;
pub use leaving::check_room_elsewhere;
pub use record::{HeldContainer, HostRecord};
pub use server::{HostIdentity, RunnerServer};

/// All containers on the hosts that have registered in a state manager.
///
/// Stateful: the job's master says when a container that has ended is started again. Containers may be of different sizes. Where they
/// go is said by what hosts have left and by the containers' attributes: `host=NAME`, `rack=NAME`, `spread=host`, `spread=rack`. Of two jobs that are
/// placed at the same moment on what only one has room for, the later is refused by the host, and placed anew.
#[derive(Clone)]
pub struct Hosts {
    state: Arc<dyn StateManager>,
    security: Security,
    lost_after: Duration,
    gather_within: Duration,
}

impl Hosts {
    /// On the hosts that have registered there, and prove that they are of the cluster.
    pub fn new(state: Arc<dyn StateManager>, security: Security) -> Self {
        Hosts {
            state,
            security,
            lost_after: Duration::from_secs(1),
            gather_within: Duration::from_secs(6),
        }
    }

    /// How long a host may be missing from the state manager before it is taken for lost: long enough for one that was
    /// started again to register. A second, unless this is said.
    pub fn lost_after(mut self, lost_after: Duration) -> Self {
        self.lost_after = lost_after;
        self
    }

    /// How long the scheduler of a later master gives hosts to register, before what none of those that have holds is started anew:
    /// after the state manager was away, masters and hosts come back in any order. Six seconds, unless this is said.
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
