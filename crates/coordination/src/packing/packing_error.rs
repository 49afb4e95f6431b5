//! Errors of packing, with the numbers that exceed a limit.

use std::fmt;

use ardea_config::readable_bytes;
use ardea_core::{Error, ErrorCode};

use crate::packing::{ContainerId, InstanceId, MilliCores, Resources, VertexName};

/// A kind of resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resource {
    /// Cpu, in thousandths of a core.
    Cpu,
    /// Memory, in bytes.
    Memory,
    /// Disk, in bytes.
    Disk,
}

impl Resource {
    /// All kinds of resources.
    pub const ALL: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::Disk];

    /// Formats an amount of this resource for users.
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

/// The reason for which a job cannot be packed, or a plan is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackingError {
    /// The job has no vertices.
    #[error("it has no vertices")]
    NoVertices,
    /// A vertex has no instances.
    #[error("vertex {0:?} asks for no instances")]
    NoInstances(VertexName),
    /// A vertex has an invalid name.
    #[error("no vertex can be called {0:?}: it is empty, or has characters that can't be seen")]
    NoName(VertexName),
    /// Two vertices have the same name.
    #[error("two vertices are called {0:?}")]
    VertexTwice(VertexName),
    /// The job has too many instances, probably because of a mistyped parallelism.
    #[error("it asks for {wanted} instances, a job has {most} at most")]
    TooManyInstances {
        /// The requested number of instances.
        wanted: u64,
        /// The maximum number of instances of a job.
        most: u64,
    },
    /// A vertex has more instances than its code supports.
    #[error("vertex {vertex:?} asks for {wanted} instances, and can have {most} at most")]
    TooManyForVertex {
        /// The vertex.
        vertex: VertexName,
        /// The requested number of instances.
        wanted: u32,
        /// The maximum number of instances that the vertex's code supports.
        most: u32,
    },
    /// A vertex has more instances than the cluster allows.
    #[error(
        "vertex {vertex:?} asks for {wanted} instances, and the cluster allows {most} of a vertex at most"
    )]
    OverVertexLimit {
        /// The vertex.
        vertex: VertexName,
        /// The requested number of instances.
        wanted: u32,
        /// The cluster's limit for a vertex.
        most: u32,
    },
    /// A job has more instances than the cluster allows.
    #[error("it asks for {wanted} instances, and the cluster allows {most} of a job at most")]
    OverJobLimit {
        /// The requested number of instances.
        wanted: u64,
        /// The cluster's limit for a job.
        most: u64,
    },
    /// A container is too small for its own padding.
    #[error("a container keeps {padding} for itself, and may have {limit} only")]
    PaddingTooLarge {
        /// The padding.
        padding: Resources,
        /// The limit of a container's resources.
        limit: Resources,
    },
    /// An instance needs more resources than an empty container offers.
    #[error(
        "{instance} wants {} {resource}, and a container offers {} (of {}, the rest is padding)",
        .resource.display(*.wanted), .resource.display(*.offered), .resource.display(*.limit)
    )]
    InstanceTooLarge {
        /// The instance.
        instance: InstanceId,
        /// The resource of which the container offers too little.
        resource: Resource,
        /// The amount of this resource that the instance requires.
        wanted: u64,
        /// The amount of this resource that a container offers to its instances.
        offered: u64,
        /// The limit of a container for this resource, including padding.
        limit: u64,
    },
    /// The instances do not fit into the requested number of containers.
    #[error(
        "container {container} of {containers} would be given {instances} instances with {used}; it may hold {} with {offered}",
        .most_instances.map_or("any number".to_string(), |most| most.to_string())
    )]
    ContainersTooFew {
        /// The first container that exceeds its limit.
        container: ContainerId,
        /// The requested number of containers.
        containers: u32,
        /// The number of instances that this container would have.
        instances: usize,
        /// The resources of these instances.
        used: Resources,
        /// The resources that a container offers to its instances.
        offered: Resources,
        /// The limit for the number of instances in a container, if any.
        most_instances: Option<u32>,
    },
    /// An instance of the job has no container.
    #[error("{0} is in no container")]
    Missing(InstanceId),
    /// An instance is in two containers, or twice in one.
    #[error("{0} is placed twice")]
    PlacedTwice(InstanceId),
    /// The plan has an instance that the job does not have.
    #[error("{0} is placed, and the job has no such instance")]
    Unknown(InstanceId),
    /// A container requires more than its limit.
    #[error("container {container} needs {required}, and may have {limit}")]
    OverLimit {
        /// The container.
        container: ContainerId,
        /// The resources that the container requires, including padding.
        required: Resources,
        /// The limit of a container's resources.
        limit: Resources,
    },
    /// A container holds too many instances.
    #[error("container {container} has {instances} instances, and may have {most}")]
    TooManyInContainer {
        /// The container.
        container: ContainerId,
        /// The number of instances in the container.
        instances: usize,
        /// The limit for the number of instances in a container.
        most: u32,
    },
    /// A container is listed twice, or is empty.
    #[error("container {0} is listed twice or is empty")]
    BadContainer(ContainerId),
}

impl PackingError {
    /// Converts the packing error to the error that is shown to the user of the job.
    pub fn into_error(self, job: &str) -> Error {
        use PackingError::*;
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
