//! Origins of the values of settings.

use std::fmt;
use std::sync::Arc;

/// The origin of a value, lowest precedence first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The default of the setting.
    Default,
    /// The configuration file.
    File {
        /// The name of the file, as given.
        name: Arc<str>,
        /// The line of the key, from one.
        line: usize,
    },
    /// The environment variable of this name.
    Variable(String),
    /// `--set key=value` on the command line.
    Flag,
    /// A dedicated option on the command line, such as `--threads`.
    Option(&'static str),
}

/// The assignment of a setting on a command line: `key=value`, after `--set` or from a dedicated
/// option.
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
    /// Creates the assignment `key=value` of an option.
    pub fn of_option(option: &'static str, text: impl Into<String>) -> Self {
        Flag {
            option: Some(option),
            text: text.into(),
        }
    }

    /// The key and value, as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the origin of the assignment.
    pub fn origin(&self) -> Origin {
        self.option.map_or(Origin::Flag, Origin::Option)
    }
}

impl From<&str> for Flag {
    /// Creates the assignment after `--set`.
    fn from(text: &str) -> Self {
        Flag::from(text.to_string())
    }
}

impl From<String> for Flag {
    /// Creates the assignment after `--set`.
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

/// A key and value as written, before validation.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    /// The profile, if the assignment is in the table of one.
    pub(super) profile: Option<String>,
    pub(super) key: String,
    pub(super) text: String,
    pub(super) origin: Origin,
}
