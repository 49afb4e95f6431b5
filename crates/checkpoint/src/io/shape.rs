//! Whether a snapshot is of instances as they are now.

use std::collections::BTreeMap;

use crate::store::Snapshot;
use ardea_engine::InstanceName;

/// How many instances each vertex has.
pub fn counts<'a>(instances: impl IntoIterator<Item = &'a InstanceName>) -> BTreeMap<String, u32> {
    let instances = instances.into_iter();
    instances
        .map(|of| (of.vertex.to_string(), of.instance.parallelism))
        .collect()
}

/// Whether the snapshot is of the same vertices with the same numbers of instances: only then increments may be based on it.
pub fn is_same(snapshot: &Snapshot, counts: &BTreeMap<String, u32>) -> bool {
    snapshot.vertices().count() == counts.len()
        && counts
            .iter()
            .all(|(vertex, count)| snapshot.instances(vertex) == Some(*count))
}
