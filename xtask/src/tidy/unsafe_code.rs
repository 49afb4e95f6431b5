//! A check that only the queues of `ardea-spsc` and `ardea-shm` contain unsafe code; every other
//! crate forbids it.

use super::Finding;
use super::rust_code;
use super::tree::Tree;

/// Folders whose code may be unsafe.
const UNSAFE_CRATES: &[&str] = &["crates/shm/", "crates/spsc/"];

/// The attribute required in the root of every other crate.
const FORBID: &str = "#![forbid(unsafe_code)]";

/// Finds unsafe code outside its crate, and crates that do not forbid it.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !may_be_unsafe(&file.path)) {
        findings.extend(rust_code::words(&file.code, "unsafe").map(|at| {
            let message = format!("unsafe code belongs in {}", UNSAFE_CRATES.join(", "));
            Finding::new(&file.path, rust_code::line(&file.code, at), message)
        }));
    }
    for manifest in tree
        .manifests()
        .filter(|manifest| !may_be_unsafe(&manifest.path))
    {
        let folder = manifest.path.trim_end_matches("Cargo.toml");
        for root in ["src/lib.rs", "src/main.rs"] {
            let Some(file) = tree.text(&format!("{folder}{root}")) else {
                continue;
            };
            if !file.code.contains(FORBID) {
                findings.push(Finding::new(
                    &file.path,
                    0,
                    format!("it has to say `{FORBID}`"),
                ));
            }
        }
    }
    findings
}

fn may_be_unsafe(path: &str) -> bool {
    UNSAFE_CRATES.iter().any(|of| path.starts_with(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORBIDDING: &str = "//! A.\n#![forbid(unsafe_code)]\n";

    #[test]
    fn the_queue_may_be_unsafe() {
        let tree = Tree::of(&[
            ("crates/spsc/Cargo.toml", ""),
            (
                "crates/spsc/src/lib.rs",
                "unsafe impl<T> Send for Ring<T> {}",
            ),
        ]);
        assert!(check(&tree).is_empty());
    }

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_code_is_found() {
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", FORBIDDING),
            ("crates/b/Cargo.toml", ""),
            (
                "crates/b/src/main.rs",
                "// #![forbid(unsafe_code)]\nfn main() {}\n",
            ),
        ]);
        let paths: Vec<_> = check(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(paths, ["crates/b/src/main.rs"]);
    }

    #[test]
    fn unsafe_code_is_found_in_tests_too_and_not_in_comments() {
        let text = "// unsafe\nfn t() { unsafe { f() } }\n";
        let tree = Tree::of(&[("crates/a/tests/t.rs", text)]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
    }
}
