//! Labels: what tells values of one name apart.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};

use crate::name::fitted;

type Text = Arc<str>;

/// Pairs of a label's name and its value, each name once, sorted by name. Cheap to clone.
///
/// Names are made of letters, digits and `_`, not a digit first; whatever else becomes `_`. Values are any text.
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
    /// No labels.
    pub fn none() -> Self {
        static NONE: OnceLock<Labels> = OnceLock::new();
        NONE.get_or_init(|| Labels(Arc::from([]))).clone()
    }

    /// These labels; of two with one name the last counts.
    pub fn of<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let pairs = pairs.into_iter();
        Labels::sorted(
            pairs
                .map(|(name, value)| (fitted(name.as_ref(), false), Arc::from(value.as_ref())))
                .collect(),
        )
    }

    /// These and one more, which replaces that of its name.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut pairs = self.0.to_vec();
        pairs.push((fitted(name, false), Arc::from(value)));
        Labels::sorted(pairs)
    }

    /// These without the named ones.
    pub fn without(&self, names: &[&str]) -> Self {
        self.filtered(|name| !names.contains(&name))
    }

    /// Of these, the named ones.
    pub fn only(&self, names: &[&str]) -> Self {
        self.filtered(|name| names.contains(&name))
    }

    /// These, and those of `below` whose names are not among these.
    pub fn over(&self, below: &Labels) -> Self {
        if self.0.is_empty() {
            return below.clone();
        }
        let mut pairs = below.0.to_vec();
        pairs.extend(self.0.iter().cloned());
        Labels::sorted(pairs)
    }

    /// The value of the label of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
        Some(&self.0[at].1)
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn sorted(mut pairs: Vec<(Text, Text)>) -> Self {
        // Stable: of one name the last comes last, and wins.
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

/// As Prometheus writes them between braces; in values, `\`, `"` and line ends are escaped.
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

/// As a map.
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
