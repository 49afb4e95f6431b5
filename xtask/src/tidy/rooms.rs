//! A room knows only the floors below it: the edges between the project's crates point downstairs.
//!
//! The floors are those of the house in ARCHITECTURE.md. A new crate has to be given its floor here.

use super::Finding;
use super::manifest::{self, Kind};
use super::tree::Tree;

/// The rooms, from the ground up. A room may depend on every room of the floors below it, and on those that stand
/// before it on its own floor, so that there is no circle; its tests may use all rooms of its own floor.
const FLOORS: &[&[&str]] = &[
    &[
        "ardea-ring",
        "ardea-core",
        "ardea-config",
        "ardea-aggregate",
        "ardea-filesystem",
    ],
    &[
        "ardea-testkit",
        "ardea-operators",
        "ardea-state-disk",
        "ardea-engine",
        "ardea-codec",
        "ardea-tls",
        "ardea-exchange",
        "ardea-snapshot",
        "ardea-cuts",
        "ardea-savepoint",
        "ardea-grid",
    ],
    &["ardea-connect"],
    &["ardea-pipeline", "ardea-topology"],
    &[
        "ardea-output",
        "ardea-metrics",
        "ardea-packages",
        "ardea-packing",
        "ardea-control",
        "ardea-snapshot-s3",
        "ardea-recovery",
        "ardea-api",
        "ardea-sim",
        "ardea-state-manager",
        "ardea-state-zookeeper",
        "ardea-state-etcd",
        "ardea-courier",
        "ardea-grid-net",
        "ardea-shelter",
        "ardea-worker",
        "ardea-scheduler",
        "ardea-master",
        "ardea-archive",
        "ardea-host",
    ],
    // They need the first room only, and that of the grid the grid's; their tests run pipelines against servers.
    &[
        "ardea-connect-grid",
        "ardea-connect-kafka",
        "ardea-connect-nats",
        "ardea-connect-postgres",
        "ardea-connect-redis",
    ],
    &["ardea", "ardea-nexmark", "ardea-bench"],
    &["ardea-examples", "ardea-cli"],
];

/// Packages beside the house, which know no room and which no room knows.
const OUTSIDE: &[&str] = &["xtask"];

/// Where a room is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    floor: usize,
    position: usize,
}

/// Finds dependencies that point upstairs, and packages without a floor.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.manifests() {
        let Some(name) = manifest::package_name(file) else {
            continue;
        };
        let place = place_of(name);
        if place.is_none() && !OUTSIDE.contains(&name) {
            let message = format!("`{name}` has no floor yet: give it one in {}", file!());
            findings.push(Finding::new(&file.path, 0, message));
            continue;
        }
        for dependency in manifest::dependencies(file) {
            let Some(below) = place_of(dependency.name) else {
                continue;
            };
            if !place.is_some_and(|place| may_know(place, below, dependency.kind)) {
                let message = format!(
                    "`{name}` may not know `{}`: a room knows only the floors below it ({})",
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
    FLOORS.iter().enumerate().find_map(|(floor, rooms)| {
        let position = rooms.iter().position(|room| *room == package)?;
        Some(Place { floor, position })
    })
}

fn may_know(room: Place, other: Place, kind: Kind) -> bool {
    match kind {
        Kind::Normal => other < room,
        Kind::Dev => other.floor <= room.floor,
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
    fn an_edge_downstairs_is_allowed_and_one_upstairs_is_not() {
        assert_eq!(findings("ardea-engine", "dependencies", "ardea-core"), 0);
        assert_eq!(findings("ardea-core", "dependencies", "ardea-engine"), 1);
        assert_eq!(
            findings("ardea-core", "dev-dependencies", "ardea-engine"),
            1
        );
        assert_eq!(findings("ardea-core", "dependencies", "serde"), 0);
    }

    #[test]
    fn on_one_floor_edges_point_one_way_except_for_tests() {
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
    fn a_package_without_a_floor_is_found() {
        assert_eq!(findings("ardea-attic", "dependencies", "ardea-core"), 1);
    }

    #[test]
    fn what_stands_beside_the_house_knows_no_room() {
        assert_eq!(findings("xtask", "dependencies", "ardea-core"), 1);
    }
}
