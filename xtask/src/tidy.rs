//! The house rules as checks: each is one function from the checkout to what is wrong in it, in a file of its own.
//!
//! To add a rule, write such a file, with its tests below it, and name it in [`CHECKS`].

mod declared_once;
mod file_names;
mod file_sizes;
mod function_sizes;
mod layers;
mod leftovers;
mod links;
mod module_docs;
mod sleeping_tests;
mod unsafe_code;

mod manifest;
mod rust_code;
mod tree;

use std::fmt;
use std::path::Path;
use tree::Tree;

/// One house rule.
struct Check {
    /// The rule in a few words, printed in front of what breaks it.
    name: &'static str,
    /// Finds everything that breaks it.
    find: fn(&Tree) -> Vec<Finding>,
}

/// All house rules, in the order in which they are reported.
const CHECKS: &[Check] = &[
    Check {
        name: "module docs",
        find: module_docs::check,
    },
    Check {
        name: "file size",
        find: file_sizes::check,
    },
    Check {
        name: "function size",
        find: function_sizes::check,
    },
    Check {
        name: "leftover",
        find: leftovers::check,
    },
    Check {
        name: "sleeping test",
        find: sleeping_tests::check,
    },
    Check {
        name: "unsafe code",
        find: unsafe_code::check,
    },
    Check {
        name: "layers",
        find: layers::check,
    },
    Check {
        name: "declared once",
        find: declared_once::check,
    },
    Check {
        name: "file name",
        find: file_names::check,
    },
    Check {
        name: "link",
        find: links::check,
    },
];

/// One place where a house rule is broken.
#[derive(Debug)]
struct Finding {
    /// The file, from the checkout's root, with `/` between folders.
    path: String,
    /// The line, from 1; 0 when the file as a whole is meant.
    line: usize,
    /// What is wrong and what to do about it.
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

/// What all checks found.
#[derive(Debug)]
pub struct Report {
    files: usize,
    /// Name of the rule, and what breaks it.
    findings: Vec<(&'static str, Finding)>,
}

impl Report {
    /// Whether no rule is broken.
    pub fn is_tidy(&self) -> bool {
        self.findings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rule, finding) in &self.findings {
            let Finding {
                path,
                line,
                message,
            } = finding;
            if *line == 0 {
                writeln!(f, "{path}: {rule}: {message}")?;
            } else {
                writeln!(f, "{path}:{line}: {rule}: {message}")?;
            }
        }
        let faults = self.findings.len();
        write!(f, "tidy: {} files, {faults} faults", self.files)
    }
}

/// Runs every check over the checkout at `root`.
///
/// # Errors
/// When a folder or a hand-written file cannot be read; the message names it.
pub fn run(root: &Path) -> Result<Report, String> {
    let tree = Tree::read(root)?;
    let mut findings = Vec::new();
    for check in CHECKS {
        findings.extend(
            (check.find)(&tree)
                .into_iter()
                .map(|finding| (check.name, finding)),
        );
    }
    Ok(Report {
        files: tree.texts().count(),
        findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_tidy() {
        let report = run(&crate::repository_root()).expect("the checkout can be read");
        assert!(report.is_tidy(), "\n{report}");
    }

    #[test]
    fn a_report_names_the_line_if_there_is_one() {
        let findings = vec![("rule", Finding::new("a.rs", 3, "large"))];
        let report = Report { files: 1, findings };
        assert_eq!(
            report.to_string(),
            "a.rs:3: rule: large\ntidy: 1 files, 1 faults"
        );
    }

    #[test]
    fn a_report_with_a_fault_is_not_tidy() {
        let findings = vec![("rule", Finding::new("a.rs", 0, "bad"))];
        let report = Report { files: 1, findings };
        assert!(!report.is_tidy());
        assert!(report.to_string().starts_with("a.rs: rule: bad\n"));
    }
}
