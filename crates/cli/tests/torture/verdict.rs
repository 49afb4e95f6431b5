//! The comparison of published and expected results: missing, duplicate and unexpected records.

use std::cmp::Ordering;
use std::fmt;

use crate::oracle::Outputs;

/// The maximum number of records of a kind that are printed.
const MOST_TOLD: usize = 20;

/// The differences of one output from the expected one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Differences {
    /// Records that are missing.
    pub missing: Vec<String>,
    /// Records that occur too often, once for each surplus occurrence.
    pub doubled: Vec<String>,
    /// Records that are not expected at all.
    pub unexpected: Vec<String>,
}

impl Differences {
    /// Compares two sorted lists.
    pub fn of(expected: &[String], seen: &[String]) -> Self {
        let mut differences = Differences::default();
        let (mut wanted, mut seen) = (expected.iter().peekable(), seen.iter().peekable());
        let mut last: Option<&String> = None;
        loop {
            let order = match (wanted.peek(), seen.peek()) {
                (None, None) => return differences,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(wanted), Some(seen)) => wanted.cmp(seen),
            };
            match order {
                Ordering::Equal => {
                    last = wanted.next();
                    seen.next();
                }
                Ordering::Less => differences.missing.extend(wanted.next().cloned()),
                Ordering::Greater => {
                    let Some(line) = seen.next() else { continue };
                    match last == Some(line) {
                        true => differences.doubled.push(line.clone()),
                        false => differences.unexpected.push(line.clone()),
                    }
                }
            }
        }
    }

    pub fn is_none(&self) -> bool {
        self.can_be_mended() && self.missing.is_empty()
    }

    /// Returns true if the differences may be due to results that are not published yet.
    pub fn can_be_mended(&self) -> bool {
        self.doubled.is_empty() && self.unexpected.is_empty()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, lines) in [
            ("missing", &self.missing),
            ("too often", &self.doubled),
            ("nobody's", &self.unexpected),
        ] {
            if lines.is_empty() {
                continue;
            }
            writeln!(f, "  {what}: {}", lines.len())?;
            for line in lines.iter().take(MOST_TOLD) {
                writeln!(f, "    {line}")?;
            }
            if lines.len() > MOST_TOLD {
                writeln!(f, "    …")?;
            }
        }
        Ok(())
    }
}

/// Returns the outputs that differ, by name.
pub fn compare(expected: &Outputs, seen: &Outputs) -> Vec<(&'static str, Differences)> {
    let both = expected.all().into_iter().zip(seen.all());
    let differing = both.filter_map(|((name, expected), (_, seen))| {
        let differences = Differences::of(expected, seen);
        (!differences.is_none()).then_some((name, differences))
    });
    differing.collect()
}

/// Tests of the comparison.
pub mod promises {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    fn differences(expected: &str, seen: &str) -> [Vec<String>; 3] {
        let found = Differences::of(&lines(expected), &lines(seen));
        [found.missing, found.doubled, found.unexpected]
    }

    pub fn each_record_that_is_wrong_is_told_for_what_it_is() {
        let none = Vec::<String>::new();
        assert!(Differences::of(&lines("a a b"), &lines("a a b")).is_none());
        assert_eq!(
            differences("a b", "b"),
            [lines("a"), none.clone(), none.clone()]
        );
        assert_eq!(
            differences("a a b", "a b"),
            [lines("a"), none.clone(), none.clone()]
        );
        assert_eq!(
            differences("a b", "a a a b"),
            [none.clone(), lines("a a"), none.clone()]
        );
        assert_eq!(
            differences("b", "a b c"),
            [none.clone(), none.clone(), lines("a c")]
        );
        assert_eq!(
            differences("a c", "b b"),
            [lines("a c"), none, lines("b b")]
        );
    }

    pub fn what_has_not_come_yet_may_come() {
        let found = |expected, seen| Differences::of(&lines(expected), &lines(seen));
        assert!(found("a b c", "a").can_be_mended());
        assert!(!found("a b c", "a a").can_be_mended());
        let told = found("a b", "b b c").to_string();
        for part in ["missing: 1", "too often: 1", "nobody's: 1", "    c"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
