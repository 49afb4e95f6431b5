//! A check that the version of a dependency is declared once, in the workspace's manifest, and
//! inherited by packages.

use super::Finding;
use super::manifest;
use super::tree::Tree;

/// Finds dependencies that a package declares itself.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.manifests() {
        for dependency in manifest::dependencies(file).filter(|dependency| !dependency.inherited) {
            let name = dependency.name;
            let message = format!(
                "declare `{name}` in the root Cargo.toml, and write `{name}.workspace = true` here"
            );
            findings.push(Finding::new(&file.path, dependency.line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_in_a_package_is_found() {
        let text = "[dependencies]\nserde.workspace = true\ntoml = \"1\"\n";
        let findings = check(&Tree::of(&[("crates/a/Cargo.toml", text)]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 3);
    }

    #[test]
    fn the_root_manifest_is_where_versions_are() {
        let text = "[workspace.dependencies]\ntoml = \"1\"\n";
        assert!(check(&Tree::of(&[("Cargo.toml", text)])).is_empty());
    }
}
