//! Why a job can't be packed, with the numbers.

use std::fmt;

use ardea_config::readable_bytes;
use ardea_core::{Error, ErrorCode};

use crate::packing::{ContainerId, InstanceId, MilliCores, Resources, VertexName};

/// One of the three resources.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resource {
    /// In thousandths of a core.
    Cpu,
    /// In bytes.
    Memory,
    /// In bytes.
    Disk,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::Disk];

    /// An amount of it, as people write it.
    pub fn display(self, amount: u64) -> String {
        if amount == u64::MAX {
            return "unlimited".to_string();
        }
        match self {
            Resource::Cpu => MilliCores(amount).to_string(),
            Resource::Memory | Resource::Disk => readable_bytes(amount),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
            Resource::Disk => "disk",
        })
    }
}

/// Why a job can't be packed, or a plan is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is nothing to run.
    #[error("it has no vertices")]
    NoVertices,
    /// A vertex asks for no instances.
    #[error("vertex {0:?} asks for no instances")]
    NoInstances(VertexName),
    /// A vertex has a name that names nothing.
    #[error("no vertex can be called {0:?}: it is empty, or has characters that can't be seen")]
    NoName(VertexName),
    /// Two vertices have one name.
    #[error("two vertices are called {0:?}")]
    VertexTwice(VertexName),
    /// Probably a mistyped parallelism.
    #[error("it asks for {wanted} instances, a job has {most} at most")]
    TooManyInstances {
        /// So many are asked for.
        wanted: u64,
        /// So many are the most.
        most: u64,
    },
    /// The code of a vertex can't have so many instances.
    #[error("vertex {vertex:?} asks for {wanted} instances, and can have {most} at most")]
    TooManyForVertex {
        /// The vertex.
        vertex: VertexName,
        /// So many are asked for.
        wanted: u32,
        /// So many are the most.
        most: u32,
    },
    /// The cluster gives a vertex fewer instances.
    #[error(
        "vertex {vertex:?} asks for {wanted} instances, and the cluster allows {most} of a vertex at most"
    )]
    OverVertexLimit {
        /// The vertex.
        vertex: VertexName,
        /// So many are asked for.
        wanted: u32,
        /// So many are the most.
        most: u32,
    },
    /// The cluster gives a job fewer instances.
    #[error("it asks for {wanted} instances, and the cluster allows {most} of a job at most")]
    OverJobLimit {
        /// So many are asked for.
        wanted: u64,
        /// So many are the most.
        most: u64,
    },
    /// No container is large enough for its own padding.
    #[error("a container keeps {padding} for itself, and may have {limit} only")]
    PaddingTooLarge {
        /// The padding.
        padding: Resources,
        /// The limit of a container.
        limit: Resources,
    },
    /// An instance is larger than an empty container.
    #[error(
        "{instance} wants {} {resource}, and a container offers {} (of {}, the rest is padding)",
        .resource.display(*.wanted), .resource.display(*.offered), .resource.display(*.limit)
    )]
    InstanceTooLarge {
        /// The instance.
        instance: InstanceId,
        /// The resource that there is too little of.
        resource: Resource,
        /// What the instance wants of it.
        wanted: u64,
        /// What a container offers to its instances.
        offered: u64,
        /// What a container may have.
        limit: u64,
    },
    /// The instances don't fit into the number of containers that was asked for.
    #[error(
        "container {container} of {containers} would be given {instances} instances with {used}; it may hold {} with {offered}",
        .most_instances.map_or("any number".to_string(), |most| most.to_string())
    )]
    ContainersTooFew {
        /// The first container that is over its limit.
        container: ContainerId,
        /// The number of containers.
        containers: u32,
        /// How many instances it would get.
        instances: usize,
        /// What they take.
        used: Resources,
        /// What a container offers to its instances.
        offered: Resources,
        /// How many instances a container may hold, if that is limited.
        most_instances: Option<u32>,
    },
    /// An instance of the job has no container.
    #[error("{0} is in no container")]
    Missing(InstanceId),
    /// An instance is in two containers, or twice in one.
    #[error("{0} is placed twice")]
    PlacedTwice(InstanceId),
    /// The job has no such instance.
    #[error("{0} is placed, and the job has no such instance")]
    Unknown(InstanceId),
    /// A container holds more than it may, or says that it needs less than its instances take.
    #[error("container {container} needs {required}, and may have {limit}")]
    OverLimit {
        /// The container.
        container: ContainerId,
        /// What it needs, padding included.
        required: Resources,
        /// What it may have.
        limit: Resources,
    },
    /// A container holds too many instances.
    #[error("container {container} has {instances} instances, and may have {most}")]
    TooManyInContainer {
        /// The container.
        container: ContainerId,
        /// So many it has.
        instances: usize,
        /// So many are the most.
        most: u32,
    },
    /// A container is there twice, or has nothing in it.
    #[error("container {0} is listed twice or is empty")]
    BadContainer(ContainerId),
}

impl Refusal {
    /// As the error that a user is shown.
    pub fn into_error(self, job: &str) -> Error {
        use Refusal::*;
        let (code, hint) = match &self {
            NoVertices | NoName(_) | NoInstances(_) | VertexTwice(_) | TooManyInstances { .. } => {
                (ErrorCode::InvalidJob, "correct the job's definition")
            }
            TooManyForVertex { .. } => (ErrorCode::InvalidJob, "ask for fewer"),
            OverVertexLimit { .. } => (
                ErrorCode::InvalidJob,
                "ask for fewer, or start the cluster's hosts with a greater cluster.vertex_instances",
            ),
            OverJobLimit { .. } => (
                ErrorCode::InvalidJob,
                "ask for fewer, or start the cluster's hosts with a greater cluster.job_instances",
            ),
            PaddingTooLarge { .. } => (
                ErrorCode::ResourcesImpossible,
                "allow larger containers or less padding",
            ),
            InstanceTooLarge { .. } => (
                ErrorCode::ResourcesImpossible,
                "ask for less per instance, or allow larger containers",
            ),
            ContainersTooFew { .. } => (
                ErrorCode::ResourcesImpossible,
                "ask for more containers, leave their number open, or choose packing=compliant-round-robin or packing=binpack",
            ),
            _ => (
                ErrorCode::BrokenPlan,
                "the packing policy that made this plan is at fault: report it to its author",
            ),
        };
        Error::new(code, format!("job {job:?} can't be packed"))
            .because(self)
            .hint(hint)
    }
}
