//! The reasons why a frame as such can't be decoded.

use std::fmt;

/// A run of zero bytes of this length is a hole: a block that a crash of the machine left unwritten.
const HOLE: usize = 16;

/// The reason why a frame can't be decoded, whatever its format says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It has that many bytes, more than the limit.
    Overlong(u64),
    /// A quoted field opens in it and is closed nowhere.
    Unclosed,
    /// A quoted field opens in it and is not closed within the limit, which is that many bytes.
    OpenTooLong(usize),
    /// Text follows the quote that seemed to close a field, at this offset; the field opened at the other one.
    TextBehindQuote { at: usize, opened: usize },
    /// It spans lines, and has another number of fields than the header.
    Fields { has: usize, wants: usize },
    /// It holds a run of [`HOLE`] zero bytes at least.
    Hole,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Overlong(bytes) => {
                write!(f, "a line of {bytes} bytes is over the limit (`max_line`)")
            }
            Fault::Unclosed => f.write_str("a quoted field is not closed"),
            Fault::OpenTooLong(limit) => write!(
                f,
                "a quoted field is not closed within {limit} bytes (`max_quoted`)"
            ),
            Fault::TextBehindQuote { at, opened } => write!(
                f,
                "the quoted field at byte {opened} is not closed properly: text follows its quote, at byte {at}"
            ),
            Fault::Fields { has, wants } => write!(
                f,
                "{has} fields where the header has {wants}, in a record of several lines: a quoted field may not be closed"
            ),
            Fault::Hole => write!(
                f,
                "{HOLE} zero bytes or more in a row, a hole as a crash leaves it in a file"
            ),
        }
    }
}

/// The reason why a text does not read back if it holds what a reader takes for a hole.
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

/// Finds a hole in `bytes` and those before them. `run` is the number of zeros right before them, and becomes the number
/// at their end.
pub(super) fn hole(bytes: &[u8], run: &mut usize) -> Option<Fault> {
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
    (longest >= HOLE).then_some(Fault::Hole)
}
