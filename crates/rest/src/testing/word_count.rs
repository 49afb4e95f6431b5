//! A job to submit to a fake cluster.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ardea_coordination::control::{JobDefinition, JobRef, ProgramRef};
use ardea_coordination::packing::{JobDemand, PackingConfig, Resources, VertexDemand};

use crate::{LogicalEdge, LogicalPlan, LogicalVertex, SubmitRequest};

/// Creates a request for a job of three vertices in two containers.
pub fn word_count(cluster: &str, name: &str, submission: u64) -> SubmitRequest {
    let mut demand = JobDemand::new(name);
    for (vertex, parallelism) in [("lines", 1), ("words", 2), ("counts", 2)] {
        demand = demand.vertex(VertexDemand::new(vertex, parallelism, Resources::ZERO));
    }
    let vertex = |vertex: &VertexDemand| LogicalVertex {
        name: vertex.name.to_string(),
        parallelism: vertex.parallelism,
        isolation: "tasklet".into(),
        together: None,
    };
    let edge = |(from, to, routing): &(&str, &str, &str)| LogicalEdge {
        from: from.to_string(),
        output: 0,
        to: to.to_string(),
        input: 0,
        routing: routing.to_string(),
        latency_us: None,
        records_per_second: None,
    };
    let edges = [
        ("lines", "words", "round robin"),
        ("words", "counts", "keyed"),
    ];
    let logical = LogicalPlan {
        vertices: demand.vertices.iter().map(vertex).collect(),
        edges: edges.iter().map(edge).collect(),
    };
    logical.write_into(&mut demand);
    SubmitRequest {
        definition: JobDefinition {
            job: JobRef {
                cluster: cluster.into(),
                name: name.into(),
                submission,
            },
            program: ProgramRef {
                package: "ab".repeat(32),
                executable: "wordcount".into(),
                arguments: vec!["--words".into(), "100".into()],
            },
            packing: "round-robin".into(),
            scheduler: "local".into(),
            settings: BTreeMap::from([("slice".to_string(), "50us".to_string())]),
            version: "0.1.0".into(),
        },
        demand,
        packing: PackingConfig {
            containers: NonZeroU32::new(2),
            ..PackingConfig::default()
        },
    }
}
