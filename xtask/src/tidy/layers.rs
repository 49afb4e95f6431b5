//! A check that dependencies between the project's crates point to lower layers only.
//!
//! The layers are those of ARCHITECTURE.md. A new crate must be added here.

use super::Finding;
use super::manifest::{self, Kind};
use super::tree::Tree;

/// The crates, from the lowest layer up. A crate may depend on every crate of a lower layer, and on
/// crates listed before it in its own layer, so that there is no cycle. Its tests may use all
/// crates of its own layer.
const LAYERS: &[&[&str]] = &[
    &[
        "ardea-spsc",
        "ardea-core",
        "ardea-bucket",
        "ardea-shm",
        "ardea-config",
        "ardea-filesystem",
        "ardea-codec",
        "ardea-aggregate",
    ],
    &[
        "ardea-testkit",
        "ardea-state",
        "ardea-operators",
        "ardea-instance",
        "ardea-engine",
        "ardea-network",
        "ardea-coordination",
        "ardea-metastore",
        "ardea-grid",
        "ardea-checkpoint",
        "ardea-connectors",
        "ardea-pipeline",
        "ardea-iteration",
        "ardea-ml",
        "ardea-graph",
        "ardea-topology",
        "ardea-columns",
        "ardea-output",
        "ardea-metrics",
        "ardea-scheduler",
        "ardea-rest",
        "ardea-worker",
        "ardea-server",
        "ardea-sim",
    ],
    &["ardea", "ardea-nexmark", "ardea-bench"],
    &["ardea-demo", "ardea-examples", "ardea-python", "ardea-cli"],
];

/// Packages outside the layers: they depend on no crate of the project, and no crate depends on
/// them.
const OUTSIDE: &[&str] = &["xtask"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    layer: usize,
    position: usize,
}

/// Finds dependencies that point to a higher layer, and packages without a layer.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.manifests() {
        let Some(name) = manifest::package_name(file) else {
            continue;
        };
        let place = place_of(name);
        if place.is_none() && !OUTSIDE.contains(&name) {
            let message = format!("`{name}` has no layer yet: give it one in {}", file!());
            findings.push(Finding::new(&file.path, 0, message));
            continue;
        }
        for dependency in manifest::dependencies(file) {
            let Some(below) = place_of(dependency.name) else {
                continue;
            };
            if !place.is_some_and(|place| may_depend(place, below, dependency.kind)) {
                let message = format!(
                    "`{name}` may not know `{}`: a crate depends on lower layers only ({})",
                    dependency.name,
                    file!()
                );
                findings.push(Finding::new(&file.path, dependency.line, message));
            }
        }
    }
    findings
}

fn place_of(package: &str) -> Option<Place> {
    LAYERS.iter().enumerate().find_map(|(layer, crates)| {
        let position = crates.iter().position(|name| *name == package)?;
        Some(Place { layer, position })
    })
}

fn may_depend(package: Place, other: Place, kind: Kind) -> bool {
    match kind {
        Kind::Normal => other < package,
        Kind::Dev => other.layer <= package.layer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(package: &str, section: &str, dependency: &str) -> usize {
        let text = format!(
            "[package]\nname = \"{package}\"\n[{section}]\n{dependency}.workspace = true\n"
        );
        check(&Tree::of(&[("crates/a/Cargo.toml", &text)])).len()
    }

    #[test]
    fn a_dependency_on_a_lower_layer_is_allowed_and_one_on_a_higher_is_not() {
        assert_eq!(findings("ardea-engine", "dependencies", "ardea-core"), 0);
        assert_eq!(findings("ardea-core", "dependencies", "ardea-engine"), 1);
        assert_eq!(
            findings("ardea-core", "dev-dependencies", "ardea-engine"),
            1
        );
        assert_eq!(findings("ardea-core", "dependencies", "serde"), 0);
    }

    #[test]
    fn within_a_layer_dependencies_point_one_way_except_for_tests() {
        assert_eq!(
            findings("ardea-operators", "dependencies", "ardea-testkit"),
            0
        );
        assert_eq!(
            findings("ardea-testkit", "dependencies", "ardea-operators"),
            1
        );
        assert_eq!(
            findings("ardea-testkit", "dev-dependencies", "ardea-operators"),
            0
        );
    }

    #[test]
    fn a_package_without_a_layer_is_found() {
        assert_eq!(findings("ardea-attic", "dependencies", "ardea-core"), 1);
    }

    #[test]
    fn a_package_outside_the_layers_depends_on_none_of_them() {
        assert_eq!(findings("xtask", "dependencies", "ardea-core"), 1);
    }
}
