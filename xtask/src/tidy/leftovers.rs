//! A check for unfinished work: markers in hand-written files and unfinished macros in code.

use super::Finding;
use super::rust_code;
use super::tree::Tree;

/// The markers, concatenated so that this file does not contain one.
const MARKERS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];

/// The macros for missing code.
const MACROS: [&str; 2] = ["todo", "unimplemented"];

/// Finds markers and macros of unfinished work.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.texts() {
        for marker in MARKERS {
            findings.extend(rust_code::words(&file.text, marker).map(|at| {
                let message = format!("`{marker}`: finish it or open an issue");
                Finding::new(&file.path, rust_code::line(&file.text, at), message)
            }));
        }
        for name in MACROS {
            let calls = rust_code::words(&file.code, name)
                .filter(|at| file.code[at + name.len()..].starts_with('!'));
            findings.extend(calls.map(|at| {
                let message = format!("`{name}!`: a half-built thing is worse than none");
                Finding::new(&file.path, rust_code::line(&file.code, at), message)
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_in_comments_prose_and_scripts() {
        for marker in MARKERS {
            let text = format!("# fine\n# {marker}: later\n");
            for path in ["a.rs", "a.md", "a.sh", "Cargo.toml"] {
                let findings = check(&Tree::of(&[(path, &text)]));
                assert_eq!(findings.len(), 1, "{marker} in {path}");
                assert_eq!(findings[0].line, 2);
            }
        }
    }

    #[test]
    fn a_marker_inside_a_longer_word_is_not_one() {
        let text = MARKERS
            .map(|marker| format!("mktemp work.{marker}{marker}"))
            .join("\n");
        assert!(check(&Tree::of(&[("a.sh", &text)])).is_empty());
    }

    #[test]
    fn unfinished_macros_are_found_in_code_only() {
        let text = "// todo!()\nfn f() { todo!(\"later\") }\nfn g() { unimplemented!() }\n";
        let lines: Vec<_> = check(&Tree::of(&[("a.rs", text)]))
            .iter()
            .map(|f| f.line)
            .collect();
        assert_eq!(lines, [2, 3]);
    }
}
