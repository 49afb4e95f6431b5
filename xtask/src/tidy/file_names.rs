//! A check that a file is named for its content: meaningless names are refused.

use super::Finding;
use super::tree::Tree;

/// Refused names of a code file, or of a folder that contains one.
const REFUSED: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

const CODE_ENDINGS: &[&str] = &["rs", "py", "sh"];

/// Finds code files, and folders above them, with a refused name.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts()
        .filter(|file| CODE_ENDINGS.contains(&file.ending()))
        .filter_map(|file| {
            let refused = file
                .path
                .split('/')
                .find(|part| REFUSED.contains(&stem(part)))?;
            let message = format!("`{refused}` says nothing: name it for what it holds");
            Some(Finding::new(&file.path, 0, message))
        })
        .collect()
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_found_in_files_and_folders() {
        let tree = Tree::of(&[
            ("crates/a/src/utils.rs", ""),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/src/common_key.rs", ""),
            ("docs/misc.md", ""),
        ]);
        let paths: Vec<_> = check(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(
            paths,
            ["crates/a/src/utils.rs", "crates/a/tests/common/mod.rs"]
        );
    }
}
