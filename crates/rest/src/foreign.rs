//! How types of other rooms look in JSON, for the document only: nothing is ever made of these.
//!
//! A test holds each against the type that it stands for.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cpu, memory and disk; null is no limit.
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
    /// The cluster's name.
    cluster: String,
    /// The job's name, unique in the cluster.
    name: String,
    /// A random number that the submitter chose: the same again is the same job.
    submission: u64,
}

/// A program in the package store.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProgramRef {
    /// The SHA-256 of the package, in hexadecimal digits.
    package: String,
    /// The program's path within it.
    executable: String,
    /// The arguments after it.
    arguments: Vec<String>,
}

/// What is submitted.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobDefinition {
    /// The job.
    job: JobRef,
    /// What its containers run.
    program: ProgramRef,
    /// The packing policy, by name.
    packing: String,
    /// The scheduler, by name.
    scheduler: String,
    /// The settings that differ from their defaults, by key.
    settings: BTreeMap<String, String>,
    /// The version of Ardea that the program was built with.
    version: String,
}

/// What a job asks for.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobDemand {
    /// The job's name.
    job: String,
    /// Its vertices, in the order of its graph; names are unique.
    vertices: Vec<VertexDemand>,
}

/// What a vertex asks for.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VertexDemand {
    /// The vertex.
    name: String,
    /// How many instances.
    parallelism: u32,
    /// What each of them takes.
    #[serde(default)]
    resources: Resources,
    /// What a packing policy may want to know of it.
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

/// Within what a job is packed.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PackingConfig {
    /// How many containers policies that spread instances begin with; as few as will do when not said.
    containers: Option<u32>,
    /// The most that a container may be given.
    limits: ContainerLimits,
    /// What a container needs beside its instances.
    padding: Padding,
    /// Settings of a policy of one's own.
    extra: BTreeMap<String, String>,
}

/// The most that a container may be given.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ContainerLimits {
    /// Cpu, memory and disk, padding included.
    resources: Resources,
    /// How many instances.
    instances: Option<u32>,
}

/// What a container needs beside its instances: the greater of an amount and a share of what the instances take.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
struct Padding {
    /// At least this much.
    absolute: Resources,
    /// And at least this share, in hundredths.
    percent: u32,
}

/// Which instance runs in which container.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackingPlan {
    /// The job's name.
    job: String,
    /// The demand that it was made for.
    vertices: Vec<VertexDemand>,
    /// The containers, by number.
    containers: Vec<ContainerPlan>,
}

/// A container of a plan.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ContainerPlan {
    /// Its number.
    id: u32,
    /// What it needs, padding included.
    required: Resources,
    /// The indices of the instances that it runs, by vertex.
    instances: BTreeMap<String, Vec<u32>>,
    /// What the packing policy wants the scheduler to know.
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

    use ardea_coordination::packing::{ContainerId, MilliCores, ResourceManager, RoundRobin};
    use serde::de::DeserializeOwned;

    use super::*;

    /// What the real type writes is read by what stands for it, and written again alike, with nothing left out.
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
