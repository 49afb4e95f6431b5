//! A check that every Rust file begins with a module header, `//!`.

use super::Finding;
use super::tree::Tree;

/// Finds Rust files that do not begin with `//!`.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|file| !file.text.starts_with("//!"))
        .map(|file| {
            let message = "the first line has to be a `//!` that says what this file is";
            Finding::new(&file.path, 1, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_module_doc_is_found() {
        let tree = Tree::of(&[
            ("a.rs", "//! A.\n"),
            ("b.rs", "use a;\n//! Late.\n"),
            ("c.md", "C"),
        ]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "b.rs");
    }
}
