//! Labels, which distinguish values of the same metric name.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};

use crate::name::fitted;

type Text = Arc<str>;

/// Pairs of a label's name and value, with unique names, sorted by name. Cheap to clone.
///
/// Names consist of letters, digits and `_`, and start with no digit; other characters become `_`.
/// Values are any text.
///
/// ```
/// use ardea_metrics::Labels;
///
/// let process = Labels::of([("job", "word-count"), ("container", "3")]);
/// let all = Labels::of([("vertex", "words")]).over(&process);
/// assert_eq!(all.get("container"), Some("3"));
/// assert_eq!(all.to_string(), r#"container="3",job="word-count",vertex="words""#);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Arc<[(Text, Text)]>);

impl Labels {
    /// Returns the empty set of labels.
    pub fn none() -> Self {
        static NONE: OnceLock<Labels> = OnceLock::new();
        NONE.get_or_init(|| Labels(Arc::from([]))).clone()
    }

    /// Creates a set from pairs. Of several pairs with the same name, the last one is used.
    pub fn of<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let pairs = pairs.into_iter();
        Labels::sorted(
            pairs
                .map(|(name, value)| (fitted(name.as_ref(), false), Arc::from(value.as_ref())))
                .collect(),
        )
    }

    /// Returns these labels with an additional label, which replaces an existing label of the same
    /// name.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut pairs = self.0.to_vec();
        pairs.push((fitted(name, false), Arc::from(value)));
        Labels::sorted(pairs)
    }

    /// Returns these labels without the named ones.
    pub fn without(&self, names: &[&str]) -> Self {
        self.filtered(|name| !names.contains(&name))
    }

    /// Returns only the named labels.
    pub fn only(&self, names: &[&str]) -> Self {
        self.filtered(|name| names.contains(&name))
    }

    /// Returns these labels, and in addition the labels of `below` with other names.
    pub fn over(&self, below: &Labels) -> Self {
        if self.0.is_empty() {
            return below.clone();
        }
        let mut pairs = below.0.to_vec();
        pairs.extend(self.0.iter().cloned());
        Labels::sorted(pairs)
    }

    /// Returns the value of the label of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
        Some(&self.0[at].1)
    }

    /// Returns the names and values, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn sorted(mut pairs: Vec<(Text, Text)>) -> Self {
        // The sort is stable, so the last pair of equal names stays last and is used.
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        pairs.reverse();
        pairs.dedup_by(|(one, _), (other, _)| one == other);
        pairs.reverse();
        Labels(pairs.into())
    }

    fn filtered(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(name, _)| keep(name));
        Labels(kept.cloned().collect())
    }
}

impl Default for Labels {
    fn default() -> Self {
        Labels::none()
    }
}

/// Formats the labels as between braces in Prometheus. In values, `\`, `"` and line ends are
/// escaped.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{name}=\"")?;
            for c in value.chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    c => fmt::Write::write_char(f, c)?,
                }
            }
            f.write_str("\"")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// Serializes the labels as a map.
impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_name_the_last_counts_and_names_are_made_to_fit() {
        let labels = Labels::of([("b", "1"), ("a b", "x"), ("b", "2"), ("1", "y"), ("", "z")]);
        assert_eq!(labels.to_string(), r#"_="z",_1="y",a_b="x",b="2""#);
        assert_eq!(labels.with("b", "3").get("b"), Some("3"));
        assert_eq!(labels.only(&["b"]).len(), 1);
        assert_eq!(labels.without(&["b"]).len(), 3);
    }

    #[test]
    fn values_are_escaped() {
        let labels = Labels::of([("path", "C:\\a \"b\"\nc ä")]);
        assert_eq!(labels.to_string(), r#"path="C:\\a \"b\"\nc ä""#);
    }

    #[test]
    fn labels_of_a_sample_cover_those_of_its_process() {
        let process = Labels::of([("container", "1"), ("job", "a")]);
        assert_eq!(
            Labels::of([("job", "b")]).over(&process).get("job"),
            Some("b")
        );
        assert_eq!(Labels::none().over(&process), process);
    }
}
