//! The house rules as checks. Each rule is a function from the checkout to its violations, in its
//! own file.
//!
//! To add a rule, write such a file with its tests, and add it to [`CHECKS`].

mod declared_once;
mod document_sizes;
mod file_names;
mod file_sizes;
mod function_sizes;
mod layers;
mod leftovers;
mod links;
mod module_docs;
mod prose;
mod sleeping_tests;
mod type_names;
mod unsafe_code;

mod manifest;
mod ratchet;
mod rust_code;
mod tree;

use std::fmt;
use std::path::Path;
use tree::Tree;

struct Check {
    /// The name of the rule, printed before its violations.
    name: &'static str,
    find: fn(&Tree) -> Vec<Finding>,
}

/// All house rules, in the order of their reports.
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
    Check {
        name: "document size",
        find: document_sizes::check,
    },
    Check {
        name: "first word",
        find: prose::check_first_words,
    },
    Check {
        name: "refused word",
        find: prose::check_refused_words,
    },
    Check {
        name: "comment width",
        find: prose::check_widths,
    },
    Check {
        name: "type once",
        find: type_names::check_once,
    },
    Check {
        name: "type word",
        find: type_names::check_words,
    },
];

#[derive(Debug)]
struct Finding {
    /// The path of the file from the checkout's root, with `/` between folders.
    path: String,
    /// The line, from 1; 0 for the file as a whole.
    line: usize,
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

/// The violations found by all checks.
#[derive(Debug)]
pub struct Report {
    files: usize,
    /// The name of the rule and the violation.
    findings: Vec<(&'static str, Finding)>,
}

impl Report {
    /// Returns true if no rule is violated.
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

/// A package of the workspace.
#[derive(Debug)]
pub struct Package {
    /// The name of the package.
    pub name: String,
    /// Its folder, from the checkout's root, with `/` at the end.
    pub folder: String,
    /// The names of the packages that it depends on, including those for tests only.
    pub dependencies: Vec<String>,
}

/// The packages of the checkout at `root`.
///
/// # Errors
/// When a folder or a hand-written file cannot be read; the message names it.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let tree = Tree::read(root)?;
    let packages = tree.manifests().filter_map(|file| {
        let dependencies = manifest::dependencies(file);
        Some(Package {
            name: manifest::package_name(file)?.to_owned(),
            folder: file.path.strip_suffix("Cargo.toml")?.to_owned(),
            dependencies: dependencies.map(|one| one.name.to_owned()).collect(),
        })
    });
    Ok(packages.collect())
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
