//! Errors of frames that do not depend on the decoder.

use std::fmt;

/// The minimum length of a hole: a run of zero bytes, as in a block left unwritten by a system
/// crash.
const HOLE: usize = 16;

/// The reason why a frame cannot be decoded, independent of its format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FramingError {
    /// The frame exceeds the maximum length; contains its length in bytes.
    Overlong(u64),
    /// A quoted field is never closed.
    Unclosed,
    /// A quoted field is not closed within this maximum number of bytes.
    OpenTooLong(usize),
    /// Text follows the closing quote of a field, at offset `at`; the field starts at `opened`.
    TextBehindQuote { at: usize, opened: usize },
    /// The record spans lines and has another number of fields than the header.
    Fields { has: usize, wants: usize },
    /// The frame contains a run of at least [`HOLE`] zero bytes.
    Hole,
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FramingError::Overlong(bytes) => {
                write!(f, "a line of {bytes} bytes is over the limit (`max_line`)")
            }
            FramingError::Unclosed => f.write_str("a quoted field is not closed"),
            FramingError::OpenTooLong(limit) => write!(
                f,
                "a quoted field is not closed within {limit} bytes (`max_quoted`)"
            ),
            FramingError::TextBehindQuote { at, opened } => write!(
                f,
                "the quoted field at byte {opened} is not closed properly: text follows its quote, at byte {at}"
            ),
            FramingError::Fields { has, wants } => write!(
                f,
                "{has} fields where the header has {wants}, in a record of several lines: a quoted field may not be closed"
            ),
            FramingError::Hole => write!(
                f,
                "{HOLE} zero bytes or more in a row, a hole as a crash leaves it in a file"
            ),
        }
    }
}

/// Refuses a text that would not read back, since it contains a hole.
#[inline]
pub(crate) fn refuse_hole(text: &[u8]) -> Result<(), &'static str> {
    let is_hole = memchr::memchr(0, text).is_some() && hole(text, &mut 0).is_some();
    match is_hole {
        true => Err(
            "its text has 16 zero bytes or more in a row, which readers take for a hole in the file",
        ),
        false => Ok(()),
    }
}

/// Returns an error if `bytes`, together with the `run` zeros before them, contain a hole. Updates
/// `run` to the number of zeros at the end of `bytes`.
pub(super) fn hole(bytes: &[u8], run: &mut usize) -> Option<FramingError> {
    let mut longest = 0;
    let mut at = 0;
    while at < bytes.len() {
        let zeros = bytes[at..].iter().take_while(|&&byte| byte == 0).count();
        *run += zeros;
        longest = longest.max(*run);
        at += zeros;
        if at == bytes.len() {
            break;
        }
        *run = 0;
        match memchr::memchr(0, &bytes[at..]) {
            Some(next) => at += next,
            None => break,
        }
    }
    (longest >= HOLE).then_some(FramingError::Hole)
}
