//! A check that a function has at most 100 lines, with exceptions that only shrink (see
//! [`ratchet`]).

use super::Finding;
use super::ratchet::{self, Excess, Rule};
use super::rust_code;
use super::tree::{Text, Tree};
use std::collections::BTreeMap;

/// The largest number of lines of a function that is not on the list, with signature and braces.
const MOST_LINES: usize = 100;

const RULE: Rule = Rule {
    name: "function-size",
    unit: "lines",
};

/// The length of a function, and the line on which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    lines: usize,
    line: usize,
}

/// Finds functions that are too long, and exceptions that are out of date.
pub fn check(tree: &Tree) -> Vec<Finding> {
    RULE.compare(long_functions(tree), ratchet::EXCEPTIONS)
}

/// Returns the functions over the limit. Functions with the same name in one file count as one,
/// with the length of the longest.
fn long_functions(tree: &Tree) -> BTreeMap<String, Excess> {
    let mut long = BTreeMap::new();
    for file in tree.rust() {
        for (name, extent) in functions(file).filter(|(_, extent)| extent.lines > MOST_LINES) {
            let Extent { lines, line } = extent;
            let message =
                format!("`{name}` has {lines} lines, {MOST_LINES} are the most: split it");
            let excess = Excess {
                count: lines,
                findings: vec![Finding::new(&file.path, line, message)],
            };
            let longest = long
                .entry(format!("{}::{name}", file.path))
                .or_insert_with(|| Excess {
                    count: 0,
                    findings: Vec::new(),
                });
            if longest.count < lines {
                *longest = excess;
            }
        }
    }
    long
}

/// Returns every function of a file that has a body, including nested ones.
fn functions(file: &Text) -> impl Iterator<Item = (&str, Extent)> {
    rust_code::words(&file.code, "fn").filter_map(|at| {
        let rest = file.code[at + "fn".len()..].trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        let name = &rest[..end];
        if name.is_empty() {
            return None; // the type of a function, such as `fn(u8) -> u8`
        }
        let body = rust_code::next_block(&file.code, at)?;
        let line = rust_code::line(&file.code, at);
        let lines = rust_code::line(&file.code, body.end) - line + 1;
        Some((name, Extent { lines, line }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn lines_are_counted_from_signature_to_closing_brace() {
        let tree = Tree::of(&[(
            "a.rs",
            "//! A.\n\nfn f(\n    g: fn(u8) -> u8,\n) {\n}\nfn h();\n",
        )]);
        let file = tree.text("a.rs").expect("a.rs is there");
        let found: Vec<_> = functions(file).collect();
        assert_eq!(found, [("f", Extent { lines: 4, line: 3 })]);
    }

    #[test]
    fn a_function_over_the_limit_is_found_and_one_at_the_limit_is_not() {
        let text = function("short", 100) + &function("long", 101);
        let long = long_functions(&Tree::of(&[("a.rs", &text)]));
        assert_eq!(long.len(), 1);
        assert_eq!(long["a.rs::long"].count, 101);
        assert_eq!(
            long["a.rs::long"].findings[0].message,
            "`long` has 101 lines, 100 are the most: split it"
        );
    }
}
