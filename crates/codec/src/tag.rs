//! The tags: the first byte of each value.

/// A value without content: `()`, a struct without fields.
pub(crate) const UNIT: u8 = 0;
pub(crate) const NONE: u8 = 1;
/// `Some`, then the value.
pub(crate) const SOME: u8 = 2;
pub(crate) const FALSE: u8 = 3;
pub(crate) const TRUE: u8 = 4;
/// Integers and floats: little-endian, in their width.
pub(crate) const U8: u8 = 5;
pub(crate) const U16: u8 = 6;
pub(crate) const U32: u8 = 7;
pub(crate) const U64: u8 = 8;
pub(crate) const U128: u8 = 9;
pub(crate) const I8: u8 = 10;
pub(crate) const I16: u8 = 11;
pub(crate) const I32: u8 = 12;
pub(crate) const I64: u8 = 13;
pub(crate) const I128: u8 = 14;
pub(crate) const F32: u8 = 15;
pub(crate) const F64: u8 = 16;
/// A character as a `u32`.
pub(crate) const CHAR: u8 = 17;
/// A string: a length of one byte, then UTF-8.
pub(crate) const SHORT_STR: u8 = 18;
/// A string: a length of four bytes, then UTF-8.
pub(crate) const STR: u8 = 19;
/// Bytes: a length of four bytes, then bytes.
pub(crate) const BYTES: u8 = 20;
/// A tuple: the number of values in one byte, then the values.
pub(crate) const TUPLE: u8 = 21;
/// A list: the number of values in four bytes, then the values.
pub(crate) const SEQ: u8 = 22;
/// A map: the number of entries in four bytes, then the key and value of each.
pub(crate) const MAP: u8 = 23;
/// A struct: the number of its shape in two bytes, then the values of its fields.
pub(crate) const STRUCT: u8 = 24;
/// A variant of an enum: the number of its shape in two bytes, its index in four, then its content
/// as a value.
pub(crate) const VARIANT: u8 = 25;

/// Numbers of one type: its tag, their count in four bytes, then the numbers without tags.
pub(crate) const PACKED: u8 = 26;

/// A struct in a state value. Its fields are always found by name, because another version of the
/// program may read the value.
pub(crate) const STATE_STRUCT: u8 = 27;
/// A variant in a state value. It is always found by name.
pub(crate) const STATE_VARIANT: u8 = 28;

/// The header of a state value whose fields and variants are found by position: a checksum of the
/// schema of its type in eight bytes. A reader with another checksum rejects the value.
pub(crate) const POSITIONAL: u8 = 29;

/// Returns the size in bytes of a number with this tag, `None` for other tags.
pub(crate) const fn width(tag: u8) -> Option<usize> {
    Some(match tag {
        U8 | I8 => 1,
        U16 | I16 => 2,
        U32 | I32 | F32 | CHAR => 4,
        U64 | I64 | F64 => 8,
        U128 | I128 => 16,
        _ => return None,
    })
}

/// The largest nesting depth of values.
pub(crate) const MAX_DEPTH: u32 = 128;

/// The largest count of a list whose values take no bytes; larger counts are limited by the bytes
/// left.
pub(crate) const MAX_EMPTY_VALUES: usize = 1 << 16;
