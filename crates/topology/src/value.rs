//! The values of a tuple's fields, and their encoding.
//!
//! A field is a tag byte and a payload that depends on the tag. The encoding is self-describing,
//! platform-independent and canonical: equal values are equal bytes.
//!
//! | tag | value | payload |
//! |---|---|---|
//! | `00` | null | nothing |
//! | `01`, `02` | false, true | nothing |
//! | `03` | integer | eight bytes, little-endian, two's complement; only without a shorter form |
//! | `04` | floating-point number | eight bytes, little-endian, IEEE 754 |
//! | `05` | text | its length in four bytes, little-endian, then UTF-8; only from 64 bytes on |
//! | `06` | bytes | their length in four bytes, little-endian, then themselves |
//! | `07` | list | the length of all its items in four bytes, little-endian, then each item as a field |
//! | `40` + n | text of n bytes, up to 63 | UTF-8 |
//! | `80` + n | the integer n, up to 127 | nothing |

use std::fmt;

use crate::encode::Encode;

const NULL: u8 = 0x00;
const FALSE: u8 = 0x01;
const TRUE: u8 = 0x02;
const INT: u8 = 0x03;
const FLOAT: u8 = 0x04;
const TEXT: u8 = 0x05;
const BYTES: u8 = 0x06;
const LIST: u8 = 0x07;
const SHORT_TEXT: u8 = 0x40;
const SMALL_INT: u8 = 0x80;

/// The maximum length of a text that fits in the tag.
const SHORT_TEXT_BYTES: usize = 0x3f;
/// The maximum integer that fits in the tag.
const SMALL_INT_MAX: i64 = 0x7f;
/// The maximum nesting depth of lists.
const MOST_NESTED: usize = 32;

/// The value of one field, borrowed from its encoding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Str(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list of values.
    List(List<'a>),
}

impl Value<'_> {
    /// Returns the kind of the value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
        }
    }
}

impl fmt::Display for Value<'_> {
    /// A short form for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Str(value) => write!(f, "{value:?}"),
            Value::Bytes(value) => write!(f, "{} bytes", value.len()),
            Value::List(list) => f.debug_list().entries(list.iter()).finish(),
        }
    }
}

/// The encoded items of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct List<'a> {
    items: &'a [u8],
}

impl<'a> List<'a> {
    /// Returns the items, in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let mut rest = self.items;
        std::iter::from_fn(move || {
            let (field, after) = Field::first(rest)?;
            rest = after;
            field.value()
        })
    }
}

impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One encoded field of a tuple. Emitting the field again copies its bytes without encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    bytes: &'a [u8],
    header: usize,
}

impl<'a> Field<'a> {
    /// Splits off the first field of `bytes`; `None` at the end, and for an invalid field.
    #[inline]
    pub(crate) fn first(bytes: &'a [u8]) -> Option<(Field<'a>, &'a [u8])> {
        let tag = *bytes.first()?;
        let (header, length) = match tag {
            SHORT_TEXT..SMALL_INT => (1, usize::from(tag - SHORT_TEXT)),
            SMALL_INT.. | NULL | FALSE | TRUE => (1, 0),
            INT | FLOAT => (1, 8),
            TEXT | BYTES | LIST => {
                let length: [u8; 4] = bytes.get(1..5)?.try_into().ok()?;
                (5, u32::from_le_bytes(length) as usize)
            }
            _ => return None,
        };
        let (bytes, rest) = bytes.split_at_checked(header + length)?;
        Some((Field { bytes, header }, rest))
    }

    /// Returns the encoded field with its tag.
    #[inline]
    pub fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the payload without tag and length: the UTF-8 of a text, bytes themselves.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.header..).unwrap_or_default()
    }

    /// Returns true if the field is a text.
    #[inline]
    pub fn is_str(&self) -> bool {
        matches!(self.bytes.first(), Some(&(TEXT | SHORT_TEXT..SMALL_INT)))
    }

    /// Returns the value of the field; `None` only if the bytes are not a valid field.
    #[inline]
    pub fn value(&self) -> Option<Value<'a>> {
        let payload = self.payload();
        Some(match *self.bytes.first()? {
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            INT => Value::Int(i64::from_le_bytes(payload.try_into().ok()?)),
            FLOAT => Value::Float(f64::from_le_bytes(payload.try_into().ok()?)),
            TEXT | SHORT_TEXT..SMALL_INT => Value::Str(std::str::from_utf8(payload).ok()?),
            BYTES => Value::Bytes(payload),
            LIST => Value::List(List { items: payload }),
            small @ SMALL_INT.. => Value::Int(i64::from(small - SMALL_INT)),
            _ => return None,
        })
    }

    /// Calls `with` on the canonical bytes of this field as a key, as defined by
    /// [`Key`](ardea_core::Key), so that tuples are routed like the keys of a pipeline.
    ///
    /// A floating-point number is represented by its eight bytes, with one zero and one NaN.
    #[inline]
    pub(crate) fn with_canonical<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        let payload = self.payload();
        match self.bytes.first() {
            Some(&small @ SMALL_INT..) => with(&i64::from(small - SMALL_INT).to_le_bytes()),
            Some(&(FALSE | TRUE)) => {
                with(&u64::from(self.bytes.first() == Some(&TRUE)).to_le_bytes())
            }
            Some(&FLOAT) => match self.value() {
                Some(Value::Float(number)) => with(&plain(number).to_bits().to_le_bytes()),
                _ => with(payload),
            },
            Some(&LIST) => {
                let mut parts = Vec::new();
                let mut rest = payload;
                while let Some((item, after)) = Field::first(rest) {
                    item.write_part(&mut parts);
                    rest = after;
                }
                with(&parts)
            }
            _ => with(payload),
        }
    }

    /// Appends this field as a part of a composite key: its length in eight bytes, then its
    /// canonical bytes.
    pub(crate) fn write_part(&self, key: &mut Vec<u8>) {
        self.with_canonical(|bytes| {
            key.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            key.extend_from_slice(bytes);
        });
    }

    /// Returns true if this is the canonical encoding of a value.
    pub(crate) fn is_canonical(&self) -> bool {
        self.is_sound(MOST_NESTED)
    }

    fn is_sound(&self, nested: usize) -> bool {
        let payload = self.payload();
        match (self.bytes.first(), self.value()) {
            (Some(&INT), Some(Value::Int(value))) => !(0..=SMALL_INT_MAX).contains(&value),
            (Some(&TEXT), Some(Value::Str(text))) => text.len() > SHORT_TEXT_BYTES,
            (Some(&LIST), _) => {
                let mut rest = payload;
                while !rest.is_empty() {
                    match Field::first(rest) {
                        Some((item, after)) if nested > 0 && item.is_sound(nested - 1) => {
                            rest = after;
                        }
                        _ => return false,
                    }
                }
                true
            }
            (_, value) => value.is_some(),
        }
    }
}

/// Normalizes zero and NaN.
fn plain(number: f64) -> f64 {
    if number.is_nan() {
        f64::NAN
    } else {
        // Adding zero changes -0.0 to 0.0, and no other number.
        number + 0.0
    }
}

/// Writes fields directly into the batch.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    bytes: &'a mut Vec<u8>,
    depth: usize,
    written: usize,
}

impl<'a> FieldWriter<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        FieldWriter {
            bytes,
            depth: 0,
            written: 0,
        }
    }

    /// Returns the number of written fields.
    #[inline]
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    /// Writes null.
    #[inline]
    pub fn null(&mut self) {
        self.written += 1;
        self.bytes.push(NULL);
    }

    /// Writes a boolean.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.written += 1;
        self.bytes.push(if value { TRUE } else { FALSE });
    }

    /// Writes an integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        self.written += 1;
        if (0..=SMALL_INT_MAX).contains(&value) {
            self.bytes.push(SMALL_INT + value as u8);
        } else {
            self.bytes.push(INT);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Writes a floating-point number.
    #[inline]
    pub fn float(&mut self, value: f64) {
        self.written += 1;
        self.bytes.push(FLOAT);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a text.
    #[inline]
    pub fn str(&mut self, value: &str) {
        self.written += 1;
        if value.len() <= SHORT_TEXT_BYTES {
            self.bytes.push(SHORT_TEXT + value.len() as u8);
            self.bytes.extend_from_slice(value.as_bytes());
        } else {
            self.long(TEXT, value.as_bytes());
        }
    }

    /// Writes bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.written += 1;
        self.long(BYTES, value);
    }

    /// Writes a list with the items that `items` writes. Lists nested deeper than 32 become null.
    pub fn list(&mut self, items: impl FnOnce(&mut FieldWriter<'_>)) {
        if self.depth >= MOST_NESTED {
            return self.null();
        }
        self.written += 1;
        self.bytes.push(LIST);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        items(&mut FieldWriter {
            bytes: self.bytes,
            depth: self.depth + 1,
            written: 0,
        });
        let length = (self.bytes.len() - start - 4) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Writes an encoded field.
    #[inline]
    pub fn field(&mut self, field: Field<'_>) {
        match field.value() {
            // Within a list, the value may be nested too deep.
            Some(value @ Value::List(_)) if self.depth > 0 => value.encode(self),
            _ => self.encoded(field.encoded(), 1),
        }
    }

    /// Writes `count` encoded fields.
    #[inline]
    pub(crate) fn encoded(&mut self, fields: &[u8], count: usize) {
        self.written += count;
        self.bytes.extend_from_slice(fields);
    }

    /// A batch whose length exceeds four bytes is refused as a whole, so a truncated length is
    /// never read.
    fn long(&mut self, tag: u8, value: &[u8]) {
        self.bytes.push(tag);
        self.bytes
            .extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Key, PartitionId};

    fn encode(write: impl FnOnce(&mut FieldWriter<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut FieldWriter::new(&mut bytes));
        bytes
    }

    fn partition(bytes: &[u8]) -> PartitionId {
        let (field, rest) = Field::first(bytes).unwrap();
        assert!(rest.is_empty());
        field.with_canonical(PartitionId::of_canonical)
    }

    #[test]
    fn a_field_goes_where_the_same_key_of_a_pipeline_goes() {
        for number in [-1i64, 0, 5, 127, 128, i64::MAX, i64::MIN] {
            assert_eq!(
                partition(&encode(|w| w.int(number))),
                PartitionId::of(&number)
            );
        }
        for word in ["", "ardea", &"long ".repeat(40)] {
            assert_eq!(
                partition(&encode(|w| w.str(word))),
                PartitionId::of(&word.to_string())
            );
        }
        assert_eq!(partition(&encode(|w| w.bool(true))), PartitionId::of(&true));
        let list = encode(|w| {
            w.list(|w| {
                w.str("ab");
                w.int(7);
            })
        });
        let key = ("ab".to_string(), 7i64);
        assert_eq!(partition(&list), PartitionId::of(&key));
        assert_ne!(key.key_hash(), 0);
    }

    #[test]
    fn both_zeros_are_one_key() {
        assert_eq!(
            partition(&encode(|w| w.float(0.0))),
            partition(&encode(|w| w.float(-0.0)))
        );
    }

    #[test]
    fn small_values_take_a_byte_more_than_themselves_at_most() {
        assert_eq!(encode(|w| w.int(127)).len(), 1);
        assert_eq!(encode(|w| w.int(128)).len(), 9);
        assert_eq!(encode(|w| w.str("word")).len(), 5);
        assert_eq!(encode(|w| w.str(&"x".repeat(64))).len(), 69);
    }

    #[test]
    fn a_longer_form_of_a_value_is_no_encoding_of_it() {
        let mut bytes = vec![INT];
        bytes.extend_from_slice(&5i64.to_le_bytes());
        assert!(!Field::first(&bytes).unwrap().0.is_canonical());
        let text = [TEXT, 1, 0, 0, 0, b'x'];
        assert!(!Field::first(&text).unwrap().0.is_canonical());
        assert!(
            !Field::first(&[SHORT_TEXT + 1, 0xff])
                .unwrap()
                .0
                .is_canonical()
        );
    }

    #[test]
    fn lists_nest_only_so_deep() {
        fn nest(w: &mut FieldWriter<'_>, left: usize) {
            if left > 0 {
                w.list(|w| nest(w, left - 1));
            }
        }
        let bytes = encode(|w| nest(w, 100));
        assert!(Field::first(&bytes).unwrap().0.is_canonical());
    }
}
