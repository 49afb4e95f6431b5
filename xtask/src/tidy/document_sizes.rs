//! A check of the size of documents that should be readable in one sitting.

use super::Finding;
use super::tree::Tree;

/// The documents and their largest size in bytes.
const LIMITS: [(&str, usize); 5] = [
    ("ARCHITECTURE.md", 15 << 10),
    ("CHANGELOG.md", 20 << 10),
    ("README.md", 6 << 10),
    ("docs/style.md", 6 << 10),
    ("docs/tour.md", 10 << 10),
];

/// Finds documents over their limit.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sizes = LIMITS.iter().filter_map(|&(path, most)| {
        let bytes = tree.text(path)?.text.len();
        (bytes > most).then(|| {
            let message =
                format!("{bytes} bytes, {most} are the most: move details to docs/design");
            Finding::new(path, 0, message)
        })
    });
    sizes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_the_code_that_has_become_a_book_is_found() {
        let book = "word ".repeat(4_000);
        let findings = check(&Tree::of(&[
            ("ARCHITECTURE.md", &book),
            ("docs/a.md", &book),
        ]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "ARCHITECTURE.md");
    }
}
