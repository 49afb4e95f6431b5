//! Topologies from YAML files, built from the components that come with ardea.

use std::path::Path;

use ardea::components;
use ardea::job::packaged;
use ardea::topology::Topology;
use ardea_coordination::packing::InstanceLimits;
use ardea_core::{Error, ErrorCode, Parallelism, Result};

/// Returns true if `name` is the name of a topology file.
pub fn is_one(name: &Path) -> bool {
    let extension = name.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml"))
}

/// Reads the topology in the file `path`; in a container, in the shipped copy of the file.
///
/// # Errors
/// If the file can't be read or describes no topology, with the line of the error.
pub fn read(path: &Path) -> Result<Topology> {
    components::builtin().topology_from(packaged(path))
}

/// Refuses a topology that should run in this process but has more instances than a cluster would
/// accept.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] with the requested number and the limit.
pub fn check_instances(topology: &Topology, limits: &InstanceLimits) -> Result<()> {
    let refused = |who: String, wanted: u64, most: u64, setting: &str| {
        let what = format!("{who} has {wanted} instances, and at most {most} are allowed");
        let hint = format!("reduce the parallelism, or increase {setting}");
        Err(Error::new(ErrorCode::InvalidJob, what).hint(hint))
    };
    let dag = topology.to_dag()?;
    let mut of_job = 0;
    for id in dag.topological_order()? {
        let vertex = dag.get(id);
        let Parallelism::Exactly(count) = vertex.wanted_parallelism() else {
            continue;
        };
        of_job += u64::from(count.get());
        if count.get() > limits.of_vertex {
            let who = format!("job {:?}: vertex {:?}", topology.name(), vertex.name());
            let (wanted, most) = (count.get().into(), limits.of_vertex.into());
            return refused(who, wanted, most, "cluster.vertex_instances");
        }
    }
    if of_job > limits.of_job {
        let who = format!("job {:?}", topology.name());
        return refused(who, of_job, limits.of_job, "cluster.job_instances");
    }
    Ok(())
}
