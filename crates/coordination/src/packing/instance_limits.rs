//! The cluster's limits for the number of instances.

use ardea_core::Result;

use crate::packing::{JobDemand, PackingError};

/// The cluster's limits for the number of instances. Each instance costs the job's leader work and
/// memory when plans change, and a plan is one value in the metadata store. The limits ensure that
/// a mistyped number does not prevent a host from renewing its leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceLimits {
    /// The maximum number of instances of a vertex.
    pub of_vertex: u32,
    /// The maximum number of instances of a job, for all its vertices together.
    pub of_job: u64,
}

impl Default for InstanceLimits {
    fn default() -> Self {
        InstanceLimits {
            of_vertex: 10_000,
            of_job: 20_000,
        }
    }
}

impl InstanceLimits {
    /// Checks a demand against the limits. A number of instances that already exceeded its limit in
    /// the demand `before` may stay or decrease.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) with the requested number and
    /// the limit.
    pub fn check(&self, demand: &JobDemand, before: Option<&JobDemand>) -> Result<()> {
        self.checked(demand, before)
            .map_err(|refusal| refusal.into_error(&demand.job))
    }

    fn checked(&self, demand: &JobDemand, before: Option<&JobDemand>) -> Result<(), PackingError> {
        for vertex in &demand.vertices {
            let known = before.into_iter().flat_map(|job| &job.vertices);
            let mut known = known.filter(|known| known.name == vertex.name);
            let had = known.next().map_or(0, |known| known.parallelism);
            if vertex.parallelism > self.of_vertex.max(had) {
                return Err(PackingError::OverVertexLimit {
                    vertex: vertex.name.clone(),
                    wanted: vertex.parallelism,
                    most: self.of_vertex,
                });
            }
        }
        let (wanted, had) = (
            demand.instance_count(),
            before.map_or(0, JobDemand::instance_count),
        );
        if wanted > self.of_job.max(had) {
            return Err(PackingError::OverJobLimit {
                wanted,
                most: self.of_job,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::{
        MOST_INSTANCES_ATTRIBUTE, PackingPolicy, Resources, RoundRobin, VertexDemand,
    };

    const LIMITS: InstanceLimits = InstanceLimits {
        of_vertex: 3,
        of_job: 5,
    };

    fn demand(counts: &[u32]) -> JobDemand {
        let vertices = counts.iter().enumerate();
        vertices.fold(JobDemand::new("job"), |job, (index, count)| {
            let name = format!("v{index}");
            job.vertex(VertexDemand::new(name.as_str(), *count, Resources::ZERO))
        })
    }

    #[test]
    fn too_many_instances_are_refused_with_the_number_and_the_limit() {
        assert!(LIMITS.check(&demand(&[3, 2]), None).is_ok());
        for (counts, told) in [
            (
                &[1, 4][..],
                "\"v1\" asks for 4 instances, and the cluster allows 3",
            ),
            (&[3, 3], "asks for 6 instances, and the cluster allows 5"),
        ] {
            let error = LIMITS.check(&demand(counts), None).unwrap_err();
            assert_eq!(error.code(), ardea_core::ErrorCode::InvalidJob);
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn a_job_that_is_over_a_limit_may_become_smaller_and_not_larger() {
        let before = demand(&[9, 1]);
        assert!(LIMITS.check(&demand(&[8, 1]), Some(&before)).is_ok());
        assert!(LIMITS.check(&demand(&[10, 1]), Some(&before)).is_err());
        assert!(LIMITS.check(&demand(&[8, 3]), Some(&before)).is_err());
    }

    #[test]
    fn what_the_code_of_a_vertex_can_not_have_is_refused_whoever_packs() {
        let mut demand = demand(&[4]);
        demand.vertices[0] = demand.vertices[0]
            .clone()
            .attribute(MOST_INSTANCES_ATTRIBUTE, "4");
        let config = Default::default();
        let plan = RoundRobin.pack(&demand, &config).unwrap();
        let more = demand.with_parallelism("v0", 5).unwrap();
        for error in [
            RoundRobin.pack(&more, &config).unwrap_err(),
            RoundRobin.repack(&plan, &more, &config).unwrap_err(),
        ] {
            let told = "\"v0\" asks for 5 instances, and can have 4 at most";
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
