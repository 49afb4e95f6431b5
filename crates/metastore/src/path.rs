//! Paths of nodes: `/jobs/wordcount/master`.

use ardea_core::{Error, ErrorCode, Result};
use std::fmt;
use std::str::FromStr;

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Maximum length of a path, in bytes; supported by every kind of metadata store.
const MAX_PATH_BYTES: usize = 1024;

/// Maximum number of names in a path.
const MAX_DEPTH: usize = 16;

/// The absolute path of a node, validated when it is created.
///
/// Names consist of one to 200 of the characters `a-z A-Z 0-9 - _ . : + @ = % ~`, and don't begin
/// with a dot (such names are reserved for the metadata stores).
/// [`child_encoded`](StatePath::child_encoded) encodes any text as a name. A path has at most 16
/// names and 1,024 bytes.
///
/// ```
/// use ardea_metastore::StatePath;
///
/// let path = StatePath::parse("/jobs/wordcount")?;
/// assert_eq!(path.child("master")?.as_str(), "/jobs/wordcount/master");
/// assert_eq!(path.child_encoded("p/9 %")?.as_str(), "/jobs/wordcount/p%2F9%20%25");
/// assert!(StatePath::parse("jobs").is_err());
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatePath(String);

impl StatePath {
    /// Returns `/`, the ancestor of all nodes; it has children, but no value.
    pub fn root() -> Self {
        StatePath("/".to_string())
    }

    /// Parses a path. Fails with [`ErrorCode::InvalidConfig`] if it is invalid.
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

    /// Returns the child of this name.
    pub fn child(&self, name: &str) -> Result<Self> {
        let whole = if self.is_root() {
            format!("/{name}")
        } else {
            format!("{}/{name}", self.0)
        };
        if let Some(why) = invalid_name_reason(name) {
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

    /// Returns the child for a name of any characters: bytes that a path can't contain are written
    /// as `%` and two hexadecimal digits. Different names give different nodes.
    pub fn child_encoded(&self, name: &str) -> Result<Self> {
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

    /// Decodes the last name, as encoded by [`child_encoded`](StatePath::child_encoded);
    /// `None` if it is invalid.
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

    /// Returns the whole path, which begins with `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for `/`.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// Returns the number of names.
    pub fn depth(&self) -> usize {
        self.names().count()
    }

    /// Returns the names, from the root down.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// Returns the last name; the root has none.
    pub fn name(&self) -> Option<&str> {
        self.names().last()
    }

    /// Returns the parent; the root has none.
    pub fn parent(&self) -> Option<StatePath> {
        if self.is_root() {
            return None;
        }
        let end = self.0.rfind('/').unwrap_or(0).max(1);
        Some(StatePath(self.0[..end].to_string()))
    }

    /// Returns the ancestors from the top down, without the root and the node itself.
    pub fn ancestors(&self) -> impl Iterator<Item = StatePath> {
        self.0
            .match_indices('/')
            .filter(|&(at, _)| at > 0)
            .map(|(at, _)| StatePath(self.0[..at].to_string()))
    }
}

fn invalid_name_reason(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("a name is empty")
    } else if name.starts_with('.') {
        Some("a name begins with a dot")
    } else if name.len() > MAX_NAME_BYTES {
        Some("a name is longer than 200 bytes")
    } else if !name.bytes().all(is_name_byte) {
        Some("a name holds a character other than letters, digits and -_.:+@=%~")
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
        format!("{shown:?} is not a path of the metadata store: {why}"),
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
            let child = path("/jobs").child_encoded(&name);
            if let Ok(child) = child {
                prop_assert_eq!(child.any_name(), Some(name));
                prop_assert_eq!(StatePath::parse(child.as_str()).expect("valid"), child);
            } else {
                prop_assert!(name.len() * 3 > MAX_NAME_BYTES);
            }
        }
    }
}
