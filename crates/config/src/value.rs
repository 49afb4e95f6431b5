//! The typed values of settings, and their parsing by kind.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::did_you_mean::nearest;
use super::duration::{DurationError, format_duration, parse_duration};
use super::quantity::{QuantityError, format_bytes, parse_bytes, parse_count};
use super::setting::Kind;

/// The value of a setting. Its display form is the text that a user would write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// `auto`: the program chooses a value that suits the machine.
    Auto,
    /// A duration.
    Duration(Duration),
    /// A size in bytes.
    Bytes(u64),
    /// On or off.
    Flag(bool),
    /// Any text.
    Text(String),
    /// One of the words allowed by the setting's kind.
    Choice(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(count) => write!(f, "{count}"),
            Value::Auto => f.write_str("auto"),
            Value::Duration(duration) => f.write_str(&format_duration(*duration)),
            Value::Bytes(bytes) => f.write_str(&format_bytes(*bytes)),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Text(text) => f.write_str(text),
            Value::Choice(word) => f.write_str(word),
        }
    }
}

/// Counts are serialized as numbers and flags as booleans; everything else as the displayed text.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Count(count) => serializer.serialize_u64(*count),
            Value::Flag(flag) => serializer.serialize_bool(*flag),
            other => serializer.collect_str(other),
        }
    }
}

/// The reason why a text is not a value of a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ValueError {
    /// The text is not a duration.
    Duration(DurationError),
    /// The text is not a count or size.
    Quantity(QuantityError),
    /// The value is outside the range.
    OutOfRange(String),
    /// The text is neither true nor false.
    NotAFlag(String),
    /// The text (first field) is none of the allowed words; the second field is a similar word, if
    /// any.
    NotAChoice(String, Option<&'static str>),
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Duration(error) => write!(f, "{error}"),
            ValueError::Quantity(error) => write!(f, "{error}"),
            ValueError::OutOfRange(found) => write!(f, "{found} is out of range"),
            ValueError::NotAFlag(found) => write!(f, "{found:?} is neither true nor false"),
            ValueError::NotAChoice(found, Some(near)) => {
                write!(f, "{found:?} is no choice, did you mean {near}?")
            }
            ValueError::NotAChoice(found, None) => write!(f, "{found:?} is no choice"),
        }
    }
}

impl Error for ValueError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ValueError::Duration(error) => Some(error),
            ValueError::Quantity(error) => Some(error),
            _ => None,
        }
    }
}

/// Parses `text` as a value of `kind`. White space around it is significant only in a
/// [`Kind::Text`].
pub(super) fn read(kind: Kind, text: &str) -> Result<Value, ValueError> {
    let word = text.trim();
    match kind {
        Kind::CountOrAuto { .. } | Kind::DurationOrAuto { .. } if word == "auto" => Ok(Value::Auto),
        Kind::Count { least, most } | Kind::CountOrAuto { least, most } => {
            let count = parse_count(word).map_err(ValueError::Quantity)?;
            within(count, least, most, Value::Count)
        }
        Kind::Duration { least, most } | Kind::DurationOrAuto { least, most } => {
            let duration = parse_duration(word).map_err(ValueError::Duration)?;
            within(duration, least, most, Value::Duration)
        }
        Kind::Bytes { least, most } => {
            let bytes = parse_bytes(word).map_err(ValueError::Quantity)?;
            within(bytes, least, most, Value::Bytes)
        }
        Kind::Flag => match word {
            "true" | "on" | "yes" | "1" => Ok(Value::Flag(true)),
            "false" | "off" | "no" | "0" => Ok(Value::Flag(false)),
            _ => Err(ValueError::NotAFlag(word.to_string())),
        },
        Kind::Text => Ok(Value::Text(text.to_string())),
        Kind::Choice(words) => words
            .iter()
            .find(|choice| **choice == word)
            .map(|choice| Value::Choice(choice))
            .ok_or_else(|| {
                let near = nearest(word, words.iter().copied());
                ValueError::NotAChoice(word.to_string(), near)
            }),
    }
}

fn within<T: Ord + Copy>(
    found: T,
    least: T,
    most: T,
    value: fn(T) -> Value,
) -> Result<Value, ValueError> {
    if (least..=most).contains(&found) {
        Ok(value(found))
    } else {
        Err(ValueError::OutOfRange(value(found).to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Kind = Kind::Count { least: 1, most: 10 };

    #[test]
    fn the_ends_of_a_range_belong_to_it() {
        assert_eq!(read(SMALL, "1"), Ok(Value::Count(1)));
        assert_eq!(read(SMALL, " 10 "), Ok(Value::Count(10)));
        for text in ["0", "11"] {
            assert_eq!(
                read(SMALL, text),
                Err(ValueError::OutOfRange(text.to_string()))
            );
        }
    }

    #[test]
    fn auto_is_a_value_only_where_it_is_offered() {
        let offered = Kind::CountOrAuto { least: 1, most: 10 };
        assert_eq!(read(offered, "auto"), Ok(Value::Auto));
        assert_eq!(read(offered, "3"), Ok(Value::Count(3)));
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(1));
        let offered = Kind::DurationOrAuto { least, most };
        assert_eq!(read(offered, "auto"), Ok(Value::Auto));
        assert_eq!(read(offered, "1s"), Ok(Value::Duration(most)));
        assert!(read(offered, "2s").is_err());
        assert!(read(SMALL, "auto").is_err());
    }

    #[test]
    fn a_flag_is_written_in_four_ways() {
        for (on, off) in [("true", "false"), ("on", "off"), ("yes", "no"), ("1", "0")] {
            assert_eq!(read(Kind::Flag, on), Ok(Value::Flag(true)));
            assert_eq!(read(Kind::Flag, off), Ok(Value::Flag(false)));
        }
        assert!(read(Kind::Flag, "").is_err());
        assert!(read(Kind::Flag, "maybe").is_err());
    }

    #[test]
    fn a_misspelt_choice_is_told_the_nearest() {
        let kind = Kind::Choice(&["continuous", "micro-batch"]);
        assert_eq!(read(kind, "micro-batch"), Ok(Value::Choice("micro-batch")));
        assert_eq!(
            read(kind, "microbatch"),
            Err(ValueError::NotAChoice(
                "microbatch".into(),
                Some("micro-batch")
            ))
        );
        assert_eq!(
            read(kind, "x"),
            Err(ValueError::NotAChoice("x".into(), None))
        );
    }

    #[test]
    fn a_text_keeps_its_white_space() {
        assert_eq!(read(Kind::Text, " a "), Ok(Value::Text(" a ".into())));
    }
}
