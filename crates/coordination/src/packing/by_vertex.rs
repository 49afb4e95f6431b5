//! Serialisation of a container's instances by vertex: `{"counts": [0, 3], "words": [1]}`.
//!
//! The name of a vertex is written only once per container. This halves the size of a plan, which
//! is stored and sent as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serializer};

use crate::packing::{InstanceId, VertexName};

pub(crate) fn serialize<S: Serializer>(
    instances: &[InstanceId],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    // The vertices are collected first, since some formats require their number.
    let vertices: Vec<_> = instances.chunk_by(|a, b| a.vertex == b.vertex).collect();
    serializer.collect_map(vertices.into_iter().map(|of_one| {
        let indices: Vec<u32> = of_one.iter().map(|instance| instance.index).collect();
        (&of_one[0].vertex, indices)
    }))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<InstanceId>, D::Error> {
    let vertices = BTreeMap::<VertexName, Vec<u32>>::deserialize(deserializer)?;
    let instances = vertices.into_iter().flat_map(|(vertex, indices)| {
        let id = move |index| InstanceId {
            vertex: vertex.clone(),
            index,
        };
        indices.into_iter().map(id)
    });
    Ok(instances.collect())
}
