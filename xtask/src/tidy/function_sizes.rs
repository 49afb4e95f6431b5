//! A function fits on a screen or two: at most 100 lines, with a list of exceptions that can only shrink.
//!
//! The list is `xtask/tidy-exceptions.txt`, one `path function lines` a line. It has to be exact: a function that has
//! become shorter than its entry is a fault too, until the entry follows, so that the list never keeps slack.

use super::Finding;
use super::rust_code;
use super::tree::{Text, Tree};
use std::collections::BTreeMap;

/// The most lines of a function that is not on the list, signature and braces included.
const MOST_LINES: usize = 100;

/// Where the exceptions are.
const LIST: &str = "xtask/tidy-exceptions.txt";

/// The list of the checkout that this program was built from.
const EXCEPTIONS: &str = include_str!("../../tidy-exceptions.txt");

/// Path and name of a function. Functions of one name in one file count as one, as long as the longest.
type Function = (String, String);

/// How long a function is, and on which line it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    lines: usize,
    line: usize,
}

/// Finds functions that are too long, and exceptions that are out of date.
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_against(tree, EXCEPTIONS)
}

fn check_against(tree: &Tree, exceptions: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut allowed = parse(exceptions, &mut findings);
    for ((path, name), Extent { lines, line }) in long_functions(tree) {
        match allowed.remove(&(path.clone(), name.clone())) {
            None => findings.push(Finding::new(
                &path,
                line,
                format!("`{name}` has {lines} lines, {MOST_LINES} are the most: split it"),
            )),
            Some(listed) if lines > listed.lines => findings.push(Finding::new(
                &path,
                line,
                format!(
                    "`{name}` grew from {} to {lines} lines: split it",
                    listed.lines
                ),
            )),
            Some(listed) if lines < listed.lines => findings.push(Finding::new(
                LIST,
                listed.line,
                format!(
                    "`{name}` shrank to {lines} lines: write that instead of {}",
                    listed.lines
                ),
            )),
            Some(_) => {}
        }
    }
    findings.extend(allowed.into_iter().map(|((path, name), listed)| {
        let message = format!("`{name}` in {path} is no longer too long: remove this line");
        Finding::new(LIST, listed.line, message)
    }));
    findings
}

fn parse(exceptions: &str, findings: &mut Vec<Finding>) -> BTreeMap<Function, Extent> {
    let mut allowed = BTreeMap::new();
    for (line, text) in (1..).zip(exceptions.lines()) {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            [path, name, lines] if lines.parse::<usize>().is_ok() => {
                let lines = lines.parse().unwrap_or(0);
                allowed.insert((path.to_owned(), name.to_owned()), Extent { lines, line });
            }
            _ => findings.push(Finding::new(LIST, line, "expected `path function lines`")),
        }
    }
    allowed
}

fn long_functions(tree: &Tree) -> BTreeMap<Function, Extent> {
    let mut long = BTreeMap::new();
    for file in tree.rust() {
        for (name, extent) in functions(file).filter(|(_, extent)| extent.lines > MOST_LINES) {
            let longest = long
                .entry((file.path.clone(), name.to_owned()))
                .or_insert(extent);
            if extent.lines > longest.lines {
                *longest = extent;
            }
        }
    }
    long
}

/// Every function of a file that has a body, nested ones too.
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

    fn messages(tree: &Tree, exceptions: &str) -> Vec<String> {
        check_against(tree, exceptions)
            .into_iter()
            .map(|finding| finding.message)
            .collect()
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
        let tree = Tree::of(&[("a.rs", &text)]);
        assert_eq!(
            messages(&tree, ""),
            ["`long` has 101 lines, 100 are the most: split it"]
        );
    }

    #[test]
    fn a_listed_function_may_stay_as_it_is() {
        let tree = Tree::of(&[("a.rs", &function("long", 120))]);
        assert!(messages(&tree, "# why\n\na.rs long 120\n").is_empty());
    }

    #[test]
    fn a_listed_function_may_not_grow() {
        let tree = Tree::of(&[("a.rs", &function("long", 121))]);
        assert_eq!(
            messages(&tree, "a.rs long 120"),
            ["`long` grew from 120 to 121 lines: split it"]
        );
    }

    #[test]
    fn the_list_follows_a_function_that_shrinks() {
        let tree = Tree::of(&[("a.rs", &function("long", 110))]);
        assert_eq!(
            messages(&tree, "a.rs long 120\na.rs gone 130"),
            [
                "`long` shrank to 110 lines: write that instead of 120",
                "`gone` in a.rs is no longer too long: remove this line",
            ]
        );
    }

    #[test]
    fn a_line_of_the_list_that_is_not_understood_is_a_fault() {
        assert_eq!(
            messages(&Tree::of(&[]), "a.rs long"),
            ["expected `path function lines`"]
        );
    }
}
