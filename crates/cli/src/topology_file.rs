//! Topologies from YAML files, of the components that come with ardea.

use std::path::Path;

use ardea::components;
use ardea::job::packaged;
use ardea::topology::Topology;
use ardea_core::Result;

/// Whether this is the name of such a file.
pub fn is_one(name: &Path) -> bool {
    let extension = name.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml"))
}

/// The topology in that file; in a container, in the one that came along.
///
/// # Errors
/// If it can't be read or describes no topology, with the line.
pub fn read(path: &Path) -> Result<Topology> {
    components::builtin().topology_from(packaged(path))
}
