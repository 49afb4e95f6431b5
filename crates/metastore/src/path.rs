//! Where a node is: `/jobs/wordcount/master`.

use ardea_core::{Error, ErrorCode, Result};
use std::fmt;
use std::str::FromStr;

/// The most bytes of one name.
const MAX_NAME_BYTES: usize = 200;

/// The most bytes of a whole path: every kind of state manager takes that much.
const MAX_PATH_BYTES: usize = 1024;

/// The deepest a node may lie.
const MAX_DEPTH: usize = 16;

/// The absolute path of a node, checked when it is made.
///
/// Names are one to 200 of the characters `a-z A-Z 0-9 - _ . : + @ = % ~`, and don't begin with a dot (such names belong to
/// the state managers). Any text becomes a name by [`child_of_any_name`](StatePath::child_of_any_name). At most 16
/// names, 1,024 bytes.
///
/// ```
/// use ardea_metastore::StatePath;
///
/// let path = StatePath::parse("/jobs/wordcount")?;
/// assert_eq!(path.child("master")?.as_str(), "/jobs/wordcount/master");
/// assert_eq!(path.child_of_any_name("p/9 %")?.as_str(), "/jobs/wordcount/p%2F9%20%25");
/// assert!(StatePath::parse("jobs").is_err());
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatePath(String);

impl StatePath {
    /// `/`, above all nodes; it has children, but no value.
    pub fn root() -> Self {
        StatePath("/".to_string())
    }

    /// Reads a path. Fails with [`ErrorCode::InvalidConfig`] if it is none.
    pub fn parse(text: &str) -> Result<Self> {
        let Some(names) = text.strip_prefix('/') else {
            return Err(invalid(text, "it does not begin with /"));
        };
        if names.is_empty() {
            return Ok(Self::root());
        }
        names
            .split('/')
            .try_fold(Self::root(), |path, name| path.child(name))
    }

    /// The node of this name below this one.
    pub fn child(&self, name: &str) -> Result<Self> {
        let whole = if self.is_root() {
            format!("/{name}")
        } else {
            format!("{}/{name}", self.0)
        };
        if let Some(why) = wrong_name(name) {
            return Err(invalid(&whole, why));
        }
        if whole.len() > MAX_PATH_BYTES {
            return Err(invalid(&whole, "it is longer than 1,024 bytes"));
        }
        if self.depth() == MAX_DEPTH {
            return Err(invalid(&whole, "it is deeper than 16 names"));
        }
        Ok(StatePath(whole))
    }

    /// The node below this one for a name from outside, of any characters: what a path can't hold is written as `%`
    /// and two hexadecimal digits a byte. Different names give different nodes.
    pub fn child_of_any_name(&self, name: &str) -> Result<Self> {
        let mut escaped = String::with_capacity(name.len());
        for (index, byte) in name.bytes().enumerate() {
            let plain = is_name_byte(byte) && byte != b'%' && !(index == 0 && byte == b'.');
            if plain {
                escaped.push(char::from(byte));
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        self.child(&escaped)
    }

    /// The name that [`child_of_any_name`](StatePath::child_of_any_name) was given for this last name, if it is one.
    pub fn any_name(&self) -> Option<String> {
        let mut bytes = Vec::new();
        let mut rest = self.name()?.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            if byte == b'%' {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &after[2..];
            } else {
                bytes.push(byte);
                rest = after;
            }
        }
        String::from_utf8(bytes).ok()
    }

    /// The whole path, beginning with `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// The number of names.
    pub fn depth(&self) -> usize {
        self.names().count()
    }

    /// The names, from the root down.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// The last name; the root has none.
    pub fn name(&self) -> Option<&str> {
        self.names().last()
    }

    /// The node above; the root has none.
    pub fn parent(&self) -> Option<StatePath> {
        if self.is_root() {
            return None;
        }
        let end = self.0.rfind('/').unwrap_or(0).max(1);
        Some(StatePath(self.0[..end].to_string()))
    }

    /// The nodes above this one, from below the root down, without the root and without itself.
    pub fn ancestors(&self) -> impl Iterator<Item = StatePath> {
        self.0
            .match_indices('/')
            .filter(|&(at, _)| at > 0)
            .map(|(at, _)| StatePath(self.0[..at].to_string()))
    }
}

fn wrong_name(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("a name is empty")
    } else if name.starts_with('.') {
        Some("a name begins with a dot")
    } else if name.len() > MAX_NAME_BYTES {
        Some("a name is longer than 200 bytes")
    } else if !name.bytes().all(is_name_byte) {
        Some("a name holds another character than letters, digits and -_.:+@=%~")
    } else {
        None
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:+@=%~".contains(&byte)
}

fn invalid(path: &str, why: &str) -> Error {
    let shown: String = path.chars().take(200).collect();
    Error::new(
        ErrorCode::InvalidConfig,
        format!("{shown:?} is no path of the state manager: {why}"),
    )
    .hint("write it like /jobs/wordcount/master")
}

impl fmt::Display for StatePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StatePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for StatePath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> StatePath {
        StatePath::parse(text).expect("a valid path")
    }

    #[test]
    fn a_path_is_what_it_was_written_as() {
        for text in ["/", "/a", "/jobs/wordcount/containers/7", "/a.b/-_:+@=%~"] {
            assert_eq!(path(text).as_str(), text);
        }
    }

    #[test]
    fn what_is_no_path_is_refused_with_the_reason() {
        let long = format!("/{}", "x".repeat(201));
        let deep = "/x".repeat(17);
        let cases = [
            ("", "does not begin"),
            ("a", "does not begin"),
            ("/a/", "empty"),
            ("//a", "empty"),
            ("/.births", "dot"),
            ("/a/../b", "dot"),
            ("/a b", "character"),
            ("/ä", "character"),
            ("/a\0", "character"),
            (long.as_str(), "200 bytes"),
            (deep.as_str(), "16 names"),
        ];
        for (text, why) in cases {
            let error = StatePath::parse(text).expect_err(text);
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
            assert!(error.to_string().contains(why), "{error}");
        }
        let wide = "/".to_string() + &vec!["y".repeat(199); 6].join("/");
        assert!(StatePath::parse(&wide).is_err());
    }

    #[test]
    fn ancestors_come_from_the_top_without_the_root() {
        let above: Vec<_> = path("/a/b/c").ancestors().map(|p| p.to_string()).collect();
        assert_eq!(above, ["/a", "/a/b"]);
        assert_eq!(path("/a").ancestors().count(), 0);
        assert_eq!(StatePath::root().ancestors().count(), 0);
    }

    #[test]
    fn the_parent_of_a_first_name_is_the_root_and_the_root_has_none() {
        assert_eq!(path("/a").parent(), Some(StatePath::root()));
        assert_eq!(path("/a/b").parent(), Some(path("/a")));
        assert_eq!(StatePath::root().parent(), None);
        assert_eq!(StatePath::root().name(), None);
    }

    proptest! {
        #[test]
        fn any_name_comes_back_as_it_was(name in ".{1,40}") {
            let child = path("/jobs").child_of_any_name(&name);
            if let Ok(child) = child {
                prop_assert_eq!(child.any_name(), Some(name));
                prop_assert_eq!(StatePath::parse(child.as_str()).expect("valid"), child);
            } else {
                prop_assert!(name.len() * 3 > MAX_NAME_BYTES);
            }
        }
    }
}
