//! The instances of a container in writing: the indices of each vertex, `{"counts": [0, 3], "words": [1]}`.
//!
//! A plan of many instances is stored and sent as a whole; the name of a vertex once a container makes it half as long.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serializer};

use crate::packing::{InstanceId, VertexName};

pub(crate) fn serialize<S: Serializer>(
    instances: &[InstanceId],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    // Gathered first: some formats have to know how many there are.
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
