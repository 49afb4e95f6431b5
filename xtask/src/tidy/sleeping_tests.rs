//! A check that no test sleeps to wait: it polls its condition with a deadline. A sleep is too
//! short on a busy machine, too long on all others, and hides the tested condition.

use super::Finding;
use super::rust_code;
use super::tree::{Text, Tree};
use std::ops::Range;

/// Finds calls of `sleep` in tests.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let tests = test_code(file);
        for at in sleeps(&file.code).filter(|at| tests.iter().any(|range| range.contains(at))) {
            let message = "a test polls its condition until a deadline, with \
                           `thread::yield_now` or `thread::park_timeout` between two looks; it does not sleep";
            findings.push(Finding::new(
                &file.path,
                rust_code::line(&file.code, at),
                message,
            ));
        }
    }
    findings
}

/// Returns the calls of a function `sleep` with any path, without its definition and methods of
/// that name.
fn sleeps(code: &str) -> impl Iterator<Item = usize> {
    rust_code::words(code, "sleep").filter(move |&at| {
        let (before, after) = (
            code[..at].trim_end(),
            code[at + "sleep".len()..].trim_start(),
        );
        after.starts_with('(') && !before.ends_with('.') && !before.ends_with("fn")
    })
}

/// Returns the parts of a file that are compiled for tests only.
fn test_code(file: &Text) -> Vec<Range<usize>> {
    let is_tests = |part: &str| matches!(part, "tests" | "tests.rs") || part.ends_with("_tests.rs");
    let all_of_it = file.path.split('/').any(is_tests);
    if all_of_it {
        return std::iter::once(0..file.code.len()).collect();
    }
    let attributes = file.code.match_indices("#[cfg(").filter_map(|(at, _)| {
        let end = at + file.code[at..].find(']')?;
        Some((&file.code[at..end], end + 1))
    });
    attributes
        .filter(|(condition, _)| means_test(condition))
        .filter_map(|(_, end)| rust_code::next_block(&file.code, end))
        .collect()
}

/// Returns true if a `#[cfg(…)]` applies to tests only.
fn means_test(condition: &str) -> bool {
    let condition: String = condition.split_whitespace().collect();
    rust_code::words(&condition, "test").count() > 0
        && !condition.contains("not(test)")
        && !condition.contains("any(")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)]))
            .iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn sleeping_is_found_in_test_modules_and_left_alone_in_the_engine() {
        let text = "fn idle() { thread::sleep(d); }\n#[cfg(test)]\nmod tests {\n  fn t() {\n    \
                    std::thread::sleep(d);\n    sleep(d);\n  }\n}\nfn after() { thread::sleep(d); }\n";
        assert_eq!(lines("crates/a/src/lib.rs", text), [5, 6]);
    }

    #[test]
    fn all_of_an_integration_test_is_a_test() {
        assert_eq!(
            lines(
                "crates/a/tests/run.rs",
                "//! Run.\nfn t() { thread::sleep(d) }\n"
            ),
            [2]
        );
        assert_eq!(
            lines("crates/a/src/run/tests.rs", "fn t() { thread::sleep(d) }\n"),
            [1]
        );
        assert_eq!(
            lines("crates/a/src/run_tests.rs", "fn t() { thread::sleep(d) }\n"),
            [1]
        );
    }

    #[test]
    fn conditions_with_test_in_them_are_understood() {
        assert!(means_test("#[cfg(test)"));
        assert!(means_test("#[cfg(all(test, not(loom)))"));
        assert!(!means_test("#[cfg(not(test))"));
        assert!(!means_test("#[cfg(any(test, loom))"));
        assert!(!means_test("#[cfg(latest)"));
    }

    #[test]
    fn comments_methods_and_definitions_are_not_calls() {
        let text = "// sleep(d)\nfn sleep(d: u8) {}\nfn t() { clock.sleep(d); asleep(d); }\n";
        assert!(lines("tests/a.rs", text).is_empty());
    }
}
