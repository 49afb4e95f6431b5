//! One setting: its name, what it may be, and what it trades.

use std::fmt;
use std::time::Duration;

use super::duration::format_duration;
use super::environment::PREFIX;
use super::origin::Origin;
use super::quantity::format_bytes;
use super::value::{Value, ValueError, read};

/// A setting that people may change. Rooms of the house declare theirs in a `static` slice.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name: words of `a-z`, `0-9` and `_`, joined by dots where the file has nested tables.
    pub key: &'static str,
    /// What it may be set to.
    pub kind: Kind,
    /// What it is when nobody says otherwise, as one would write it.
    pub default: &'static str,
    /// What it is, in one sentence.
    pub about: &'static str,
    /// What more of it buys, and what it costs.
    pub trades: &'static str,
}

/// What a setting may be set to. The bounds belong to the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number, such as `1_000_000`.
    Count {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// A whole number, or `auto` to let the program choose.
    CountOrAuto {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// A length of time, such as `1m30s`.
    Duration {
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// A size in bytes, such as `64KiB`.
    Bytes {
        /// The smallest, in bytes.
        least: u64,
        /// The largest, in bytes.
        most: u64,
    },
    /// `true` or `false`; also `on`, `yes`, `1` and `off`, `no`, `0`.
    Flag,
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl fmt::Display for Kind {
    /// Says what to write: `a whole number from 1 to 10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Count { least, most } => write!(f, "a whole number from {least} to {most}"),
            Kind::CountOrAuto { least, most } => {
                write!(f, "auto or a whole number from {least} to {most}")
            }
            Kind::Duration { least, most } => write!(
                f,
                "a duration from {} to {}",
                format_duration(*least),
                format_duration(*most)
            ),
            Kind::Bytes { least, most } => write!(
                f,
                "a size from {} to {}",
                format_bytes(*least),
                format_bytes(*most)
            ),
            Kind::Flag => f.write_str("true or false"),
            Kind::Text => f.write_str("a text"),
            Kind::Choice(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

impl Setting {
    /// The environment variable of this setting: `ARDEA_ENGINE_SLICE` for `engine.slice`.
    pub fn variable(&self) -> String {
        format!(
            "{PREFIX}{}",
            self.key.to_ascii_uppercase().replace('.', "_")
        )
    }

    /// Reads `text` as a value of this setting.
    ///
    /// # Errors
    ///
    /// When it is none, with the reason.
    pub fn read(&self, text: &str) -> Result<Value, ValueError> {
        read(self.kind, text)
    }

    /// What to write instead of a value that is none: the form and an example; of a text, which may have any form, what it is.
    pub(super) fn advice(&self, origin: &Origin) -> String {
        match self.kind {
            Kind::Text => format!("{}: {}", self.key, self.about),
            kind => format!("write {kind}, for example {}", self.example(origin)),
        }
    }

    /// A right value, its default, as it is written in the place that `origin` names.
    pub(super) fn example(&self, origin: &Origin) -> String {
        let (key, value) = (self.key, self.default);
        match origin {
            Origin::Flag | Origin::Option(_) | Origin::Default => format!("--set {key}={value}"),
            Origin::Variable(name) => format!("{name}={value}"),
            Origin::File { .. } => match self.kind {
                Kind::Count { .. } | Kind::Flag => format!("{key} = {value}"),
                _ => format!("{key} = {value:?}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_follows_from_the_key() {
        let setting = Setting {
            key: "engine.idle_poll",
            kind: Kind::Flag,
            default: "true",
            about: "",
            trades: "",
        };
        assert_eq!(setting.variable(), "ARDEA_ENGINE_IDLE_POLL");
    }

    #[test]
    fn a_kind_says_what_to_write() {
        let duration = Kind::Duration {
            least: Duration::from_micros(1),
            most: Duration::from_secs(60),
        };
        assert_eq!(duration.to_string(), "a duration from 1us to 1m");
        let bytes = Kind::Bytes {
            least: 512,
            most: 1 << 20,
        };
        assert_eq!(bytes.to_string(), "a size from 512B to 1MiB");
        assert_eq!(Kind::Choice(&["a", "b"]).to_string(), "one of a, b");
    }
}
