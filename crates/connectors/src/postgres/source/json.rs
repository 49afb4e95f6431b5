//! Lossless deserialization of records from the server's JSON of rows.
//!
//! A number is passed to the record in the requested type if the type can represent all digits. A
//! field that requests text receives the digits unchanged, so that exact decimals can be read.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeOwned, Deserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::digits::{float, whole};
use super::json_items::{Items, Name, Variant};

/// Maximum nesting depth.
const MOST_DEPTH: u32 = 128;

/// Deserializes a record.
pub(crate) fn from_json<T: DeserializeOwned>(json: &str) -> Result<T, JsonError> {
    let mut parser = Parser {
        text: json,
        at: 0,
        depth: 0,
    };
    let record = T::deserialize(&mut parser)?;
    match parser.peek() {
        None => Ok(record),
        Some(_) => Err(parser.unexpected("the end")),
    }
}

/// Reason why a row cannot be deserialized.
#[derive(Debug)]
pub(crate) struct JsonError(String);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

impl de::Error for JsonError {
    fn custom<T: fmt::Display>(why: T) -> Self {
        JsonError(why.to_string())
    }
}

pub(super) type Result<T, E = JsonError> = std::result::Result<T, E>;

/// A JSON text and the current position.
pub(super) struct Parser<'de> {
    text: &'de str,
    at: usize,
    depth: u32,
}

impl<'de> Parser<'de> {
    /// Returns the next byte that is not whitespace.
    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    pub(super) fn unexpected(&self, wanted: &str) -> JsonError {
        JsonError(format!(
            "{wanted} is expected at byte {} of its JSON",
            self.at
        ))
    }

    pub(super) fn take(&mut self, byte: u8, wanted: &str) -> Result<()> {
        if self.peek() != Some(byte) {
            return Err(self.unexpected(wanted));
        }
        self.at += 1;
        Ok(())
    }

    fn take_word(&mut self, word: &str) -> Result<()> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Takes a number; returns its text.
    fn take_number(&mut self) -> Result<&'de str> {
        let rest = &self.text[self.at..];
        let is_part = |letter: char| letter.is_ascii_digit() || "+-.eE".contains(letter);
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        if !rest[..end].contains(|letter: char| letter.is_ascii_digit()) {
            return Err(self.unexpected("a value"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    pub(super) fn take_string(&mut self) -> Result<Cow<'de, str>> {
        let rest = &self.text[self.at..];
        let (mut at, mut is_plain) = (1, true);
        let bytes = rest.as_bytes();
        loop {
            match bytes.get(at) {
                None => return Err(self.unexpected("the end of a string")),
                Some(b'"') => break,
                Some(b'\\') => {
                    is_plain = false;
                    at += 2;
                }
                Some(_) => at += 1,
            }
        }
        self.at += at + 1;
        if is_plain {
            return Ok(Cow::Borrowed(&rest[1..at]));
        }
        let text = serde_json::from_str(&rest[..=at]).map_err(de::Error::custom)?;
        Ok(Cow::Owned(text))
    }

    fn is_number(&mut self) -> bool {
        matches!(self.peek(), Some(b'-' | b'0'..=b'9'))
    }

    fn enter(&mut self) -> Result<()> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            let why = format!("values are nested more than {MOST_DEPTH} levels deep");
            return Err(JsonError(why));
        }
        Ok(())
    }

    fn leave(&mut self, end: u8, wanted: &str) -> Result<()> {
        self.depth -= 1;
        self.take(end, wanted)
    }

    /// Reads an integer, in the type that fits it.
    fn visit_whole<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        if !self.is_number() {
            return self.deserialize_any(visitor);
        }
        let literal = self.take_number()?;
        let Some(number) = whole(literal) else {
            return Err(de::Error::invalid_value(
                Unexpected::Other(&format!("number {literal}")),
                &visitor,
            ));
        };
        if let Ok(number) = i64::try_from(number) {
            visitor.visit_i64(number)
        } else if let Ok(number) = u64::try_from(number) {
            visitor.visit_u64(number)
        } else {
            visitor.visit_i128(number)
        }
    }

    /// Takes a string that stands for a float that JSON lacks: `NaN` or an infinity. Returns `None`
    /// for other strings.
    fn take_special(&mut self) -> Option<f64> {
        for (word, number) in [
            ("\"NaN\"", f64::NAN),
            ("\"Infinity\"", f64::INFINITY),
            ("\"-Infinity\"", f64::NEG_INFINITY),
        ] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Some(number);
            }
        }
        None
    }
}

fn lost(literal: &str, kind: &str) -> JsonError {
    JsonError(format!(
        "the number {literal} has more digits than {kind} holds; read it as text"
    ))
}

macro_rules! whole_numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.visit_whole(visitor)
        }
    )*};
}

macro_rules! texts {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match self.is_number() {
                true => visitor.visit_borrowed_str(self.take_number()?),
                false => self.deserialize_any(visitor),
            }
        }
    )*};
}

macro_rules! binaries {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            if self.peek() != Some(b'"') {
                return self.deserialize_any(visitor);
            }
            let text = self.take_string()?;
            match bytes_of(&text) {
                Some(bytes) => visitor.visit_byte_buf(bytes),
                None => visitor.visit_bytes(text.as_bytes()),
            }
        }
    )*};
}

/// Returns the bytes of a `bytea` value.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}

impl<'de> Deserializer<'de> for &mut Parser<'de> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            Some(b'n') => {
                self.take_word("null")?;
                visitor.visit_unit()
            }
            Some(b't') => {
                self.take_word("true")?;
                visitor.visit_bool(true)
            }
            Some(b'f') => {
                self.take_word("false")?;
                visitor.visit_bool(false)
            }
            Some(b'"') => match self.take_string()? {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            Some(b'[') => {
                self.enter()?;
                let mut items = Items::new(self);
                let value = visitor.visit_seq(&mut items)?;
                self.leave(b']', "the end of an array")?;
                Ok(value)
            }
            Some(b'{') => {
                self.enter()?;
                let mut items = Items::new(self);
                let value = visitor.visit_map(&mut items)?;
                self.leave(b'}', "the end of an object")?;
                Ok(value)
            }
            _ => {
                let literal = self.take_number()?;
                let is_whole = !literal.contains(['.', 'e', 'E']);
                if is_whole && let Ok(number) = literal.parse() {
                    visitor.visit_i64(number)
                } else if is_whole && let Ok(number) = literal.parse() {
                    visitor.visit_u64(number)
                } else if let Some(number) = float::<f64>(literal) {
                    visitor.visit_f64(number)
                } else {
                    visitor.visit_borrowed_str(literal)
                }
            }
        }
    }

    whole_numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }

    texts! { deserialize_char deserialize_str deserialize_string }

    binaries! { deserialize_bytes deserialize_byte_buf }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.is_number() {
            let literal = self.take_number()?;
            return visitor.visit_f32(float(literal).ok_or_else(|| lost(literal, "f32"))?);
        }
        match self.take_special() {
            Some(number) => visitor.visit_f64(number),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.is_number() {
            let literal = self.take_number()?;
            return visitor.visit_f64(float(literal).ok_or_else(|| lost(literal, "f64"))?);
        }
        match self.take_special() {
            Some(number) => visitor.visit_f64(number),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.peek() == Some(b'n') {
            self.take_word("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.peek() {
            Some(b'"') => Name(self.take_string()?).deserialize_enum(name, variants, visitor),
            Some(b'{') => {
                self.enter()?;
                let value = visitor.visit_enum(Variant(self))?;
                self.leave(b'}', "the end of an object")?;
                Ok(value)
            }
            _ => Err(self.unexpected("a variant")),
        }
    }

    forward_to_deserialize_any! {
        bool unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
