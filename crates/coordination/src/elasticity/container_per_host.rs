//! The policy that uses each host of the cluster.

use std::num::NonZeroU32;

use super::{ElasticityPolicy, JobLoad, ScalingProposal};

/// Spreads a job over as many containers as the cluster has hosts, but at most one for each
/// instance. So a host that joins gets a part of the job, and a drained one is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContainerPerHost;

impl ElasticityPolicy for ContainerPerHost {
    fn decide(&mut self, load: &JobLoad) -> Option<ScalingProposal> {
        let instances = load.vertices.iter().map(|vertex| vertex.parallelism);
        let wanted = load.hosts.min(instances.fold(0, u32::saturating_add));
        let count = NonZeroU32::new(wanted).filter(|_| wanted != load.containers)?;
        let (before, hosts) = (load.containers, load.hosts);
        let reason = format!("{before} to {count} containers, {hosts} hosts");
        Some(ScalingProposal::containers(count, reason))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::elasticity::{SizeChange, VertexLoad};
    use crate::packing::{JobDemand, Resources, VertexDemand};

    fn decide(containers: u32, hosts: u32) -> Option<SizeChange> {
        let demand = JobDemand::new("words").vertex(VertexDemand::new("maps", 3, Resources::ZERO));
        let load = JobLoad {
            window: Duration::from_secs(30),
            containers,
            hosts,
            vertices: VertexLoad::of(&demand),
        };
        ContainerPerHost
            .decide(&load)
            .map(|proposal| proposal.change)
    }

    #[test]
    fn containers_follow_the_hosts_up_to_the_number_of_instances() {
        let to = |count| Some(SizeChange::Containers(NonZeroU32::new(count).unwrap()));
        assert_eq!(decide(1, 2), to(2));
        assert_eq!(decide(2, 2), None);
        assert_eq!(decide(2, 9), to(3));
        assert_eq!(decide(3, 1), to(1));
        assert_eq!(decide(3, 0), None, "the hosts are not known");
    }
}
