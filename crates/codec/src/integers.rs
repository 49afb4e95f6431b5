//! Values that serde writes as integers: conversion to the integer and back.

use std::fmt::{self, Display};

use ardea_core::{Integer, IntegerType};
use serde::ser::{Impossible, Serialize, Serializer};

use crate::error::SerdeError;
use crate::tag;
use crate::writer::Writer;

/// Returns the integer that serde writes for a value, `None` if serde writes anything else. A
/// struct with a single unnamed field counts as that field.
#[inline]
pub(crate) fn integer_of<T: Serialize>(value: &T) -> Option<Integer> {
    value.serialize(IntegerSerializer).ok()
}

/// Writes an integer in the format of a state value of its type.
pub(crate) fn write_state_integer(integer: Integer, out: &mut Vec<u8>) -> Result<(), SerdeError> {
    let (tag, width) = match integer.of() {
        IntegerType::U8 => (tag::U8, 1),
        IntegerType::U16 => (tag::U16, 2),
        IntegerType::U32 => (tag::U32, 4),
        IntegerType::U64 => (tag::U64, 8),
        IntegerType::I8 => (tag::I8, 1),
        IntegerType::I16 => (tag::I16, 2),
        IntegerType::I32 => (tag::I32, 4),
        IntegerType::I64 => (tag::I64, 8),
    };
    let writer = Writer::for_state(out);
    writer.out.push(tag);
    writer
        .out
        .extend_from_slice(&integer.value().to_le_bytes()[..width]);
    writer.finish().map(drop)
}

/// A serializer of integers only.
struct IntegerSerializer;

/// The error for a value that is not an integer.
#[derive(Debug)]
struct NotAnInteger;

impl Display for NotAnInteger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no integer")
    }
}

impl std::error::Error for NotAnInteger {}

impl serde::ser::Error for NotAnInteger {
    fn custom<T: Display>(_: T) -> Self {
        NotAnInteger
    }
}

macro_rules! integers {
    ($($name:ident $type:ty;)*) => {$(
        #[inline]
        fn $name(self, value: $type) -> Result<Integer, NotAnInteger> {
            Ok(value.into())
        }
    )*};
}

macro_rules! others {
    ($($name:ident($($type:ty),*);)*) => {$(
        fn $name(self $(, _: $type)*) -> Result<Integer, NotAnInteger> {
            Err(NotAnInteger)
        }
    )*};
}

type No = Impossible<Integer, NotAnInteger>;

impl Serializer for IntegerSerializer {
    type Ok = Integer;
    type Error = NotAnInteger;
    type SerializeSeq = No;
    type SerializeTuple = No;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = No;
    type SerializeStruct = No;
    type SerializeStructVariant = No;

    integers! {
        serialize_u8 u8;
        serialize_u16 u16;
        serialize_u32 u32;
        serialize_u64 u64;
        serialize_i8 i8;
        serialize_i16 i16;
        serialize_i32 i32;
        serialize_i64 i64;
    }

    others! {
        serialize_bool(bool);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn collect_str<T: Display + ?Sized>(self, _: &T) -> Result<Integer, NotAnInteger> {
        Err(NotAnInteger)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<Integer, NotAnInteger> {
        Err(NotAnInteger)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Integer, NotAnInteger> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Integer, NotAnInteger> {
        Err(NotAnInteger)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<No, NotAnInteger> {
        Err(NotAnInteger)
    }

    fn serialize_tuple(self, _: usize) -> Result<No, NotAnInteger> {
        Err(NotAnInteger)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<No, NotAnInteger> {
        Err(NotAnInteger)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, NotAnInteger> {
        Err(NotAnInteger)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<No, NotAnInteger> {
        Err(NotAnInteger)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<No, NotAnInteger> {
        Err(NotAnInteger)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, NotAnInteger> {
        Err(NotAnInteger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_codec_of;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Auction(u64);

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Named {
        number: u64,
    }

    #[test]
    fn what_serde_writes_as_an_integer_is_known_as_one() {
        assert_eq!(integer_of(&Auction(7)), Some(Integer::from(7u64)));
        assert_eq!(integer_of(&-7i16), Some(Integer::from(-7i16)));
        assert_eq!(integer_of(&Some(7)), None);
        assert_eq!(integer_of(&Named { number: 7 }), None);
        assert_eq!(integer_of(&"7"), None);
        assert_eq!(integer_of(&7i128), None);
    }

    #[test]
    fn who_asks_whether_people_read_it_is_told_the_same_as_by_the_writer() {
        struct Span;
        impl Serialize for Span {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match to.is_human_readable() {
                    true => to.serialize_u64(7),
                    false => (7u64, 0u32).serialize(to),
                }
            }
        }
        assert_eq!(integer_of(&Span), None);
    }

    #[test]
    fn an_integer_is_written_as_a_value_of_its_type() {
        fn bytes<T: crate::StateValue>(value: &T) -> Vec<u8> {
            let mut bytes = Vec::new();
            state_codec_of::<T>()
                .unwrap()
                .put(value, &mut bytes)
                .unwrap();
            bytes
        }
        fn written(integer: impl Into<Integer>) -> Vec<u8> {
            let mut bytes = Vec::new();
            write_state_integer(integer.into(), &mut bytes).unwrap();
            bytes
        }
        assert_eq!(written(7u64), bytes(&Auction(7)));
        assert_eq!(written(-7i8), bytes(&-7i8));
        assert_eq!(written(u16::MAX), bytes(&u16::MAX));
        assert_eq!(written(i32::MIN), bytes(&i32::MIN));
    }

    #[test]
    fn integers_come_back_as_values_of_types_that_have_grown() {
        let codec = state_codec_of::<Auction>().unwrap();
        // The codec returns no integer until a value has been read back as it was written.
        assert_eq!(codec.integer(&Auction(7)), None);
        codec.put(&Auction(7), &mut Vec::new()).unwrap();
        let integer = codec.integer(&Auction(7)).unwrap();
        assert_eq!(codec.get_integer(integer).unwrap(), Auction(7));
        let wider = state_codec_of::<Option<u128>>().unwrap();
        assert_eq!(wider.get_integer(7u8.into()).unwrap(), Some(7));
        let other = state_codec_of::<String>().unwrap();
        assert!(other.get_integer(integer).is_err());
        let narrower = state_codec_of::<i8>().unwrap();
        assert!(narrower.get_integer(300u32.into()).is_err());
    }
}
