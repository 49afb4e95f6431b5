//! Lines of text.

use std::fmt::{Debug, Display};
use std::io::Write;

use super::{Decode, Encode};
use crate::framer::refuse_hole;

/// Lines of UTF-8 text: decoded to `String`, encoded with `Display`.
///
/// A record is refused if its text would not read back as one line: with a newline in it, a
/// carriage return at its end, or sixteen zero bytes in a row. [`multiline`](Self::multiline)
/// permits such texts for display; [`JsonLines`](super::JsonLines) can represent any text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines;

impl Lines {
    /// Writes a text with newlines unchanged. Such a text reads back as several lines.
    pub fn multiline(self) -> MultilineText {
        MultilineText
    }
}

/// Texts of one or more lines, each followed by a newline; see [`Lines::multiline`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MultilineText;

impl Decode<String> for Lines {
    #[inline]
    fn decode(&mut self, frame: &[u8]) -> Result<Option<String>, String> {
        match std::str::from_utf8(frame) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(error) => Err(format!("not UTF-8 from byte {} on", error.valid_up_to())),
        }
    }
}

impl<T: Display> Encode<T> for Lines {
    #[inline]
    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> Result<(), String> {
        let start = out.len();
        write!(out, "{record}").map_err(|error| error.to_string())?;
        check_line(&out[start..])?;
        out.push(b'\n');
        Ok(())
    }
}

impl<T: Display> Encode<T> for MultilineText {
    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> Result<(), String> {
        writeln!(out, "{record}").map_err(|error| error.to_string())
    }
}

/// Refuses a text that would not read back as one line.
#[inline]
fn check_line(text: &[u8]) -> Result<(), String> {
    match memchr::memchr(b'\n', text) {
        Some(at) => Err(format!(
            "its text has a newline at byte {at}, and would read back as several lines"
        )),
        None if text.ends_with(b"\r") => Err(
            "its text ends with a carriage return, which would be read as a part of the line's end"
                .to_string(),
        ),
        None => Ok(refuse_hole(text)?),
    }
}

/// One line per record, formatted with `Debug`; for display only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Debugged;

impl<T: Debug> Encode<T> for Debugged {
    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> Result<(), String> {
        writeln!(out, "{record:?}").map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_are_refused_with_their_place() {
        assert_eq!(
            Lines.decode(b"ab\xff"),
            Err("not UTF-8 from byte 2 on".to_string())
        );
        assert_eq!(
            Lines.decode("grüß".as_bytes()),
            Ok(Some("grüß".to_string()))
        );
    }

    #[test]
    fn anything_displayable_becomes_a_line() {
        let mut out = Vec::new();
        Lines.encode(&1.5, &mut out).unwrap();
        Debugged.encode(&"a", &mut out).unwrap();
        assert_eq!(out, b"1.5\n\"a\"\n");
    }

    #[test]
    fn a_text_that_is_no_single_line_is_refused_unless_several_are_wanted() {
        for text in ["a\nb", "\n", "a\r\n", "a\r", &"\0".repeat(16)] {
            let mut out = Vec::new();
            assert!(Lines.encode(&text, &mut out).is_err(), "{text:?}");
            out.clear();
            Lines.multiline().encode(&text, &mut out).unwrap();
            assert_eq!(out, format!("{text}\n").as_bytes());
        }
        for text in ["", "a\rb", "\0", &"\0".repeat(15), "\u{2028}", "\u{feff}a"] {
            let mut out = Vec::new();
            Lines.encode(&text, &mut out).unwrap();
            let line = out.strip_suffix(b"\n").unwrap();
            assert_eq!(Lines.decode(line), Ok(Some(text.to_string())));
        }
    }
}
