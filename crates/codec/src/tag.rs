//! The first byte of each value: what it is.

/// Nothing of a kind: `()`, a struct without fields.
pub(crate) const UNIT: u8 = 0;
/// `None`.
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
/// As a `u32`.
pub(crate) const CHAR: u8 = 17;
/// A length of one byte, then UTF-8.
pub(crate) const SHORT_STR: u8 = 18;
/// A length of four bytes, then UTF-8.
pub(crate) const STR: u8 = 19;
/// A length of four bytes, then bytes.
pub(crate) const BYTES: u8 = 20;
/// How many, in one byte, then the values.
pub(crate) const TUPLE: u8 = 21;
/// How many, in four bytes, then the values.
pub(crate) const SEQ: u8 = 22;
/// How many, in four bytes, then a key and a value each.
pub(crate) const MAP: u8 = 23;
/// The number of its shape in two bytes, then the values of its fields.
pub(crate) const STRUCT: u8 = 24;
/// A variant of an enum: the number of its shape in two bytes, its number in four; what it holds follows as a value.
pub(crate) const VARIANT: u8 = 25;

/// Numbers of one kind: its tag, how many in four bytes, and the numbers without theirs.
pub(crate) const PACKED: u8 = 26;

/// As a struct, of state that is kept: its fields are found by their names, never by their places, as another version of the program may
/// read it.
pub(crate) const KEPT_STRUCT: u8 = 27;
/// As a variant, of state that is kept: it is found by its name, never by its number.
pub(crate) const KEPT_VARIANT: u8 = 28;

/// Before a value of state that is kept in which structs and variants are found by their places: a checksum of what its type looks like, in
/// eight bytes. No other type may read it.
pub(crate) const PLACED: u8 = 29;

/// The bytes of a number of this kind, if it is one.
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

/// How deep values may lie in each other.
pub(crate) const MOST_DEPTH: u32 = 128;

/// So many values may take no byte each; more than that have to be there.
pub(crate) const MOST_EMPTY: usize = 1 << 16;
