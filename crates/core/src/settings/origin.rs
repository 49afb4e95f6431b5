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
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Variable(name) => f.write_str(name),
            Origin::Flag => f.write_str("--set"),
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
