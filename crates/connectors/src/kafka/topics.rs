//! Topics of a source.

use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use regex::Regex;

/// The topics of a source, by name or by pattern.
///
/// ```
/// use ardea_connectors::kafka::{Topics, read};
///
/// let two = read("localhost:9092", ["flights", "trains"]);
/// let many = read("localhost:9092", Topics::matching("tenant-[0-9]+"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topics(Kind);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Named(Vec<String>),
    Matching(String),
}

impl Topics {
    /// Selects all topics whose whole name matches a regular expression
    /// ([syntax](https://docs.rs/regex/latest/regex/#syntax)), including topics created later.
    /// Kafka's internal topics, whose names begin with `__`, are excluded.
    pub fn matching(pattern: impl Into<String>) -> Self {
        Topics(Kind::Matching(pattern.into()))
    }

    /// Returns the topic's name if the selection is exactly one named topic; otherwise `None`.
    pub(crate) fn only(&self) -> Option<&str> {
        match &self.0 {
            Kind::Named(names) if names.len() == 1 => names.first().map(String::as_str),
            _ => None,
        }
    }

    /// Validates the topics.
    ///
    /// # Errors
    /// `InvalidConfig` if the pattern is invalid or the list of names is empty.
    pub(crate) fn selection(&self) -> Result<Selection> {
        let invalid = |what: String| Error::new(ErrorCode::InvalidConfig, what);
        match &self.0 {
            Kind::Named(names) if names.is_empty() => {
                Err(invalid("there is no topic to read".into()).hint("name at least one"))
            }
            Kind::Named(names) => {
                let mut names: Vec<Arc<str>> =
                    names.iter().map(|name| name.as_str().into()).collect();
                names.sort();
                names.dedup();
                Ok(Selection::Named(names))
            }
            Kind::Matching(pattern) => match Regex::new(&format!("^(?:{pattern})$")) {
                Ok(regex) => Ok(Selection::Matching(regex)),
                Err(error) => Err(
                    invalid(format!("{pattern:?} is no pattern for topic names")).because(error),
                ),
            },
        }
    }
}

impl fmt::Display for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Named(names) => f.write_str(&names.join(", ")),
            Kind::Matching(pattern) => write!(f, "matching {pattern}"),
        }
    }
}

impl From<&str> for Topics {
    fn from(name: &str) -> Self {
        Topics(Kind::Named(vec![name.to_string()]))
    }
}

impl From<String> for Topics {
    fn from(name: String) -> Self {
        Topics(Kind::Named(vec![name]))
    }
}

impl From<&String> for Topics {
    fn from(name: &String) -> Self {
        Topics::from(name.as_str())
    }
}

impl<S: Into<String>, const N: usize> From<[S; N]> for Topics {
    fn from(names: [S; N]) -> Self {
        names.into_iter().collect()
    }
}

impl<S: Into<String>> From<Vec<S>> for Topics {
    fn from(names: Vec<S>) -> Self {
        names.into_iter().collect()
    }
}

impl<S: Into<String>> FromIterator<S> for Topics {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Topics(Kind::Named(names.into_iter().map(Into::into).collect()))
    }
}

/// Validated topics of a source.
#[derive(Clone, Debug)]
pub(crate) enum Selection {
    Named(Vec<Arc<str>>),
    Matching(Regex),
}

impl Selection {
    /// Returns true if a topic is read.
    pub fn has(&self, topic: &str) -> bool {
        match self {
            Selection::Named(names) => names.iter().any(|name| &**name == topic),
            Selection::Matching(regex) => !topic.starts_with("__") && regex.is_match(topic),
        }
    }

    /// Returns the number that assigns a partition to an instance: the partition number, plus a
    /// hash of the topic's name unless a single topic is named.
    pub fn number(&self, topic: &str, partition: i32) -> u64 {
        let partition = u64::try_from(partition).unwrap_or(0);
        match self {
            Selection::Named(names) if names.len() == 1 => partition,
            _ => (xxhash_rust::xxh3::xxh3_64(topic.as_bytes()) >> 1) + partition,
        }
    }
}

/// A partition of a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PartitionId {
    pub topic: Arc<str>,
    pub number: i32,
}

impl PartitionId {
    pub fn new(topic: &str, number: i32) -> Self {
        PartitionId {
            topic: topic.into(),
            number,
        }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_to_match_the_whole_name_and_leaves_out_kafkas_own() {
        let all = Topics::matching("a|b.*|__x").selection().unwrap();
        assert!(all.has("a") && all.has("b1"));
        assert!(!all.has("ab") && !all.has("cb") && !all.has("__x"));
        let error = Topics::matching("(").selection().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
    }

    #[test]
    fn names_are_read_once_each_and_there_has_to_be_one() {
        let two = Topics::from(["b", "a", "b"]);
        assert_eq!(two.to_string(), "b, a, b");
        let Selection::Named(names) = two.selection().unwrap() else {
            panic!("they are names");
        };
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(two.only(), None);
        assert_eq!(Topics::from("a").only(), Some("a"));
        assert!(Topics::from(Vec::<String>::new()).selection().is_err());
    }

    #[test]
    fn partitions_of_one_topic_are_spread_by_their_number() {
        let one = Topics::from("a").selection().unwrap();
        assert_eq!(one.number("a", 7), 7);
        let two = Topics::from(["a", "b"]).selection().unwrap();
        assert_eq!(two.number("a", 8), two.number("a", 7) + 1);
        assert_ne!(two.number("a", 0), two.number("b", 0));
    }
}
