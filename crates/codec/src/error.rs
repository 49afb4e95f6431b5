//! Errors of writing and reading values.

use std::fmt::{self, Display};

use serde::{de, ser};

#[derive(Debug)]
pub(crate) enum SerdeError {
    /// The bytes end in the middle of a value.
    Short,
    /// The bytes were not written by a writer.
    Invalid,
    /// A borrowed string was found where the type accepts only one with a static lifetime. The
    /// values are to be read again with interned strings.
    BorrowedString(Box<str>),
    /// The limit of interned strings is exceeded.
    TooManyStrings,
    TooDeep,
    /// A count or length exceeds its field.
    TooLarge,
    /// An error of the type itself.
    Custom(Box<str>),
}

impl Display for SerdeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SerdeError::Short => f.write_str("it ends in the middle of a value"),
            SerdeError::Invalid => f.write_str("it holds bytes that are no value"),
            SerdeError::TooManyStrings => f.write_str(
                "it has too many different `&'static str`s, which stay in memory for the life of the program; use String",
            ),
            SerdeError::TooDeep => f.write_str("its values are nested too deeply"),
            SerdeError::TooLarge => f.write_str("one of its texts or lists is longer than 4 GB"),
            SerdeError::BorrowedString(text) | SerdeError::Custom(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for SerdeError {}

impl ser::Error for SerdeError {
    fn custom<T: Display>(text: T) -> Self {
        SerdeError::Custom(text.to_string().into())
    }
}

impl de::Error for SerdeError {
    fn custom<T: Display>(text: T) -> Self {
        SerdeError::Custom(text.to_string().into())
    }

    /// A `&'static str` accepts only an interned string.
    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let text = format!("it has {found} where {expected} should be").into();
        match found {
            de::Unexpected::Str(_) | de::Unexpected::Bytes(_) => SerdeError::BorrowedString(text),
            _ => SerdeError::Custom(text),
        }
    }
}
