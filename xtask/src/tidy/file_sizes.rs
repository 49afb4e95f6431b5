//! A file is one idea: hand-written code is at most 600 lines a file, and never over 700.

use super::Finding;
use super::tree::Tree;

/// More lines than this are reported.
const WARN_LINES: usize = 600;

/// More lines than this fail the check.
const MOST_LINES: usize = 700;

/// Endings of files that are code.
const CODE_ENDINGS: &[&str] = &["rs", "py", "sh"];

/// Finds code files that are too long.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree
        .texts()
        .filter(|file| CODE_ENDINGS.contains(&file.ending()))
    {
        let lines = file.text.lines().count();
        let message = format!("{lines} lines; split it by idea, {WARN_LINES} are the most");
        if lines > MOST_LINES {
            findings.push(Finding::fault(&file.path, 0, message));
        } else if lines > WARN_LINES {
            findings.push(Finding::warning(&file.path, 0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn a_long_file_is_a_warning_and_a_longer_one_a_fault() {
        let (fits, long, longer) = ("x\n".repeat(600), "x\n".repeat(601), "x\n".repeat(701));
        let tree = Tree::of(&[
            ("a.rs", &fits),
            ("b.rs", &long),
            ("c.py", &longer),
            ("d.md", &longer),
        ]);
        let found: Vec<_> = check(&tree)
            .into_iter()
            .map(|f| (f.path, f.severity))
            .collect();
        assert_eq!(
            found,
            [
                ("b.rs".to_owned(), Severity::Warning),
                ("c.py".to_owned(), Severity::Fault)
            ]
        );
    }
}
