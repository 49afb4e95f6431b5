//! Values that are represented by an integer.

use crate::error::{Error, ErrorCode};

/// The type of an integer of up to 64 bits. The numbers are part of the snapshot format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum IntegerType {
    /// `u8`.
    U8 = 1,
    /// `u16`.
    U16 = 2,
    /// `u32`.
    U32 = 3,
    /// `u64`.
    U64 = 4,
    /// `i8`.
    I8 = 5,
    /// `i16`.
    I16 = 6,
    /// `i32`.
    I32 = 7,
    /// `i64`.
    I64 = 8,
}

impl IntegerType {
    /// All types, in the order of their numbers from one.
    pub const ALL: [IntegerType; 8] = [
        IntegerType::U8,
        IntegerType::U16,
        IntegerType::U32,
        IntegerType::U64,
        IntegerType::I8,
        IntegerType::I16,
        IntegerType::I32,
        IntegerType::I64,
    ];

    /// Returns the type with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number.checked_sub(1)?)).copied()
    }

    /// Returns the number of bits of the type.
    pub const fn bits(self) -> u32 {
        8 << ((self as u32 - 1) % 4)
    }
}

/// An integer with its type, encoded such that small values of either sign have small magnitudes.
///
/// ```
/// use ardea_core::{Integer, IntegerType};
///
/// let integer = Integer::from(-3i32);
/// assert_eq!((integer.of(), integer.magnitude()), (IntegerType::I32, 5));
/// assert_eq!(Integer::new(IntegerType::I32, 5), Some(integer));
/// assert_eq!(integer.value(), (-3i64) as u64);
/// assert_eq!(Integer::new(IntegerType::U8, 256), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Integer {
    of: IntegerType,
    magnitude: u64,
}

impl Integer {
    /// Creates an integer from type and [magnitude](Self::magnitude); `None` if the type has no
    /// such value.
    pub fn new(of: IntegerType, magnitude: u64) -> Option<Self> {
        let is_in = of.bits() == u64::BITS || magnitude >> of.bits() == 0;
        is_in.then_some(Integer { of, magnitude })
    }

    /// Returns the type.
    pub fn of(self) -> IntegerType {
        self.of
    }

    /// Returns the zigzag encoding of a signed value (0, -1, 1, -2 are 0, 1, 2, 3), or an unsigned
    /// value itself.
    pub fn magnitude(self) -> u64 {
        self.magnitude
    }

    /// Returns the error for an integer in place of a value of another type.
    pub fn unexpected(self) -> Error {
        let what = format!("unexpected integer {self:?} in place of a value");
        Error::new(ErrorCode::BadRecord, what)
            .hint("start the job as it was when the checkpoint was taken")
    }

    /// Returns the value in 64 bits, sign-extended.
    pub fn value(self) -> u64 {
        match (self.of as u8) < IntegerType::I8 as u8 {
            true => self.magnitude,
            false => (self.magnitude >> 1) ^ (self.magnitude & 1).wrapping_neg(),
        }
    }
}

macro_rules! from {
    ($($unsigned:ident $signed:ident: $u:ident $i:ident;)*) => {$(
        impl From<$unsigned> for Integer {
            #[inline]
            fn from(value: $unsigned) -> Self {
                Integer { of: IntegerType::$u, magnitude: value.into() }
            }
        }

        impl From<$signed> for Integer {
            #[inline]
            fn from(value: $signed) -> Self {
                let value = i64::from(value);
                Integer { of: IntegerType::$i, magnitude: ((value << 1) ^ (value >> 63)) as u64 }
            }
        }
    )*};
}

from! {
    u8 i8: U8 I8;
    u16 i16: U16 I16;
    u32 i32: U32 I32;
    u64 i64: U64 I64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_integer_is_known_by_its_type_and_magnitude(value: i64, narrow: i16, plain: u32) {
            for (integer, value) in [
                (Integer::from(value), value as u64),
                (Integer::from(narrow), i64::from(narrow) as u64),
                (Integer::from(plain), plain.into()),
            ] {
                prop_assert_eq!(Integer::new(integer.of(), integer.magnitude()), Some(integer));
                prop_assert_eq!(integer.value(), value);
            }
        }
    }

    #[test]
    fn types_have_numbers_of_their_own() {
        for of in IntegerType::ALL {
            assert_eq!(IntegerType::from_number(of as u8), Some(of));
        }
        assert_eq!(IntegerType::from_number(0), None);
        assert_eq!(IntegerType::from_number(9), None);
    }

    #[test]
    fn what_a_type_does_not_have_is_no_integer_of_it() {
        assert_eq!(
            Integer::new(IntegerType::I8, 255).map(Integer::value),
            Some(-128i64 as u64)
        );
        assert_eq!(Integer::new(IntegerType::I8, 256), None);
    }
}
