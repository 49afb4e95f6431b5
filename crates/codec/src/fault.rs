//! Why values can't be written, or read.

use std::fmt::{self, Display};

use serde::{de, ser};

/// Why values can't be written, or read.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The bytes end in the middle of a value.
    Short,
    /// The bytes are none that a writer wrote.
    Garbled,
    /// A text was found where none fits, unless it is one that lives as long as the program: it is to be read again, and kept.
    Borrows(Box<str>),
    /// More of such texts than is reasonable.
    TooManyTexts,
    /// Values within values within values.
    TooDeep,
    /// More in one than can be counted.
    TooLarge,
    /// What the type itself says.
    Own(Box<str>),
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Short => f.write_str("it ends in the middle of a value"),
            Fault::Garbled => f.write_str("it holds bytes that are no value"),
            Fault::TooManyTexts => f.write_str(
                "its `&'static str`s are too many different ones: they are kept for ever; use String",
            ),
            Fault::TooDeep => f.write_str("its values lie too deep in each other"),
            Fault::TooLarge => f.write_str("one of its texts or lists is longer than 4 GB"),
            Fault::Borrows(text) | Fault::Own(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Fault {}

impl ser::Error for Fault {
    fn custom<T: Display>(text: T) -> Self {
        Fault::Own(text.to_string().into())
    }
}

impl de::Error for Fault {
    fn custom<T: Display>(text: T) -> Self {
        Fault::Own(text.to_string().into())
    }

    /// A `&'static str` takes no text but a kept one.
    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let text = format!("it has {found} where {expected} should be").into();
        match found {
            de::Unexpected::Str(_) | de::Unexpected::Bytes(_) => Fault::Borrows(text),
            _ => Fault::Own(text),
        }
    }
}
