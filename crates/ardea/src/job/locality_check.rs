//! The check that records without a codec stay in their process.

use std::collections::BTreeSet;

use ardea_coordination::packing::{ContainerId, InstanceId, PackingPlan};
use ardea_core::{Dag, Error, ErrorCode, Result, Routing, VertexId};

/// Refuses a plan in which records without a codec would have to cross containers. The engine also
/// checks this in each container; this check fails before anything is stored.
///
/// # Errors
/// [`ErrorCode::InvalidJob`], naming both vertices.
pub(super) fn check_locality(dag: &Dag, plan: &PackingPlan) -> Result<()> {
    let containers = |vertex: VertexId| -> BTreeSet<ContainerId> {
        let name = dag.get(vertex).name();
        let instances = (0..).map(|index| InstanceId::new(&**name, index));
        instances
            .map_while(|instance| plan.container_of(&instance))
            .collect()
    };
    for edge in dag.edges() {
        // Vertices joined by forward edges are packed together.
        let is_forward = matches!(edge.wanted_routing(), Routing::Forward);
        if is_forward || edge.wanted_codec().is_some() {
            continue;
        }
        let ends = [edge.source().0, edge.target().0];
        let mut all = containers(ends[0]);
        match edge.wanted_routing() {
            // Only the first instance receives records.
            Routing::AllToOne => {
                let first = InstanceId::new(&**dag.get(ends[1]).name(), 0);
                all.extend(plan.container_of(&first));
            }
            _ => all.extend(containers(ends[1])),
        }
        if all.len() > 1 {
            let [from, to] = ends.map(|vertex| dag.get(vertex).name());
            let what = format!(
                "records from {from:?} to {to:?} can't leave their process, and these steps are packed into {} containers",
                all.len()
            );
            return Err(Error::new(ErrorCode::InvalidJob, what).hint(
                "derive Serialize and Deserialize for them instead of wrapping them in Local, put rebalance() before parallelism(), or have it in one container (--set job.containers=1)",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use ardea_coordination::packing::{PackingConfig, PackingPolicies, Resources};
    use ardea_pipeline::{Local, Pipeline};

    use crate::engine::{Job, Parallelisms};
    use crate::job::demand::demand;

    use super::*;

    /// Checks a job that is packed into `containers` containers.
    fn checked(p: &Pipeline, containers: u32) -> Result<()> {
        let dag = p.program(&Parallelisms::new())?.dag;
        let demand = demand("job", &dag, Resources::ZERO)?;
        let config = PackingConfig {
            containers: NonZeroU32::new(containers),
            ..PackingConfig::default()
        };
        let plan = PackingPolicies::builtin()
            .get("round-robin")?
            .pack(&demand, &config)?;
        check_locality(&dag, &plan)
    }

    #[test]
    fn records_that_cannot_leave_their_process_are_refused_between_containers() {
        let p = Pipeline::new("handles");
        p.read_from(crate::prelude::collections::items(vec![7u64]))
            .map(Local)
            .key_by(|handle| handle.0)
            .distinct("handles")
            .write_to_local(ardea_connectors::null::sink());
        checked(&p, 1).unwrap();
        let error = checked(&p, 2).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(error.to_string().contains("\"handles\""), "{error}");
    }

    #[test]
    fn records_that_can_are_not() {
        let p = Pipeline::new("numbers");
        p.read_from(crate::prelude::collections::items(vec![7u64]))
            .key_by(|number| *number)
            .distinct("numbers")
            .write_to(ardea_connectors::null::sink());
        checked(&p, 2).unwrap();
    }
}
