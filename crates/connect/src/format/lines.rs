//! Raw lines of text.

use std::fmt::{Debug, Display};
use std::io::Write;

use super::{Decode, Encode};

/// Lines of UTF-8 text: decoded to `String`, encoded from anything that can be displayed.
///
/// A record whose text holds a newline comes out as two lines; use [`JsonLines`](super::JsonLines) for such.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines;

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
        writeln!(out, "{record}").map_err(|error| error.to_string())
    }
}

/// One line a record, as its `Debug` shows it; for looking, not for reading back.
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
}
