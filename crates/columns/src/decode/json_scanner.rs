//! A scanner over one JSON value: reads or skips its parts, and checks all of them.

use super::builder::ColumnBuilder;
use super::{Reason, invalid_utf8};

/// The maximum nesting of arrays and objects.
const MAX_DEPTH: u32 = 128;

/// A cursor over the bytes of a line.
///
/// Skipped parts are checked against the grammar of JSON too, so that a damaged line is reported
/// whether or not its damage is in a column that was asked for.
pub(super) struct JsonScanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The bitwise or of the words read within strings: shows whether any byte is not ASCII.
    seen: u64,
}

/// A string of the input.
pub(super) enum JsonText<'a> {
    /// A string without escapes.
    Plain(&'a [u8]),
    /// A string with its escapes replaced.
    Unescaped(Vec<u8>),
}

impl JsonText<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            JsonText::Plain(bytes) => bytes,
            JsonText::Unescaped(bytes) => bytes,
        }
    }
}

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

/// Returns a word whose high bits mark the bytes that end or interrupt a string: quotes,
/// backslashes and control characters. Bits above the lowest marked byte may be wrong.
#[inline]
fn special_bytes(word: u64) -> u64 {
    let quote = word ^ (ONES * u64::from(b'"'));
    let backslash = word ^ (ONES * u64::from(b'\\'));
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (zero(quote) | zero(backslash) | control) & HIGH
}

impl<'a> JsonScanner<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        JsonScanner {
            bytes,
            at: 0,
            seen: 0,
        }
    }

    /// Returns the next byte that is not white space.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                byte => return byte.copied(),
            }
        }
    }

    /// Skips `byte` if it is the next one.
    #[inline]
    pub(super) fn accept(&mut self, byte: u8) -> bool {
        let accepted = self.peek() == Some(byte);
        self.at += usize::from(accepted);
        accepted
    }

    /// Skips `byte`, which must be the next one.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Reason> {
        match self.accept(byte) {
            true => Ok(()),
            false => Err(self.invalid(&format!("expected `{}`", char::from(byte)))),
        }
    }

    /// Checks that nothing follows, and that the line is valid UTF-8.
    #[inline]
    pub(super) fn expect_end(&mut self) -> Result<(), Reason> {
        if self.peek().is_some() {
            return Err(self.invalid("trailing characters"));
        }
        // A byte that is not ASCII is an error outside of strings.
        if self.seen & HIGH == 0 {
            return Ok(());
        }
        match std::str::from_utf8(self.bytes) {
            Ok(_) => Ok(()),
            Err(error) => Err(invalid_utf8(error.valid_up_to())),
        }
    }

    /// Returns the reason for text that is not JSON.
    #[cold]
    #[inline(never)]
    pub(super) fn invalid(&self, what: &str) -> Reason {
        let found = match self.bytes.get(self.at) {
            None => "the line ends".to_string(),
            Some(byte) if byte.is_ascii_graphic() => format!("found `{}`", char::from(*byte)),
            Some(byte) => format!("found the byte 0x{byte:02x}"),
        };
        format!("not valid JSON at byte {}: {what}, {found}", self.at + 1).into()
    }

    /// Moves to the next quote, backslash or control character.
    #[inline]
    fn find_special(&mut self) -> Result<u8, Reason> {
        while let Some(word) = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk())
        {
            let word = u64::from_le_bytes(*word);
            self.seen |= word;
            let marks = special_bytes(word);
            if marks != 0 {
                self.at += (marks.trailing_zeros() / 8) as usize;
                return Ok(self.bytes[self.at]);
            }
            self.at += 8;
        }
        while let Some(byte) = self.bytes.get(self.at) {
            if matches!(byte, b'"' | b'\\' | 0..0x20) {
                return Ok(*byte);
            }
            self.seen |= u64::from(*byte);
            self.at += 1;
        }
        Err(self.invalid("a string has no end"))
    }

    /// Reads a string after its opening quote.
    #[inline]
    pub(super) fn text(&mut self) -> Result<JsonText<'a>, Reason> {
        let start = self.at;
        match self.find_special()? {
            b'"' => {
                let text = &self.bytes[start..self.at];
                self.at += 1;
                Ok(JsonText::Plain(text))
            }
            _ => self.text_with_escapes(start).map(JsonText::Unescaped),
        }
    }

    /// Reads the rest of a string that has escapes.
    #[cold]
    fn text_with_escapes(&mut self, mut start: usize) -> Result<Vec<u8>, Reason> {
        let mut text = Vec::new();
        loop {
            let special = self.find_special()?;
            text.extend_from_slice(&self.bytes[start..self.at]);
            match special {
                b'"' => {
                    self.at += 1;
                    return Ok(text);
                }
                b'\\' => {
                    self.at += 1;
                    self.escape(&mut text)?;
                    start = self.at;
                }
                _ => return Err(self.invalid("a control character in a string")),
            }
        }
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), Reason> {
        let byte = self.bytes.get(self.at).copied();
        let plain = match byte {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                self.at += 1;
                let unit = self.code_unit()?;
                let code = match unit {
                    0xd800..0xdc00 if self.bytes[self.at..].starts_with(b"\\u") => {
                        self.at += 2;
                        let low = self.code_unit()?;
                        match low {
                            0xdc00..0xe000 => 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00),
                            _ => return Err(self.invalid("a surrogate without its other half")),
                        }
                    }
                    _ => unit,
                };
                let Some(character) = char::from_u32(code) else {
                    return Err(self.invalid("a surrogate without its other half"));
                };
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.invalid("an unknown escape")),
        };
        text.push(plain);
        self.at += 1;
        Ok(())
    }

    /// Reads the four hexadecimal digits of a `\u` escape.
    fn code_unit(&mut self) -> Result<u32, Reason> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.bytes.get(self.at).map(|byte| char::from(*byte));
            let Some(digit) = digit.and_then(|digit| digit.to_digit(16)) else {
                return Err(self.invalid("expected four hexadecimal digits"));
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    /// Skips a string after its opening quote.
    #[inline]
    fn skip_text(&mut self) -> Result<(), Reason> {
        match self.find_special()? {
            b'"' => {
                self.at += 1;
                Ok(())
            }
            _ => self.text_with_escapes(self.at).map(drop),
        }
    }

    /// Skips the rest of a word such as `true`.
    #[inline]
    fn word(&mut self, word: &[u8]) -> Result<(), Reason> {
        match self.bytes[self.at..].starts_with(word) {
            true => {
                self.at += word.len();
                Ok(())
            }
            false => Err(self.invalid("expected a value")),
        }
    }

    /// Skips digits, of which there must be at least one.
    #[inline]
    fn digits(&mut self) -> Result<(), Reason> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.bytes.get(self.at) {
            self.at += 1;
        }
        match self.at > start {
            true => Ok(()),
            false => Err(self.invalid("expected a digit")),
        }
    }

    /// Skips the integral part of a number. Returns its value, or `None` if it exceeds 64 bits.
    #[inline]
    fn integer(&mut self) -> Result<Option<u64>, Reason> {
        let start = self.at;
        let mut value = 0u64;
        while let Some(byte @ b'0'..=b'9') = self.bytes.get(self.at) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            self.at += 1;
        }
        let digits = &self.bytes[start..self.at];
        match digits {
            [] => Err(self.invalid("expected a digit")),
            [b'0', _, ..] => Err(self.invalid("a number with a leading zero")),
            // Nineteen digits always fit.
            _ if digits.len() <= 19 => Ok(Some(value)),
            _ => Ok(std::str::from_utf8(digits)
                .ok()
                .and_then(|it| it.parse().ok())),
        }
    }

    /// Skips the fraction and the exponent of a number. Returns true if it has any.
    #[inline]
    fn fraction(&mut self) -> Result<bool, Reason> {
        let start = self.at;
        if let Some(b'.') = self.bytes.get(self.at) {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(self.at > start)
    }

    /// Reads a number into a column.
    #[inline]
    fn number(&mut self, column: &mut ColumnBuilder) -> Result<(), Reason> {
        let start = self.at;
        let negative = self.bytes[start] == b'-';
        self.at += usize::from(negative);
        let integer = self.integer()?;
        match (self.fraction()?, integer) {
            (false, Some(magnitude)) => column.push_integer(negative, magnitude),
            _ => column.push_decimal(&self.bytes[start..self.at]),
        }
    }

    /// Reads the next value into a column.
    #[inline]
    pub(super) fn value(&mut self, column: &mut ColumnBuilder) -> Result<(), Reason> {
        match self.peek() {
            Some(b'0'..=b'9' | b'-') => self.number(column),
            Some(b'"') => {
                self.at += 1;
                let text = self.text()?;
                column.push_text(text.bytes())
            }
            Some(b'n') => self.word(b"null").and_then(|()| column.push_null()),
            Some(b't') => self.word(b"true").and_then(|()| column.push_bool(true)),
            Some(b'f') => self.word(b"false").and_then(|()| column.push_bool(false)),
            Some(b'{') => Err(column.unexpected("an object")),
            Some(b'[') => Err(column.unexpected("an array")),
            _ => Err(self.invalid("expected a value")),
        }
    }

    /// Skips the next value, which is `depth` levels deep.
    #[inline]
    pub(super) fn skip(&mut self, depth: u32) -> Result<(), Reason> {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                self.skip_text()
            }
            Some(b'0'..=b'9') => self.integer().and_then(|_| self.fraction()).map(drop),
            Some(b'-') => {
                self.at += 1;
                self.integer().and_then(|_| self.fraction()).map(drop)
            }
            Some(b'n') => self.word(b"null"),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'{') => self.skip_object(depth),
            Some(b'[') => self.skip_array(depth),
            _ => Err(self.invalid("expected a value")),
        }
    }

    /// Enters an array or object, and returns the depth of its values.
    #[inline]
    pub(super) fn enter(&mut self, depth: u32) -> Result<u32, Reason> {
        if depth >= MAX_DEPTH {
            return Err(self.invalid("arrays and objects nested more than 128 deep"));
        }
        self.at += 1;
        Ok(depth + 1)
    }

    fn skip_object(&mut self, depth: u32) -> Result<(), Reason> {
        let depth = self.enter(depth)?;
        if self.accept(b'}') {
            return Ok(());
        }
        loop {
            self.expect(b'"')?;
            self.skip_text()?;
            self.expect(b':')?;
            self.skip(depth)?;
            if !self.accept(b',') {
                return self.expect(b'}');
            }
        }
    }

    fn skip_array(&mut self, depth: u32) -> Result<(), Reason> {
        let depth = self.enter(depth)?;
        if self.accept(b']') {
            return Ok(());
        }
        loop {
            self.skip(depth)?;
            if !self.accept(b',') {
                return self.expect(b']');
            }
        }
    }
}
