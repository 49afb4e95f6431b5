//! Settings: key, kind, default, description and trade-off.

use std::fmt;
use std::time::Duration;

use super::duration::format_duration;
use super::environment::PREFIX;
use super::origin::Origin;
use super::quantity::format_bytes;
use super::value::{Value, ValueError, read};

/// A setting of the program. Each crate declares its settings in a `static` slice.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The key: words of `a-z`, `0-9` and `_`, joined by dots for nested tables of the file.
    pub key: &'static str,
    /// The kind of the setting's values.
    pub kind: Kind,
    /// The default, as a user would write it.
    pub default: &'static str,
    /// The description, in one sentence.
    pub about: &'static str,
    /// The benefit and the cost of a higher value.
    pub trades: &'static str,
}

/// The kind of a setting's values. Bounds are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number, such as `1_000_000`.
    Count {
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
    /// A whole number, or `auto` to let the program choose.
    CountOrAuto {
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
    /// A duration, such as `1m30s`.
    Duration {
        /// The minimum.
        least: Duration,
        /// The maximum.
        most: Duration,
    },
    /// A duration, or `auto` to let the program choose.
    DurationOrAuto {
        /// The minimum.
        least: Duration,
        /// The maximum.
        most: Duration,
    },
    /// A size in bytes, such as `64KiB`.
    Bytes {
        /// The minimum, in bytes.
        least: u64,
        /// The maximum, in bytes.
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
    /// Describes a correct value: `a whole number from 1 to 10`.
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
            Kind::DurationOrAuto { least, most } => write!(
                f,
                "auto or a duration from {} to {}",
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
    /// Returns the environment variable of this setting: `ARDEA_ENGINE_SLICE` for `engine.slice`.
    pub fn variable(&self) -> String {
        format!(
            "{PREFIX}{}",
            self.key.to_ascii_uppercase().replace('.', "_")
        )
    }

    /// Parses `text` as a value of this setting.
    ///
    /// # Errors
    ///
    /// If `text` is not a valid value, with the reason.
    pub fn read(&self, text: &str) -> Result<Value, ValueError> {
        read(self.kind, text)
    }

    /// Returns the advice for an invalid value: the valid form and an example, or for
    /// [`Kind::Text`] the description of the setting.
    pub(super) fn advice(&self, origin: &Origin) -> String {
        match self.kind {
            Kind::Text => format!("{}: {}", self.key, self.about),
            kind => format!("write {kind}, for example {}", self.example(origin)),
        }
    }

    /// Returns a valid assignment, the default, in the syntax of `origin`.
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
