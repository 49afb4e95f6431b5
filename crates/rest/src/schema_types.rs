//! The JSON form of types of other crates, used only for the OpenAPI document.
//!
//! A test checks each type against the type that it describes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cpu, memory and disk; null means no limit.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Resources {
    /// Thousandths of a core.
    cpu_milli: Option<u64>,
    /// Memory, in bytes.
    memory_bytes: Option<u64>,
    /// Disk, in bytes.
    disk_bytes: Option<u64>,
}

impl Default for Resources {
    fn default() -> Self {
        Resources {
            cpu_milli: Some(0),
            memory_bytes: Some(0),
            disk_bytes: Some(0),
        }
    }
}

/// One submission of a job.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JobRef {
    /// Name of the cluster.
    cluster: String,
    /// Name of the job, unique in the cluster.
    name: String,
    /// A random number chosen by the client. Repeated requests with the same number are the same
    /// submission.
    submission: u64,
}

/// A program in the package store.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProgramRef {
    /// SHA-256 of the package, in hexadecimal digits.
    package: String,
    /// Path of the program within the package.
    executable: String,
    /// Arguments of the program.
    arguments: Vec<String>,
}

/// The definition of a submitted job.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobDefinition {
    /// Reference to the submitted job.
    job: JobRef,
    /// Program of its containers.
    program: ProgramRef,
    /// Name of the packing policy.
    packing: String,
    /// Name of the scheduler.
    scheduler: String,
    /// Settings that differ from their defaults, by key.
    settings: BTreeMap<String, String>,
    /// Version of Ardea that the program was built with.
    version: String,
}

/// The resources that a job needs.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobDemand {
    /// Name of the job.
    job: String,
    /// Vertices, in the order of the graph; names are unique.
    vertices: Vec<VertexDemand>,
}

/// The resources that a vertex needs.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VertexDemand {
    /// Name of the vertex.
    name: String,
    /// Number of instances.
    parallelism: u32,
    /// Resources of each instance.
    #[serde(default)]
    resources: Resources,
    /// Attributes for packing policies.
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

/// The constraints for packing a job.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PackingConfig {
    /// Initial number of containers, for policies that spread instances. If not given, the smallest
    /// possible number.
    containers: Option<u32>,
    /// Upper limits of each container.
    limits: ContainerLimits,
    /// Additional resources of each container.
    padding: Padding,
    /// Settings for a custom policy.
    extra: BTreeMap<String, String>,
}

/// The upper limits of a container.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ContainerLimits {
    /// Cpu, memory and disk, padding included.
    resources: Resources,
    /// Number of instances.
    instances: Option<u32>,
}

/// Resources of a container in addition to those of its instances: the maximum of `absolute` and
/// `percent`.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
struct Padding {
    /// The minimum amount.
    absolute: Resources,
    /// The minimum share, in percent of the instances' resources.
    percent: u32,
}

/// The assignment of instances to containers.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackingPlan {
    /// Name of the job.
    job: String,
    /// The demand that the plan was made for.
    vertices: Vec<VertexDemand>,
    /// Containers, by number.
    containers: Vec<ContainerPlan>,
}

/// A container of a plan.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ContainerPlan {
    /// Number of the container.
    id: u32,
    /// Resources that the container needs, padding included.
    required: Resources,
    /// Indices of the container's instances, by vertex.
    instances: BTreeMap<String, Vec<u32>>,
    /// Attributes from the packing policy for the scheduler.
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

impl Default for ContainerLimits {
    fn default() -> Self {
        ContainerLimits {
            resources: Resources {
                cpu_milli: None,
                memory_bytes: None,
                disk_bytes: None,
            },
            instances: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use ardea_coordination::packing::{ContainerId, MilliCores, PackingPolicy, RoundRobin};
    use serde::de::DeserializeOwned;

    use super::*;

    /// Checks that the JSON of the real type can be read and is written again unchanged.
    fn stands_for<T: Serialize + DeserializeOwned>(real: &impl Serialize) {
        let json = serde_json::to_value(real).unwrap();
        let read: T = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
    }

    #[test]
    fn what_the_document_says_of_other_rooms_types_is_what_they_write() {
        let each = ardea_coordination::packing::Resources {
            cpu: MilliCores(500),
            memory_bytes: 1,
            disk_bytes: 2,
        };
        let vertex =
            ardea_coordination::packing::VertexDemand::new("v", 3, each).attribute("rack", "1");
        let demand = ardea_coordination::packing::JobDemand::new("j").vertex(vertex);
        let mut config = ardea_coordination::packing::PackingConfig {
            containers: NonZeroU32::new(2),
            ..Default::default()
        };
        config.extra.insert("a".into(), "b".into());
        let plan = RoundRobin.pack(&demand, &config).unwrap();
        let plan = plan.with_attribute(ContainerId(1), "rack", "1");
        stands_for::<Resources>(&each);
        stands_for::<Resources>(&ardea_coordination::packing::Resources::UNLIMITED);
        stands_for::<JobDemand>(&demand);
        stands_for::<PackingConfig>(&config);
        stands_for::<PackingConfig>(&ardea_coordination::packing::PackingConfig::default());
        stands_for::<PackingPlan>(&plan);
        stands_for::<JobDefinition>(&crate::testing::word_count("c", "j", 7).definition);
    }
}
