//! Where the value of a setting was written.

use std::fmt;
use std::sync::Arc;

/// Where a value comes from, weakest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The configuration file.
    File {
        /// Its name, as it was given.
        name: Arc<str>,
        /// The line of the key, from one.
        line: usize,
    },
    /// The environment variable of this name.
    Variable(String),
    /// `--set key=value` on the command line.
    Flag,
    /// An option of its own on the command line, such as `--threads`.
    Option(&'static str),
}

/// What a command line says of a setting: `key=value`, behind `--set` or an option that is short for it.
///
/// ```
/// use ardea_config::{Flag, Origin};
///
/// assert_eq!(Flag::from("slice=50us").origin(), Origin::Flag);
/// assert_eq!(Flag::of_option("--threads", "threads=2").origin(), Origin::Option("--threads"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flag {
    option: Option<&'static str>,
    text: String,
}

impl Flag {
    /// What `option` says, as `key=value`.
    pub fn of_option(option: &'static str, text: impl Into<String>) -> Self {
        Flag {
            option: Some(option),
            text: text.into(),
        }
    }

    /// The key and value, as they were written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where it was said.
    pub fn origin(&self) -> Origin {
        self.option.map_or(Origin::Flag, Origin::Option)
    }
}

impl From<&str> for Flag {
    /// What came after `--set`.
    fn from(text: &str) -> Self {
        Flag::from(text.to_string())
    }
}

impl From<String> for Flag {
    /// What came after `--set`.
    fn from(text: String) -> Self {
        Flag { option: None, text }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Variable(name) => f.write_str(name),
            Origin::Flag => f.write_str("--set"),
            Origin::Option(name) => f.write_str(name),
        }
    }
}

/// A key and value as somebody wrote them, not yet looked at.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    /// Of which profile it is, if it is in the table of one.
    pub(super) profile: Option<String>,
    pub(super) key: String,
    pub(super) text: String,
    pub(super) origin: Origin,
}
