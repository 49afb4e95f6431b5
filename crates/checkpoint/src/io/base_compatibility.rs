//! Check whether a checkpoint can be the base of increments.

use std::collections::BTreeMap;

use crate::store::Checkpoint;
use ardea_engine::InstanceName;

/// Returns the number of `instances` of each vertex.
pub fn counts<'a>(instances: impl IntoIterator<Item = &'a InstanceName>) -> BTreeMap<String, u32> {
    let instances = instances.into_iter();
    instances
        .map(|of| (of.vertex.to_string(), of.instance.parallelism))
        .collect()
}

/// Returns true if the checkpoint has the vertices and parallelisms of `counts`. Only then can
/// increments be based on the checkpoint.
pub fn is_same(checkpoint: &Checkpoint, counts: &BTreeMap<String, u32>) -> bool {
    checkpoint.vertices().count() == counts.len()
        && counts
            .iter()
            .all(|(vertex, count)| checkpoint.instances(vertex) == Some(*count))
}
