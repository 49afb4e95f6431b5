//! A check that a hand-written code file has at most 600 lines.

use super::Finding;
use super::tree::Tree;

/// The largest number of lines of a file.
const MOST_LINES: usize = 600;

const CODE_ENDINGS: &[&str] = &["rs", "py", "sh"];

/// Finds code files that are too long.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree
        .texts()
        .filter(|file| CODE_ENDINGS.contains(&file.ending()))
    {
        let lines = file.text.lines().count();
        if lines > MOST_LINES {
            let message = format!("{lines} lines; split it by idea, {MOST_LINES} are the most");
            findings.push(Finding::new(&file.path, 0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_may_not_be_long_and_data_may() {
        let (fits, long) = ("x\n".repeat(600), "x\n".repeat(601));
        let tree = Tree::of(&[
            ("a.rs", &fits),
            ("b.rs", &long),
            ("c.py", &long),
            ("d.md", &long),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["b.rs", "c.py"]);
    }
}
