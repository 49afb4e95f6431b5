//! Exceptions to a house rule: a list of counts that only shrinks.
//!
//! The list is `xtask/tidy-exceptions.txt`, with one `rule subject count` per line. It is exact: a
//! smaller actual count is a fault too until the entry is reduced, so that the list has no slack.

use super::Finding;
use std::collections::BTreeMap;

/// The path of the list in the checkout.
const LIST: &str = "xtask/tidy-exceptions.txt";

/// The list of the checkout from which this program was built.
pub const EXCEPTIONS: &str = include_str!("../../tidy-exceptions.txt");

/// A rule with counted exceptions.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The rule's name in the list.
    pub name: &'static str,
    /// The unit of the rule's counts, in the plural.
    pub unit: &'static str,
}

/// A subject that breaks a rule: a file, a function or a name.
#[derive(Debug)]
pub struct Excess {
    /// The number of faults, or the size.
    pub count: usize,
    /// The faults, reported one by one if the subject is not on the list.
    pub findings: Vec<Finding>,
}

impl Rule {
    /// Compares the violations of the rule, by subject, with the list.
    pub fn compare(self, found: BTreeMap<String, Excess>, list: &str) -> Vec<Finding> {
        let Rule { name, unit } = self;
        let mut findings = Vec::new();
        let mut allowed = self.entries(list, &mut findings);
        for (subject, excess) in found {
            let count = excess.count;
            match allowed.remove(&subject) {
                None => findings.extend(excess.findings),
                Some((line, most)) if count > most => {
                    let message = format!("{subject}: {count} {unit} instead of {most}");
                    findings.push(Finding::new(LIST, line, message));
                    findings.extend(excess.findings);
                }
                Some((line, most)) if count < most => {
                    let message = format!("{subject}: write {count} {unit} instead of {most}");
                    findings.push(Finding::new(LIST, line, message));
                }
                Some(_) => {}
            }
        }
        findings.extend(allowed.into_iter().map(|(subject, (line, _))| {
            let message = format!("{subject} keeps the rule \"{name}\": remove this line");
            Finding::new(LIST, line, message)
        }));
        findings
    }

    /// Returns the entries of the rule: line and count by subject. Unreadable lines become
    /// findings.
    fn entries(self, list: &str, findings: &mut Vec<Finding>) -> BTreeMap<String, (usize, usize)> {
        let mut entries = BTreeMap::new();
        for (line, text) in (1..).zip(list.lines()) {
            let words: Vec<&str> = text.split_whitespace().collect();
            match words[..] {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                [rule, subject, count] => match count.parse() {
                    Ok(count) if rule == self.name => {
                        entries.insert(subject.to_owned(), (line, count));
                    }
                    Ok(_) => {}
                    Err(_) => findings.push(Finding::new(LIST, line, "the count is no number")),
                },
                _ => findings.push(Finding::new(LIST, line, "expected `rule subject count`")),
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule {
        name: "size",
        unit: "lines",
    };

    fn messages(count: usize, list: &str) -> Vec<String> {
        let findings = vec![Finding::new("a.rs", 3, "too long")];
        let found = BTreeMap::from([("a.rs".to_owned(), Excess { count, findings })]);
        let findings = RULE.compare(found, list);
        findings.into_iter().map(|one| one.message).collect()
    }

    #[test]
    fn a_subject_that_is_not_listed_is_reported() {
        assert_eq!(messages(7, "# why\n\nother a.rs 7\n"), ["too long"]);
    }

    #[test]
    fn a_listed_subject_may_stay_as_it_is() {
        assert!(messages(7, "size a.rs 7").is_empty());
    }

    #[test]
    fn a_listed_subject_may_not_grow() {
        assert_eq!(
            messages(8, "size a.rs 7"),
            ["a.rs: 8 lines instead of 7", "too long"]
        );
    }

    #[test]
    fn the_list_follows_a_count_that_shrinks() {
        assert_eq!(
            messages(6, "size a.rs 7\nsize gone.rs 9"),
            [
                "a.rs: write 6 lines instead of 7",
                "gone.rs keeps the rule \"size\": remove this line",
            ]
        );
    }

    #[test]
    fn a_line_that_cannot_be_read_is_a_fault() {
        assert_eq!(
            messages(7, "size a.rs 7\nsize b.rs\nsize c.rs many"),
            ["expected `rule subject count`", "the count is no number"]
        );
    }
}
