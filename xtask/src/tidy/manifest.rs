//! A parser of the parts of a `Cargo.toml` used by the checks: the package's name and its
//! dependencies.
//!
//! The parser reads line by line and supports the form of this project's manifests: one dependency
//! per line.

use super::tree::Text;

/// The kind of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A dependency of the package itself, or of its build script.
    Normal,
    /// A dependency of the package's tests, examples and benches only.
    Dev,
}

/// One dependency of a package.
#[derive(Debug, PartialEq, Eq)]
pub struct Dependency<'a> {
    /// The name of the package depended on.
    pub name: &'a str,
    /// The kind of the dependency.
    pub kind: Kind,
    /// True if version and features are inherited from the workspace's manifest.
    pub inherited: bool,
    /// The line in the manifest, from 1.
    pub line: usize,
}

/// Returns the name in `[package]`; `None` in a manifest without a package.
pub fn package_name(manifest: &Text) -> Option<&str> {
    entries(&manifest.text).find_map(|entry| {
        let named = entry.section == "package" && entry.key == "name";
        named.then(|| entry.value.trim_matches('"'))
    })
}

/// Returns the dependencies of every kind, in the manifest's order.
pub fn dependencies(manifest: &Text) -> impl Iterator<Item = Dependency<'_>> {
    entries(&manifest.text).filter_map(|entry| {
        // `dependencies`, or `target.'cfg(loom)'.dependencies`
        let table = entry.section.rsplit('.').next().unwrap_or_default();
        let kind = match table {
            "dependencies" | "build-dependencies" => Kind::Normal,
            "dev-dependencies" => Kind::Dev,
            _ => return None,
        };
        let (key, dotted) = entry.key.split_once('.').unwrap_or((entry.key, ""));
        let renamed = entry
            .value
            .split_once("package")
            .and_then(|(_, rest)| rest.split('"').nth(1));
        let spaceless: String = entry.value.split_whitespace().collect();
        Some(Dependency {
            name: renamed.unwrap_or(key.trim_matches('"')),
            kind,
            inherited: spaceless.contains("workspace=true")
                || (dotted == "workspace" && spaceless == "true"),
            line: entry.line,
        })
    })
}

/// One `key = value` of a manifest.
struct Entry<'a> {
    section: &'a str,
    key: &'a str,
    value: &'a str,
    line: usize,
}

fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut section = "";
    (1..).zip(text.lines()).filter_map(move |(line, text)| {
        let text = text.trim();
        if let Some(name) = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = name;
            return None;
        }
        let (key, value) = text.split_once('=')?;
        let is_entry = !key.starts_with('#');
        is_entry.then(|| Entry {
            section,
            key: key.trim(),
            value: value.trim(),
            line,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    const MANIFEST: &str = r#"[package]
name = "ardea-a"
[dependencies]
ardea-core.workspace = true
# ardea-gone.workspace = true
short = { package = "ardea-spsc", path = "../spsc" }
[target.'cfg(loom)'.dependencies]
loom = { workspace = true, features = ["x"] }
[dev-dependencies]
proptest = "1"
[features]
default = []
"#;

    #[test]
    fn the_package_and_its_dependencies_are_read() {
        let tree = Tree::of(&[("crates/a/Cargo.toml", MANIFEST)]);
        let manifest = tree.manifests().next().expect("the manifest is there");
        assert_eq!(package_name(manifest), Some("ardea-a"));
        let read: Vec<_> = dependencies(manifest)
            .map(|d| (d.name, d.kind, d.inherited, d.line))
            .collect();
        assert_eq!(
            read,
            [
                ("ardea-core", Kind::Normal, true, 4),
                ("ardea-spsc", Kind::Normal, false, 6),
                ("loom", Kind::Normal, true, 8),
                ("proptest", Kind::Dev, false, 10),
            ]
        );
    }
}
